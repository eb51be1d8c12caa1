"""Overlap is found however a sentence is punctuated, and told per held-out set."""

import pytest

from seq2seq.text.filters import OverlapIndex, fold

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


@pytest.mark.parametrize(("one", "other"), [("si", "sí"), ("ano", "año"), ("5 €", "5 $"), ("1+1", "11"), ("का", "की")])
def test_accents_symbols_and_vowel_signs_count(one: str, other: str):
    assert fold(one) != fold(other)


def test_sentences_of_punctuation_alone_are_compared_as_they_are():
    assert fold("...") != fold("?!")
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


@pytest.mark.slow
def test_real_training_text_shares_almost_nothing_with_its_test_set(shared_data):
    def read(name: str) -> list[tuple[str, str]]:
        lines = (shared_data / "tatoeba" / name).read_text(encoding="utf-8").splitlines()
        return [(src, tgt) for src, tgt in (line.split("\t") for line in lines)]

    test = read("test.tsv")
    index = OverlapIndex({"test": test})
    assert sum(index.shares(src, tgt) != NOTHING for src, tgt in read("train.tsv")[::5]) < 20
    assert all(index.shares(src, tgt) == (["test"], ["test"]) for src, tgt in test[:1000])
