"""Normalisation gives each sentence one spelling."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from seq2seq.text.normalise import normalise, one_line


@given(st.text())
def test_normalising_twice_changes_nothing_more(text: str):
    once = normalise(text)
    assert normalise(once) == once


@given(st.text())
def test_normalised_text_is_nfc_single_spaced_and_encodable(text: str):
    result = normalise(text)
    assert unicodedata.is_normalized("NFC", result)
    assert result == " ".join(result.split())
    assert result.encode("utf-8").decode("utf-8") == result


def test_decomposed_letters_are_composed():
    assert normalise("nin\u0303o, ¿que\u0301?") == "niño, ¿qué?"


def test_every_kind_of_space_becomes_one_plain_space():
    assert normalise("\u00a0 a\u2003\t b\u202f\r\nc\u2028 ") == "a b c"


def test_invisible_characters_go_and_joiners_stay():
    assert normalise("\ufeffa\u200bb\u00adc\x00d\u202ee") == "abcde"
    assert normalise("👨\u200d👩\u200d👧") == "👨\u200d👩\u200d👧"


def test_a_letter_and_its_accent_meet_when_what_parts_them_goes():
    assert normalise("e\u200b\u0301") == "é"


def test_half_a_surrogate_pair_becomes_a_replacement_character():
    assert normalise("a\udce9") == "a\ufffd"


def test_one_line_keeps_everything_but_white_space():
    assert one_line(" e\u0301 \n\u200b▁ ") == "e\u0301 \u200b▁"
