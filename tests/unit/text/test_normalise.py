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


FORMS = {
    "letters": ("nin\u0303o, ¿que\u0301?", "niño, ¿qué?"),
    "spaces": ("\u00a0 a\u2003\t b\u202f\r\nc\u2028 ", "a b c"),
    "invisible": ("\ufeffa\u200bb\u00adc\x00d\u202ee", "abcde"),
    "joiners stay": ("👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧"),
    "accent after invisible": ("e\u200b\u0301", "é"),
    "half a surrogate pair": ("a\udce9", "a\ufffd"),
    "ligatures": ("The ﬁrst ﬂoor, oﬃce ﬀ ﬄ ﬅ ﬆ", "The first floor, office ff ffl st st"),
    "full width": ("Ａｂ１２：（￡）　ｎｅｗ", "Ab12:(£) new"),
    "mathematical alphabets": ("𝐁𝐨𝐥𝐝 𝑤ℎ𝑎𝑡 𝟙𝟚 𝓯𝓪𝓷𝓬𝔂", "Bold what 12 fancy"),
    "digraphs and half width": ("ĲSSEL ŀ ſ ǆ ｶﾞ", "IJSSEL l· s dž ガ"),
    "more invisible": ("a\u061c\u3164\u180e\u034f\u2800b", "ab"),
    "stray selectors": ("a\ufe0f b\ufe0e 1\ufe0f \ufe0f", "a b 1"),
    "selectors of emoji": ("❤\ufe0f 1\ufe0f\u20e3 ©\ufe0f ☺\ufe0e", "❤\ufe0f 1\ufe0f\u20e3 ©\ufe0f ☺\ufe0e"),
    "other compatibility characters stay": ("x² ½ ™ … № ℃ µ ª º ① ⅷ ﷺ", "x² ½ ™ … № ℃ µ ª º ① ⅷ ﷺ"),
}


@pytest.mark.parametrize("kind", FORMS)
def test_each_sentence_has_one_form(kind: str):
    text, expected = FORMS[kind]
    assert normalise(text) == expected


def test_one_line_keeps_everything_but_white_space():
    assert one_line(" e\u0301 \n\u200b▁ ") == "e\u0301 \u200b▁"


def test_variants_of_letters_and_digits_become_plain_and_other_characters_stay():
    for code in (*range(0x80, 0xD800), *range(0xE000, 0x20000)):
        character = chr(code)
        category, tag = unicodedata.category(character)[0], unicodedata.decomposition(character).partition(" ")[0]
        result = normalise(f"a{character}a")[1:-1]
        if tag in ("<wide>", "<narrow>", "<font>") and category in "LN" and character not in "ℹ\uffa0":
            assert result == unicodedata.normalize("NFKC", character), hex(code)
        elif category in "LNS" and character != "▁" and tag not in ("<wide>", "<narrow>", "<font>", "<compat>"):
            assert result in ("", unicodedata.normalize("NFC", character)), hex(code)
