"""Noise changes the share of sources that it should, in the ways it names, and nothing else."""

import random

import pytest

from seq2seq.errors import UserError
from seq2seq.settings.training import NoiseConfig
from seq2seq.text.augment import _NEIGHBOURS, add_noise, drop_final_mark, mistype

TEXTS = [f"The cat number {i} drank all the milk{mark}" for i in range(1000) for mark in ".?"]


def share_of_changed(texts: list[str], noisy: list[str]) -> float:
    return sum(a != b for a, b in zip(texts, noisy, strict=True)) / len(texts)


@pytest.mark.parametrize("kind", ["case", "typos", "punctuation"])
def test_the_share_of_changed_lines_is_the_rate(kind: str):
    assert share_of_changed(TEXTS, add_noise(TEXTS, NoiseConfig(**{kind: 0.2}), seed=5)) == pytest.approx(0.2, abs=0.03)
    assert add_noise(TEXTS, NoiseConfig(), seed=5) == TEXTS


def test_case_changes_nothing_but_case_in_three_ways():
    noisy = add_noise(TEXTS, NoiseConfig(case=1.0), seed=5)
    assert [text.lower() for text in noisy] == [text.lower() for text in TEXTS]
    lower, upper = (sum(map(check, noisy)) for check in (str.islower, str.isupper))
    every_word = sum(text.startswith("The Cat Number") for text in noisy)
    assert lower + upper + every_word == len(TEXTS)
    assert min(lower, upper, every_word) > 0.28 * len(TEXTS)


def test_a_missing_mark_is_the_only_change_and_no_line_becomes_empty():
    noisy = add_noise([*TEXTS, "?", "..."], NoiseConfig(punctuation=1.0), seed=5)
    assert noisy == [*(text[:-1] for text in TEXTS), "?", "..."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Really?!", "Really"),
        ("Well…", "Well"),
        ('He said "No."', 'He said "No"'),
        ("(Yes.)", "(Yes)"),
        ("Version 2.0 is here", "Version 2.0 is here"),
    ],
)
def test_the_final_mark_goes_also_before_a_quotation_mark(text: str, expected: str):
    assert drop_final_mark(text, random.Random(1)) == expected


def kind_of_typo(before: str, after: str) -> str:
    """Name the one typing error that makes a word another one."""
    if len(after) == len(before) - 1:
        return "drop"
    if len(after) == len(before) + 1:
        position = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
        assert after[position] == after[position - 1]
        assert after[:position] + after[position + 1 :] == before
        return "double"
    wrong = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    if len(wrong) == 2:
        assert after[wrong[0]] + after[wrong[1]] == before[wrong[1]] + before[wrong[0]]
        assert wrong[1] == wrong[0] + 1
        return "swap"
    assert len(wrong) == 1
    assert after[wrong[0]].lower() in _NEIGHBOURS[before[wrong[0]].lower()]
    assert after[wrong[0]].isupper() == before[wrong[0]].isupper()
    return "neighbour"


def test_a_typing_error_is_one_of_four_kinds_in_one_word():
    rng, kinds = random.Random(3), []
    for text in TEXTS[:800]:
        noisy = mistype(text, rng)
        changed = [words for words in zip(text.split(), noisy.split(), strict=True) if words[0] != words[1]]
        assert len(changed) == 1
        kinds.append(kind_of_typo(*changed[0]))
    assert all(0.15 < kinds.count(kind) / 800 < 0.35 for kind in ("drop", "double", "swap", "neighbour"))


def test_long_sentences_have_an_error_in_every_ten_words_and_numbers_none():
    noisy = mistype(" ".join(["mitten"] * 35), random.Random(3))
    assert sum(word != "mitten" for word in noisy.split()) == 4
    assert mistype("12 345 6", random.Random(3)) == "12 345 6"


@pytest.mark.parametrize("tag", ["<bt>", "bt2"])
def test_tags_and_words_of_the_tokenizer_do_not_change(tag: str):
    for seed in range(20):
        (noisy,) = add_noise([f"{tag} it is a blue ball"], NoiseConfig(case=1.0, typos=1.0), seed, {"bt2"})
        assert noisy.split()[0] == tag
        assert noisy != f"{tag} it is a blue ball"


def test_a_rate_is_a_share():
    with pytest.raises(UserError, match=r"training.noise.typos=1.5 must be in \[0, 1\]"):
        NoiseConfig(typos=1.5)
