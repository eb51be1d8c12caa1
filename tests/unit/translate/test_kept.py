"""On request, a number that a translation lacks is required in a second search, together with lost symbols."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seq2seq.errors import UserError
from seq2seq.search.types import Hypothesis
from seq2seq.settings.data import TokenizerConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import train_tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.kept import Found, keep
from seq2seq.translate.segmenter import Segment, Segmenter
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import SearchRequest, Text

TEXTS = ["Call 0 1 2 3 4 5 6 7 8 9 now: it is < late >.", "Llama ya a las 10:45 o siete.", "At 9, Es tarde veinte."]
BUNDLE = Path(__file__).parents[2] / "golden" / "bundle"
CAPITALS = "THE CAT SEES THE MILK."


def train(**settings: Any) -> Tokenizers:
    config = TokenizerConfig(**settings)
    return Tokenizers.joint(train_tokenizer([f"{a} {b}" for a in TEXTS for b in TEXTS], config))


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    return train(vocab_size=300, masks=2, user_symbols=["<len:5>"])


def translate(
    tokenizers: Tokenizers, pairs: Sequence[tuple[str | Text, str]], **options: Any
) -> tuple[list[str], list[list[str]]]:
    """Translate texts as pairs say, and return the translations, with symbols, and what each second search requires.

    A second search writes what it requires behind the translation, 666 with more digits, and refuses 777.
    """
    searches = list[list[list[str]]]()

    def search(segments: Sequence[Segment], request: SearchRequest) -> list[Found]:
        required = [tokenizers.target.decode(list(map(list, segment.source.phrases))) for segment in segments]
        if searches and any("777" in phrases for phrases in required):
            raise UserError("a text is too short for its phrases")
        searches.append(required)
        again = required if len(searches) > 1 else [[] for _ in required]
        texts = [" ".join([pairs[one.text_index][1], *of]) for one, of in zip(segments, again, strict=True)]
        texts = [text.replace("666", "6660") for text in texts]
        return [[(Hypothesis([1], -1.0, -1.0), text)] for text in texts]

    texts = [Text(text) if isinstance(text, str) else text for text, _ in pairs]
    settings: dict[str, Any] = {"has_phrases": True, "tgt_lang": "es", **options}
    request, segments = SearchRequest(settings=SearchConfig()), Segmenter(tokenizers, None).segments(texts)
    found = keep(segments, request, search, None, tokenizers, **settings)
    return [best[1] for best, *_ in found], [phrases for required in searches[1:] for phrases in required]


def test_a_lost_number_is_required_with_lost_symbols(tokenizers: Tokenizers) -> None:
    pairs = [("Call 555 now.", "Llama ya."), ("{a} at 10:45 or 7", "A las 11:45 o siete"), ("At 9, {b}", "A las 9")]
    texts, required = translate(tokenizers, pairs)
    assert texts == ["Llama ya. 555", "A las 11:45 o siete ⟨1⟩ 10:45", "A las 9 ⟨1⟩"]
    assert required == [["555"], ["⟨1⟩", "10:45"], ["⟨1⟩"]]


@pytest.mark.parametrize("options", [{"tgt_lang": None}, {"has_phrases": False}], ids=str)
def test_numbers_are_not_required_unless_the_caller_wants_it_and_the_engine_can(tokenizers, options) -> None:
    assert translate(tokenizers, [("Call 555 now.", "Llama ya.")], **options) == (["Llama ya."], [])


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("At 55 {a}.", "A las 55 ⟨1⟩."),
        ("<len:5> it is late.", "Es tarde."),
        (Text("At 20", phrases=["veinte"]), "A las veinte"),
    ],
    ids=str,
)
def test_a_translation_that_has_all_that_it_can_have_is_not_searched_again(tokenizers, text, translation) -> None:
    assert translate(tokenizers, [(text, translation)]) == ([translation], [])


def test_a_number_that_the_model_cannot_produce_is_not_required() -> None:
    tokenizers = train(vocab_size=43, byte_fallback=False)
    assert translate(tokenizers, [("At ௫௫ or 55", "Es tarde.")]) == (["Es tarde. 55"], [["55"]])


def test_a_second_search_that_finds_nothing_lost_is_not_taken(tokenizers: Tokenizers) -> None:
    texts, required = translate(tokenizers, [("Call 666 now.", "Llama ya."), ("Call 555 or 666", "Llama")])
    assert texts == ["Llama ya.", "Llama 555 6660"]
    assert required == [["666"], ["555", "666"]]


def test_what_a_search_refuses_stays_as_it_was_and_others_do_not_depend_on_it(tokenizers: Tokenizers) -> None:
    pairs = [("Call 555 now.", "Llama ya."), ("Call 777 now.", "Llama ya.")]
    assert translate(tokenizers, pairs) == (["Llama ya. 555", "Llama ya."], [["555"]])


def test_a_translator_repairs_only_if_it_is_told() -> None:
    translator = Translator.load(BUNDLE, "cpu")
    usual, texts = "The cat sees the milk.", [CAPITALS, "The dog eats 7777777 cats today.", "\x01", "", "5", "{a}{b}"]
    assert not translator.search.repair
    found = translator.translate(texts, repair=True)
    assert found[0] == translator.translate([usual])[0].upper() != translator.translate([CAPITALS])[0]
    assert "7777777" in found[1]
    assert "7777777" not in translator.translate(texts)[1]
    assert translator.translate([usual], repair=True) == translator.translate([usual])
    (aligned,), (plain,) = (
        translator.translate_nbest([text], 1, align=True, repair=True)[0] for text in (CAPITALS, usual)
    )
    assert aligned.alignment == plain.alignment
    changes: list[dict[str, Any]] = [{"early_stopping": True}, {"mbr": 3}, {"beam": 1}, {"no_repeat_ngram": 2}]
    for options in changes:
        assert len(translator.translate(texts, repair=True, **options)) == len(texts)


def test_samples_and_begun_texts_keep_their_capitals() -> None:
    translator = Translator.load(BUNDLE, "cpu")
    drawn = translator.translate([CAPITALS], sampling=True)
    assert translator.translate([CAPITALS], sampling=True, repair=True) == drawn
    begun = Text(CAPITALS, prefix="El perro")
    assert translator.translate([begun], repair=True) == translator.translate([begun])
