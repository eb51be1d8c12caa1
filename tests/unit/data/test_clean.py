"""Each check drops what it is for under its own name; overlap is found however a sentence is punctuated."""

import io
from collections import Counter

import pytest
from rich.console import Console

from seq2seq.data import clean as cleaning
from seq2seq.data.clean import OverlapIndex, digest_pair, drop_table, fold, side_key
from seq2seq.settings.data import DataConfig

LIMITS = DataConfig(max_characters=40, max_ratio=2.0)


def clean(pairs: list[tuple[str, str]], config: DataConfig = LIMITS) -> tuple[list[tuple[str, str]], Counter[str]]:
    counts: Counter[str] = Counter()
    return list(cleaning.clean(pairs, config, counts)), counts


@pytest.mark.parametrize(
    ("src", "tgt", "reason"),
    [
        ("", "hola", "empty"),
        ("hello", " \u200b\n", "empty"),
        ("a" * 41, "b" * 40, "characters"),
        ("a" * 21, "b" * 10, "ratio"),
        ("a" * 10, "b" * 21, "ratio"),
        ("OK  ", "\u00a0OK", "identical"),
    ],
)
def test_a_bad_pair_is_dropped_under_its_reason(src: str, tgt: str, reason: str):
    kept, counts = clean([(src, tgt), ("fine", "bien")])
    assert kept == [("fine", "bien")]
    assert counts == {"read": 2, "kept": 1, reason: 1}


def test_pairs_at_the_limits_are_kept_and_so_are_short_ones_and_those_that_differ_in_case():
    pairs = [("a" * 40, "b" * 40), ("a" * 22, "b" * 11), ("No.", "De ninguna manera."), ("Madrid", "madrid")]
    assert clean(pairs)[0] == pairs
    assert clean([("c", "c")], DataConfig(drop_identical=False))[0] == [("c", "c")]


def test_a_pair_equals_another_whatever_its_spacing_but_not_if_the_border_between_the_sides_moves():
    (pair, same, other), _ = clean([("a b", "c"), ("a  b", "c\u00a0"), ("a", "b c")])
    assert digest_pair(*pair) == digest_pair(*same) != digest_pair(*other)


def test_quotation_marks_of_html_are_decoded_and_counted_and_other_entities_stay():
    kept, counts = clean([("It&apos;s &quot;it&#34;.", "Es &#39;eso&apos;."), ("a &amp; b", "a &lt; b")])
    assert kept == [('It\'s "it".', "Es 'eso'."), ("a &amp; b", "a &lt; b")]
    assert counts == {"read": 2, "kept": 2, "unescaped": 1}


def test_the_table_shows_each_corpus_the_reasons_that_occurred_and_the_total_and_cuts_no_number():
    names = ("empty", "ratio", "identical", "duplicate", "tokens", "held out")
    long = {"name": "corpora/a_rather_long_name.tsv.xz", "read": 9_876_543, "kept": 7_000_001}
    short = {"name": "b.tsv", "read": 500, "kept": 499, "empty": 1}
    file = io.StringIO()
    for files in ([long | dict.fromkeys(names, 54_321), short], [short]):
        Console(width=90, file=file).print(drop_table({"files": files}))
    cells = [line.split() for line in file.getvalue().splitlines()]
    assert ["corpus", "read", *" ".join(names).split(), "kept"] in cells
    assert ["b.tsv", "500", "1", *["0"] * 5, "499"] in cells
    assert ["total", "9,877,043", "54,322", *["54,321"] * 5, "7,000,500"] in cells
    assert ["b.tsv", "500", "1", "499"] in cells
    assert sum("total" in line for line in cells) == 1, "one corpus has no total"


HELD_OUT = {
    "validation": [("Who is it?", "¿Quién es?")],
    "news": [("It is blue.", "Es azul."), ("WHO IS IT", "Quién anda ahí")],
}
NOTHING: tuple[list[str], list[str]] = ([], [])


@pytest.mark.parametrize(
    "variant", ["¿Quién  es?", "quién es", "QUIÉN ES…", " «Quién», es!", "quie\u0301n es", "QUIE\u0301N ES"]
)
def test_case_punctuation_and_spaces_do_not_count(variant: str):
    assert fold(variant) == fold("¿Quién es?")


@pytest.mark.parametrize(("text", "other"), [("si", "sí"), ("ano", "año"), ("5 €", "5 $"), ("1+1", "11"), ("का", "की")])
def test_accents_symbols_and_vowel_signs_count(text: str, other: str):
    assert fold(text) != fold(other)


def test_sentences_of_punctuation_alone_are_compared_as_they_are():
    assert OverlapIndex({"test": [("...", "x")]}).shares("?!", "y") == NOTHING


@pytest.mark.parametrize(
    ("src", "tgt", "sets"),
    [
        ("who is it", "otra cosa", (["news", "validation"], [])),
        ("something else", "¡es azul!", ([], ["news"])),
        ("It is blue", "¿quién es?", (["news"], ["validation"])),
        ("something else", "otra cosa", NOTHING),
        ("Es azul.", "It is blue.", NOTHING),  # sides are not mixed up
    ],
)
def test_the_sets_that_have_a_side_are_named_for_each_side(src: str, tgt: str, sets: tuple[list[str], list[str]]):
    assert OverlapIndex(HELD_OUT).shares(src, tgt) == sets


def test_an_empty_side_of_a_test_set_matches_nothing():
    index = OverlapIndex({"test": [("", "algo"), ("x", " ")]})
    assert index.shares("", "") == NOTHING
    assert index.shares("something", "algo") == ([], ["test"])


@pytest.mark.parametrize("side", ["¿Quién es?", "...", "İstanbul", "Straße", "e-\u0301"])  # the last: folded twice, é
def test_the_keys_of_an_index_are_those_of_its_sides(side: str):
    index = OverlapIndex({"test": [(side, "x")], "validation": [("y", side)]})
    assert index.keys == ([side_key(side), side_key("y")], [side_key("x"), side_key(side)])
    assert fold(fold("e-\u0301")) != fold("e-\u0301")
