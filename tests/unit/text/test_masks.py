"""Strings that a translation keeps become symbols, on both sides of a pair or in a source, and come back exactly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.text.masks import Masked, Masker
from seq2seq.text.normalise import normalise

LATIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZáéíóúñü0123456789 .,;:!?'\"¿¡-"
EVERY, KNOWN = Masker(8), Masker(8, LATIN, symbols=["<bt>"])


@pytest.mark.parametrize(
    ("text", "strings"),
    [
        ("See https://x.org/a_b?c=1#d, or www.x.com.", ["https://x.org/a_b?c=1#d", "www.x.com"]),
        ("Mail me@x.co.uk or tel:+34-555!", ["me@x.co.uk", "tel:+34-555"]),
        ("%s of %1$s, %(name)s, %-5.2f, %d%% %L1 %n", ["%s", "%1$s", "%(name)s", "%-5.2f", "%d%%", "%L1", "%n"]),
        ("{name} {0} {} {{ n | up }} ${a} $(NAME)", ["{name}", "{0}", "{}", "{{ n | up }}", "${a}", "$(NAME)"]),
        ("%#@files@ and {n, number}, $HOME, %PATH%", ["%#@files@", "{n, number}", "$HOME", "%PATH%"]),
        ('A <b class="x">bold</b> &amp; <br/> <1>x</1>', ['<b class="x">', "</b>", "&amp;", "<br/>", "<1>", "</1>"]),
        ("Run `ls  -l` in ~/a/b or /etc/hosts, C:\\x\\y", ["`ls  -l`", "~/a/b", "/etc/hosts", "C:\\x\\y"]),
        ("Open report.final.pdf and main.py on debian.org.", ["report.final.pdf", "main.py", "debian.org"]),
        ("use --no-cache, f_x(), CONST_X, a::b, getName", ["--no-cache", "f_x()", "CONST_X", "a::b", "getName"]),
        ("Thanks @tom_smith! #HappyBirthday #12 :smile:", ["@tom_smith", "#HappyBirthday", "#12", ":smile:"]),
        ("👍🏽👩‍🚀 🇪🇸 ❤️ 1️⃣", ["👍🏽👩‍🚀", "🇪🇸", "❤️", "1️⃣"]),
        ("Ctrl+C, Alt + F4, v2.0, 1.2.3-rc1, COVID-19", ["Ctrl+C", "Alt + F4", "v2.0", "1.2.3-rc1", "COVID-19"]),
        ("⟨3⟩ {a}{b} ⟨\u200b9⟩", ["⟨3⟩", "{a}{b}", "⟨\u200b9⟩"]),
        ("``a`b`` <!-- <b --> {x!r:>9} {\\an8} &eth;", ["``a`b``", "<!-- <b -->", "{x!r:>9}", "{\\an8}", "&eth;"]),
        ("50 % of 100% at 7:45, 3.14; and/or he said.it, U.S. I - I don't. 21ST AT&T T-shirt (a) $5 # x [x] C#", []),
    ],
)  # fmt: skip
def test_strings_of_every_family_are_masked_and_words_and_numbers_are_not(text: str, strings: list[str]):
    masked = EVERY.mask(text)
    assert list(masked.strings) == strings
    assert masked.restore(masked.text) == text


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("⟨⟩\u200b1{}%s@#/.`<>Ж ")))
def test_a_masked_text_is_normal_and_restores_every_string(text: str):
    for masker in (EVERY, KNOWN):
        masked = masker.mask(text)
        assert normalise(masked.text) == masked.text
        assert all(string in masked.restore(masked.text) for string in masked.strings)
        assert masked.lost(masked.text) == []
        if not masked.strings:
            assert masked.text == normalise(text)


def test_words_with_characters_that_the_vocabulary_lacks_are_masked_together():
    masked = KNOWN.mask("Hola Москва и Киев, Dvořák; {x} <bt> 5 Ω")
    assert masked == Masked("Hola ⟨1⟩, ⟨2⟩; ⟨3⟩ <bt> 5 ⟨4⟩", ("Москва и Киев", "Dvořák", "{x}", "Ω"))


@pytest.mark.parametrize(
    ("pair", "masked"),
    [
        (("Open {a} at x.org", "Abre x.org en {a}"), ("Open ⟨1⟩ at ⟨2⟩", "Abre ⟨2⟩ en ⟨1⟩")),
        (("{a} {a} {b}", "{b} {a}"), ("{a} {a} ⟨1⟩", "⟨1⟩ {a}")),  # not as often on both sides
        (("{a} or {a}", "{a} o {a}"), ("⟨1⟩ or ⟨2⟩", "⟨1⟩ o ⟨2⟩")),
        (("⟨7⟩ {a}", "{a} ⟨7⟩"), ("⟨1⟩ ⟨2⟩", "⟨2⟩ ⟨1⟩")),
        (("No string", "Sin {a}"), ("No string", "Sin {a}")),
    ],
)
def test_a_pair_is_masked_where_both_sides_have_a_string_equally_often(pair: tuple[str, str], masked: tuple[str, str]):
    assert EVERY.mask_pair(*pair) == masked


def test_at_most_as_many_strings_as_set_are_masked_and_earlier_symbols_first():
    assert Masker(2).mask_pair("{a} {b} ⟨1⟩ {c}", "{c} ⟨1⟩ {b} {a}") == ("⟨1⟩ {b} ⟨2⟩ {c}", "{c} ⟨2⟩ {b} ⟨1⟩")
    assert Masker(2).mask_pair("{a} {a} {a}", "{a} {a} {a}") == ("{a} {a} {a}", "{a} {a} {a}")
    part = Masked("⟨1⟩ ⟨2⟩ ⟨3⟩", ("{a}", "{b}", "⟨9⟩")).part("⟨2⟩ x ⟨3⟩", 1)
    assert part == Masked("⟨1⟩ x <9⟩", ("{b}",))


def test_symbols_come_back_once_and_others_go():
    masked = Masked("See ⟨1⟩ and ⟨2⟩.", ("a b", "{x}"))
    assert masked.restore("Vea ⟨2⟩, ⟨1⟩ ⟨1⟩ y ⟨3⟩.") == "Vea {x}, a b y ."
    assert masked.lost("Vea ⟨2⟩ ⟨3⟩") == ["1"]
    assert masked.apply("Vea {x}, a b y {x}") == "Vea ⟨2⟩, ⟨1⟩ y {x}"
    assert [masked.word_number("Vea ⟨1⟩ y ⟨2⟩ ya", word) for word in range(6)] == [0, 1, 3, 4, 5, 6]
