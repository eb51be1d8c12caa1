"""`pipeline("translation")` takes the arguments, and gives the results, of transformers before version 5."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import seq2seq
from seq2seq import Translator, pipeline
from seq2seq.apps.pipeline import TranslationPipeline
from tests.refusing import refuses

BUNDLE = Path(__file__).parents[2] / "golden" / "bundle"
CAT, COW = "The cat sees the milk.", "The cow brings an apple."


@pytest.fixture(scope="module")
def translate() -> TranslationPipeline:
    return pipeline("translation_en_to_es", model=str(BUNDLE), device=-1)


def text(one: str) -> dict[str, str]:
    return {"translation_text": one}


def test_a_text_gives_a_list_and_a_list_of_texts_a_list_of_dictionaries(translate: TranslationPipeline):
    assert seq2seq.pipeline is pipeline  # the function, not a module of this name
    assert translate(CAT) == [text("El gato ve la leche.")]
    assert translate([CAT, COW]) == [text("El gato ve la leche."), *translate(COW)]
    assert translate([]) == []
    two = translate(CAT, num_return_sequences=2)
    assert two[:1] == translate(CAT)
    assert len(two) == 2
    assert translate([CAT], num_return_sequences=2) == [two]


def test_a_generator_is_read_bit_by_bit(translate: TranslationPipeline, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("seq2seq.apps.pipeline.CHUNK_LINES", 1)
    given: list[str] = []

    def texts() -> Iterator[str]:
        for one in (CAT, COW):
            given.append(one)
            yield one

    found = translate(texts())
    assert given == []
    assert next(found) == translate(CAT)
    assert given == [CAT]
    assert list(found) == [translate(COW)]


def test_the_options_are_those_of_generate(translate: TranslationPipeline):
    translator = Translator.load(BUNDLE, "cpu")
    expected = translator.translate([COW], beam=2, length_penalty=0.5, early_stopping=True)
    assert translate(COW, num_beams=2, length_penalty=0.5) == [text(expected[0])]
    drawn = translator.translate([COW], sampling=True, top_k=5, temperature=0.8)
    assert translate(COW, do_sample=True, top_k=5, temperature=0.8) == [text(drawn[0])]
    assert translate(COW, top_k=50, temperature=0.5) == translate(COW)  # nothing is drawn
    short = translator.translate_nbest([COW], 1, max_length=3, early_stopping=True)[0][0].text
    assert translate(COW, max_length=5) == translate(COW, max_new_tokens=4) == [text(short)] != translate(COW)
    options: dict[str, Any] = {"batch_size": 8, "truncation": True, "clean_up_tokenization_spaces": True}
    assert translate(CAT, **options) == translate(CAT)
    assert TranslationPipeline(translator, num_return_sequences=2)(CAT) == translate(CAT, num_return_sequences=2)


def test_the_search_ends_by_transformers_rule_unless_never(translate: TranslationPipeline, monkeypatch: Any):
    asked: list[bool] = []
    request = translate.translator.request

    def noting(**options: Any) -> Any:
        asked.append(options["early_stopping"])
        return request(**options)

    monkeypatch.setattr(translate.translator, "request", noting)
    translate(CAT)
    translate(CAT, early_stopping="never")
    assert asked == [True, False]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pipeline("summarization", BUNDLE), "there is no task 'summarization' here: give translation"),
        (lambda: pipeline("translation_es_to_en", BUNDLE), "this model translates from en to es"),
        (lambda: pipeline("translation", "nothing/here/at/all"), "nothing/here/at/all is no folder"),
        (lambda: pipeline("translation", BUNDLE, beams=3), "pipeline has no option beams: choose from num_beams"),
        (lambda: pipeline("translation", BUNDLE)(CAT, num_beams=0), "beam=0"),
        (lambda: pipeline("translation", BUNDLE)(CAT, max_length=2), "max_length=2 leaves no room for a token"),
    ],
)
def test_a_mistake_is_one_line(call: Any, message: str):
    refuses(message, call)
