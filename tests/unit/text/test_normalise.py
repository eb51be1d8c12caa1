"""Normalisation gives each sentence one spelling."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.text.normalise import normalise, one_line


@given(st.text())
def test_normalised_text_is_nfc_single_spaced_encodable_and_stays_so(text: str):
    result = normalise(text)
    assert normalise(result) == result
    assert unicodedata.is_normalized("NFC", result)
    assert result == " ".join(result.split())
    assert result.encode("utf-8").decode("utf-8") == result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nin\u0303o, ¿que\u0301?", "niño, ¿qué?"),
        ("\u00a0 a\u2003\t b\u202f\r\nc\u2028 ", "a b c"),
        ("\ufeffa\u200bb\u00adc\x00d\u202ee", "abcde"),
        ("👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧"),
        ("e\u200b\u0301", "é"),
        ("a\udce9", "a\ufffd"),
    ],
    ids=["letters", "spaces", "invisible", "joiners stay", "accent after invisible", "half a surrogate pair"],
)
def test_each_sentence_has_one_form(text: str, expected: str):
    assert normalise(text) == expected


def test_one_line_keeps_everything_but_white_space():
    assert one_line(" e\u0301 \n\u200b▁ ") == "e\u0301 \u200b▁"
