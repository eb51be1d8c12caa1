"""Unusual texts are translated as usual ones, and what a translation loses is searched or put in again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seq2seq.errors import UserError
from seq2seq.evaluation.faults import lost_numbers
from seq2seq.interface import Hypothesis, SearchRequest, Source, Text
from seq2seq.repair import Found, in_usual_case, repair
from seq2seq.settings.search import SearchConfig
from seq2seq.text.vocabulary import load_tokenizers
from seq2seq.translation import Segment
from seq2seq.translator import Translator

MODEL = Path(__file__).parents[2] / "data" / "model"
BUNDLE = Path(__file__).parents[1] / "golden" / "bundle"
TOKENIZERS = load_tokenizers(MODEL)
REQUEST = SearchRequest(settings=SearchConfig(repair=True))


@pytest.mark.parametrize(
    ("text", "usual"),
    [
        ("THE CAT DRANK THE MILK.", "The cat drank the milk."),
        ("TOM AND I LIVE IN BOSTON. WHERE DO YOU LIVE?", "Tom and I live in Boston. Where do you live?"),
        ("The Cat Drank The Milk", "The cat drank the milk"),
        ("I Was Expecting Tom.", "I was expecting Tom."),
        ("“STOP IT!”", "“Stop it!”"),
        ("Tom Mary John Tom", "Tom Mary John Tom"),
        ("Happy New Year!", "Happy New Year!"),
        ("Mail John.Doe@Example.com Right Now", "Mail John.Doe@Example.com right now"),
        ("TV", "TV"),
        ("A TV?", "A TV?"),
        ("I have a TV.", "I have a TV."),
        ("Yes, Tom.", "Yes, Tom."),
        ("", ""),
        ("1999", "1999"),
    ],
)
def test_capitals_become_a_sentence_with_its_names(text: str, usual: str):
    assert in_usual_case(text, TOKENIZERS.source) == usual


@pytest.mark.parametrize(
    ("source", "translation", "lost"),
    [
        ("at 10:45", "a las 10:45", []),
        ("at 10:45", "a las 11:45", ["10:45"]),
        ("$1,250", "1.250 dólares", []),
        ("1000", "1 000", []),
        ("1 cat", "un gato", []),
        ("my 1st MP3", "mi primer MP3", []),
        ("٣" * 5000, "", ["٣" * 5000]),
        ("3 cats", "tres gatos", []),
        ("3 cats", "gatos", ["3"]),
        ("20 or 20", "20", ["20"]),
        ("no number", "7", []),
    ],
)
def test_a_number_is_lost_unless_its_digits_or_its_word_are_there(source: str, translation: str, lost: list[str]):
    assert lost_numbers(source, translation, "es") == lost


class Model:
    """Answers every text as its table says, and numbers as they are required; records what is asked."""

    def __init__(self, answers: dict[str, str], *, forgets: bool = False) -> None:
        self.answers, self.forgets = answers, forgets
        self.asked: list[tuple[str, int, list[str]]] = []

    def __call__(self, segments: Sequence[Segment], request: SearchRequest) -> list[Found]:
        phrases = [TOKENIZERS.target.decode(list(map(list, one.source.phrases))) for one in segments]
        ngram = request.settings.no_repeat_ngram
        self.asked += [(one.text, ngram, list(of)) for one, of in zip(segments, phrases, strict=True)]
        texts = [
            " ".join(
                [self.answers.get(f"{one.text}/{ngram}" if ngram else one.text, "?"), *([] if self.forgets else of)]
            )
            for one, of in zip(segments, phrases, strict=True)
        ]
        return [[(Hypothesis([1], -1.0, -1.0), text)] for text in texts]


def mended(model: Model, text: str, *, has_phrases: bool = True, keeps: bool = True) -> str:
    segment = Segment(0, text, Source(TOKENIZERS.source.encode([text])[0]))
    first = model([segment], REQUEST)
    model.asked.clear()
    found = repair(
        [segment], first, REQUEST, model, None, TOKENIZERS, "es", has_phrases=has_phrases, keeps=keeps
    )  # fmt: skip
    return found[0][0][1]


def test_a_good_translation_is_not_searched_again():
    model = Model({"It is 5 {name}.": "Son las 5 {name}."})
    assert mended(model, "It is 5 {name}.") == "Son las 5 {name}."
    assert model.asked == []


def test_a_text_without_a_final_stop_is_translated_with_it_if_the_model_adds_one():
    model = Model({"Thank you": "Gracias por ti.", "Thank you.": "Gracias."})
    assert mended(model, "Thank you") == "Gracias"
    assert model.asked == [("Thank you.", 0, [])]
    ours = ("EE. UU.", "las 5 p.m.", "las 5 p. m.", "etc.", "...")  # the stop belongs to the word
    texts = (("Thank you", "Gracias"), ("Thank you!", "Gracias."), *(("and so on", f"Y {end}") for end in ours))
    for text, translation in texts:
        model = Model({text: translation})
        assert mended(model, text) == translation
        assert model.asked == []
    assert mended(Model({"I think so": "Sí.", "I think so.": "Creo que sí."}), "I think so") == "Creo que sí"
    assert mended(Model({"Thank you": "Gracias."}), "Thank you", keeps=False) == "Gracias."


def test_a_lost_number_is_required_and_else_put_back():
    model = Model({"Call 555 now.": "Llama ya."})
    assert mended(model, "Call 555 now.") == "Llama ya. 555"
    assert model.asked == [("Call 555 now.", 0, ["555"])]
    for options in ({"forgets": True}, {}):
        model = Model({"Call 555 now.": "Llama ya.", "Call now.": "Llama ya."}, **options)
        translation = mended(model, "Call 555 now.", has_phrases=bool(options))
        assert translation == "Llama 555 ya."


def test_digits_within_a_word_stay_in_it():
    model = Model({"My MP3 player cost 555.": "Mi MP3 costó.", "My MP3 player cost .": "Mi MP3 costó."})
    assert mended(model, "My MP3 player cost 555.", has_phrases=False) == "Mi MP3 555 costó."


def test_a_loop_is_searched_again_without_repeats():
    model = Model({"Why 7?": "Por qué por qué por qué 7", "Why 7?/3": "¿Por qué 7?"})
    assert mended(model, "Why 7?") == "¿Por qué 7?"
    assert model.asked == [("Why 7?", 3, [])]


def test_what_a_search_refuses_stays_as_it_was_and_others_do_not_depend_on_it():
    model = Model({"Call 555 now.": "Llama ya.", "Call 777 now.": "Llama ya."})

    def search(segments: Sequence[Segment], request: SearchRequest) -> list[Found]:
        if any("777" in one.text and one.source.phrases for one in segments):
            raise UserError("a text has no translation")
        return model(segments, request)

    texts = ["Call 555 now.", "Call 777 now."]
    segments = [Segment(i, text, Source(TOKENIZERS.source.encode([text])[0])) for i, text in enumerate(texts)]
    found = repair(
        segments, model(segments, REQUEST), REQUEST, search, None, TOKENIZERS, "es", has_phrases=True, keeps=False
    )  # fmt: skip
    assert [one[0][1] for one in found] == ["Llama ya. 555", "Llama ya."]


def test_numbers_are_no_loops_and_what_is_required_is_not_cut():
    model = Model({"Ten thousand people.": "10000 personas."})
    assert mended(model, "Ten thousand people.") == "10000 personas."
    assert model.asked == []
    segment = Segment(0, "No.", Source(TOKENIZERS.source.encode(["No."])[0], prefix=(5,)))
    loop = Model({"No.": "no no no no", "No./3": "no no no no"})
    found = repair(
        [segment], loop([segment], REQUEST), REQUEST, loop, None, TOKENIZERS, "es", has_phrases=True, keeps=True
    )  # fmt: skip
    assert found[0][0][1] == "no no no no"
    assert mended(Model({"No.": "no no no no", "No./3": "no no no no"}), "No.") == "no"


def test_any_number_can_be_translated():
    translator = Translator.load(BUNDLE, "cpu")
    texts = ["The dog eats 7777777 cats today.", "The cat has 10000 dogs.", "The cat", "\x01", "", "5", "{a}{b}"]
    found = translator.translate(texts, repair=True)
    assert ("7777777" in found[0], "10000" in found[1], found[2] + ".") == (
        True,
        True,
        *translator.translate(["The cat."]),
    )
    cases: list[dict[str, Any]] = [{"early_stopping": True}, {"mbr": 3}, {"beam": 1}]
    for options in (*cases, dict[str, Any](no_repeat_ngram=2)):
        assert len(translator.translate(texts, repair=True, **options)) == len(texts)
    drawn = translator.translate(["THE CAT SEES THE MILK."], sampling=True)
    assert translator.translate(["THE CAT SEES THE MILK."], sampling=True, repair=True) == drawn
    begun = translator.translate([Text("THE CAT SEES THE MILK.", prefix="El perro")], repair=True)[0]
    assert begun.startswith("El perro")


def test_a_translator_repairs_only_if_it_is_told():
    translator = Translator.load(BUNDLE, "cpu")
    text, capitals = "The cat sees the milk.", "THE CAT SEES THE MILK."
    assert not translator.search.repair
    assert translator.translate([capitals], repair=True) == [translator.translate([text])[0].upper()]
    assert translator.translate([capitals]) != translator.translate([capitals], repair=True)
    kept = translator.translate(["The cat {name} sees the milk 😀."], repair=True)[0]
    assert kept.count("{name}") == kept.count("😀") == 1
    assert translator.translate([text], repair=True) == translator.translate([text])
    aligned = translator.translate_nbest([capitals], 1, align=True, repair=True)[0][0]
    assert aligned.alignment == translator.translate_nbest([text], 1, align=True)[0][0].alignment
    two = translator.translate_nbest(["The cat {name}"], 2, repair=True)[0]
    assert all("{name}" in one.text for one in two)
