"""Overlap is found however a sentence is punctuated, and told per held-out set."""

import pytest

from seq2seq.text.filters import OverlapIndex, fold

HELD_OUT = {
    "validation": [("Who is it?", "¿Quién es?")],
    "news": [("It is blue.", "Es azul."), ("WHO IS IT", "Quién anda ahí")],
}


@pytest.mark.parametrize(
    "variant", ["¿Quién  es?", "quién es", "QUIÉN ES…", " «Quién», es!", "quie\u0301n es", "QUIE\u0301N ES"]
)
def test_case_punctuation_and_spaces_do_not_count(variant: str):
    assert fold(variant) == fold("¿Quién es?")


@pytest.mark.parametrize(("one", "other"), [("si", "sí"), ("ano", "año"), ("5 €", "5 $"), ("1+1", "11"), ("का", "की")])
def test_accents_symbols_and_vowel_signs_count(one: str, other: str):
    assert fold(one) != fold(other)


def test_sentences_of_punctuation_alone_are_compared_as_they_are():
    assert fold("...") != fold("?!")
    assert not OverlapIndex({"test": [("...", "x")]}).shares("?!", "y")


@pytest.mark.parametrize(
    ("src", "tgt", "shared"),
    [
        ("who is it", "otra cosa", True),
        ("something else", "¡es azul!", True),
        ("It is blue", "Es azul", True),
        ("something else", "otra cosa", False),
        ("Es azul.", "It is blue.", False),  # sides are not mixed up
    ],
)
def test_a_pair_overlaps_if_it_shares_either_side(src: str, tgt: str, shared: bool):
    assert OverlapIndex(HELD_OUT).shares(src, tgt) is shared


def test_the_report_counts_pairs_and_sides_per_set_and_shows_examples():
    index = OverlapIndex(HELD_OUT)
    for pair in [("who is it", "nada"), ("Who is it?", "¿quién es?"), ("blue", "es azul"), ("no", "sí")]:
        index.shares(*pair)
    report = index.report
    assert {key: report["validation"][key] for key in ("pairs", "source", "target")} == {
        "pairs": 2,
        "source": 2,
        "target": 1,
    }
    assert {key: report["news"][key] for key in ("pairs", "source", "target")} == {
        "pairs": 3,
        "source": 2,
        "target": 1,
    }
    assert report["validation"]["examples"] == [["who is it", "nada"], ["Who is it?", "¿quién es?"]]


def test_only_a_few_examples_are_kept():
    index = OverlapIndex(HELD_OUT)
    for i in range(50):
        index.shares("Who is it?", str(i))
    assert index.report["validation"]["pairs"] == 50
    assert len(index.report["validation"]["examples"]) == 3


def test_an_empty_side_of_a_test_set_matches_nothing():
    index = OverlapIndex({"test": [("", "algo"), ("x", " ")]})
    assert not index.shares("", "")
    assert index.shares("something", "algo")


@pytest.mark.slow
def test_real_training_text_shares_almost_nothing_with_its_test_set(shared_data):
    def read(name: str) -> list[tuple[str, str]]:
        lines = (shared_data / "tatoeba" / name).read_text(encoding="utf-8").splitlines()
        return [(src, tgt) for src, tgt in (line.split("\t") for line in lines)]

    test = read("test.tsv")
    index = OverlapIndex({"test": test})
    assert sum(index.shares(src, tgt) for src, tgt in read("train.tsv")[::5]) < 20
    assert all(index.shares(src, tgt) for src, tgt in test[:1000])
