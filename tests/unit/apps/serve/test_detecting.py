from pathlib import Path

import pytest

from seq2seq.apps.serve.service import detector

EVERYDAY = Path(__file__).parents[4] / "data/bundled/everyday.test.tsv"


def test_no_english_sentence_seems_to_be_spanish_and_few_short_spanish_ones_seem_to_be_english():
    detect = detector("en", "es")
    pairs = [line.split("\t")[:2] for line in EVERYDAY.read_text(encoding="utf-8").splitlines()]
    assert {detect(english)[0] for english, _ in pairs} == {"en"}
    missed = [spanish for _, spanish in pairs if detect(spanish)[0] != "es"]
    assert len(missed) <= len(pairs) / 100
    assert max(map(len, missed), default=0) < 20


@pytest.mark.parametrize(
    ("text", "language", "least"),
    [
        ("Buenos días", "es", 90),
        ("GRACIAS", "es", 90),
        ("Good morning", "en", 90),
        ("Hello", "en", 30),
        ("Comment allez-vous aujourd'hui ?", "fr", 90),
        ("今日はとても天気がいいですね。" * 40, "ja", 90),
        *((text, "en", 0) for text in ("", " ", "12:30", "😀 👍", "…")),
    ],
)
def test_a_text_has_a_language_and_a_confidence_if_it_has_letters(text: str, language: str, least: int):
    detected, confidence = detector("en", "es")(text)
    assert (detected, confidence > 0) == (language, least > 0)
    assert least <= confidence <= 100
    region = {"en": "en-GB", "es": "es-MX"}
    assert detector("en-GB", "es-MX")(text) == (region.get(language, language), confidence)


def test_a_language_that_py3langid_does_not_know_is_never_certain():
    assert detector("xx", "yy")("El gato bebe.") == ("xx", 0.0)
