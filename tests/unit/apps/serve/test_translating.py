import asyncio
from typing import Any

import pytest
from serving import FakeTranslator

from seq2seq.apps.serve.batching import Batcher
from seq2seq.apps.serve.limits import Limits
from seq2seq.apps.serve.translating import TextTranslator, compute_with
from seq2seq.apps.serve.worker import Kind, Worker
from seq2seq.translate.types import Translation
from tests.refusing import refuses


def translate(
    translator: FakeTranslator, texts: list[str], n_best: int = 1, *, is_html: bool = False, **limits: int
) -> list[Any]:
    async def all_of_it() -> list[list[str]]:
        worker, markup_worker = Worker(), Worker("markup")
        bounds = Limits(**{"max_delay": 0.001, "waiting_texts": 100, "waiting_chars": 10_000, **limits})
        batchers = [Batcher(compute_with(translator), worker, bounds, kind=kind) for kind in Kind]
        for batcher in batchers:
            batcher.start()
        try:
            text_translator = TextTranslator(batchers, translator.count_subwords, markup_worker, ("en", "es"), bounds)
            translated = await asyncio.wait_for(text_translator.translate(texts, n_best, is_html=is_html), 20)
            return [text.ranks for text in translated]
        finally:
            await asyncio.gather(*(batcher.stop() for batcher in batchers))
            worker.close()
            markup_worker.close()

    return asyncio.run(all_of_it())


def test_sentences_are_translated_one_by_one_and_the_space_between_them_stays(translator: FakeTranslator):
    text = "  The cat.  A dog?\n\n\tMr. Hill saw it.\nend \n"
    assert translate(translator, [text]) == [[text.upper()]]
    assert translator.batches == [["The cat.", "A dog?", "Mr. Hill saw it.", "end"]]


def test_long_sentences_have_batches_of_their_own(translator: FakeTranslator):
    long = "Word " * 40 + "end"
    text = f"Yes. {long}.\nNo. {long} too."
    assert translate(translator, [text]) == [[text.upper()]]
    assert sorted(translator.batches) == [[f"{long}.", f"{long} too."], ["Yes.", "No."]]


def test_the_nth_of_a_text_joins_the_nth_of_every_sentence(translator: FakeTranslator):
    assert translate(translator, ["One. Two."], 3) == [["ONE. TWO.", "ONE.! TWO.!", "ONE.!! TWO.!!"]]


def test_what_is_asked_for_twice_is_translated_once(translator: FakeTranslator):
    assert translate(translator, ["Yes. No.", "No. Yes."]) == [["YES. NO."], ["NO. YES."]]
    assert translator.batches == [["Yes.", "No."]]


def test_urls_placeholders_and_tags_stay(translator: FakeTranslator):
    text = "See {name} at https://a.org/x?y.\nIt is <b>bold</b>."
    translations, _ = translate(translator, [text, "plain"], 2)
    assert translations[0] == "SEE {name} AT https://a.org/x?y.\nIT IS <b>BOLD</b>."


def test_characters_that_stand_for_markup_inside_are_no_way_to_break_it(translator: FakeTranslator):
    assert translate(translator, ["a\0b \1 <i>c</i>"]) == [["A B   <i>C</i>"]]


def test_html_keeps_its_markup_whoever_else_asks(translator: FakeTranslator):
    documents = ["<p>One <b>two</b>.</p><script>let a = 1</script>", "<p title='x'>Three</p>"]
    assert translate(translator, documents, is_html=True) == [
        ["<p>ONE <b>TWO</b>.</p><script>let a = 1</script>"],
        ["<p title='x'>THREE</p>"],
    ]
    assert sum("Three" in batch for batch in translator.batches) == 1
    assert {"One two.", "Three"} <= set(translator.batches[0])


@pytest.mark.parametrize(
    ("text", "is_html", "limits", "message"),
    [
        ("a <b>b</b> " * 3, True, {"tag_limit": 5}, "a sentence has 6 tags or placeholders, at most 5 can be"),
        ("a <b>b</b> " * 3, False, {"tag_limit": 5}, "6 tags or placeholders, at most 5"),
        ("<p>a</p><p>b <i>c</i> d</p>", True, {"sentence_limit": 1}, "the request has 2 sentences, at most 1"),
        ("a\nb\nc\nd", False, {"sentence_limit": 3}, "the request has 4 sentences, at most 3"),
    ],
)
def test_a_text_of_too_many_parts_is_refused_before_the_model_is_asked(translator, text, is_html, limits, message):
    refuses(message, translate, translator, [text], is_html=is_html, **limits)
    assert not translator.batches
    assert translate(translator, [text], is_html=is_html, **{name: value + 1 for name, value in limits.items()})


def test_every_alternative_has_its_markup_by_its_own_alignment(translator, monkeypatch):
    calls: list[bool] = []

    def translate_nbest(
        texts: list[str], n_best: int, *, align: bool = False, on_progress: object = None, **more: object
    ) -> list[list[Translation]]:
        calls.append(align)
        ranked = [("x y", [(1, 0), (0, 1)]), ("z w", [(0, 0), (1, 1)])]
        return [[Translation(text, 0.0, 0.0, [], alignment) for text, alignment in ranked] for _ in texts]

    monkeypatch.setattr(translator, "translate_nbest", translate_nbest)
    translator.aligns = True
    assert translate(translator, ["<p>a <b>b</b></p>"], 2, is_html=True) == [["<p><b>x</b> y</p>", "<p>z <b>w</b></p>"]]
    assert translate(translator, ["a <b>b</b>"], 2) == [["<b>x</b> y", "z <b>w</b>"]]
    assert calls == [True, True]  # once a request, not once an alternative
