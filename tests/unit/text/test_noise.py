"""Noise changes the share of sources that it is told, in the ways it names, and nothing else."""

import random
import re

import pytest

from seq2seq.errors import UserError
from seq2seq.settings.training import NoiseConfig
from seq2seq.text.augment import _NEIGHBOURS, add_noise, change_case, drop_final_mark, mistype

TEXTS = [f"The cat number {i} drank all the milk{mark}" for i in range(1500) for mark in ".?"]


@pytest.mark.parametrize("kind", ["case", "typos", "punctuation"])
def test_the_share_of_changed_lines_is_the_rate(kind: str):
    noisy = add_noise(TEXTS, NoiseConfig(**{kind: 0.2}), seed=5)
    changed = sum(a != b for a, b in zip(TEXTS, noisy, strict=True)) / len(TEXTS)
    assert changed == pytest.approx(0.2, abs=0.025)
    assert add_noise(TEXTS, NoiseConfig(), seed=5) == TEXTS


def test_kinds_are_independent():
    noisy = add_noise(TEXTS, NoiseConfig(case=0.5, punctuation=0.5), seed=5)
    bare = [text[-1] not in ".?" for text in noisy]
    recased = [a.rstrip(".?") != b.rstrip(".?") for a, b in zip(TEXTS, noisy, strict=True)]
    both = sum(map(all, zip(bare, recased, strict=True))) / len(TEXTS)
    assert both == pytest.approx(0.25, abs=0.03)


def test_case_changes_nothing_but_case_in_three_ways():
    noisy = add_noise(TEXTS, NoiseConfig(case=1.0), seed=5)
    assert [text.lower() for text in noisy] == [text.lower() for text in TEXTS]
    lower, upper = (sum(map(check, noisy)) for check in (str.islower, str.isupper))
    every_word = sum(text.startswith("The Cat Number") for text in noisy)
    assert lower + upper + every_word == len(TEXTS)
    assert min(lower, upper, every_word) > 0.28 * len(TEXTS)


def test_a_missing_mark_is_the_only_change():
    noisy = add_noise(TEXTS, NoiseConfig(punctuation=1.0), seed=5)
    assert noisy == [text[:-1] for text in TEXTS]
    rng = random.Random(1)
    for text, expected in [
        ("Really?!", "Really"),
        ("Well…", "Well"),
        ('He said "No."', 'He said "No"'),
        ("(Yes.)", "(Yes)"),
        ("Version 2.0 is here", "Version 2.0 is here"),
        ("Stop.", "Stop"),
    ]:
        assert drop_final_mark(text, rng) == expected
    assert add_noise(["?", "..."], NoiseConfig(punctuation=1.0), seed=5) == ["?", "..."], "no line becomes empty"


def kind_of_typo(before: str, after: str) -> str:
    """Tell what one typing error did to a word."""
    if len(after) == len(before) - 1:
        return "drop"
    if len(after) == len(before) + 1:
        place = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
        assert after[place] == after[place - 1]
        assert after[:place] + after[place + 1 :] == before
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
        changed = [pair for pair in zip(text.split(), noisy.split(), strict=True) if pair[0] != pair[1]]
        assert len(changed) == 1
        kinds.append(kind_of_typo(*changed[0]))
    assert all(0.15 < kinds.count(kind) / 800 < 0.35 for kind in ("drop", "double", "swap", "neighbour"))


def test_long_sentences_have_an_error_in_every_ten_words_and_numbers_none():
    text = " ".join(["mitten"] * 35)
    noisy = mistype(text, random.Random(3))
    assert sum(word != "mitten" for word in noisy.split()) == 4
    assert mistype("12 345 6", random.Random(3)) == "12 345 6"


def test_keys_are_neighbours_of_each_other():
    assert set(_NEIGHBOURS["g"]) == set("rtyfhvbn")
    assert all(key in _NEIGHBOURS[other] for key, others in _NEIGHBOURS.items() for other in others)


def test_tags_are_never_spoilt():
    rng = random.Random(1)
    for _ in range(20):
        assert re.match("<bt> ", mistype("<bt> the cat", rng))
        assert re.match("<bt> ", change_case("<bt> the cat", rng))


def test_the_same_seed_spoils_the_same_lines():
    config = NoiseConfig(case=0.3, typos=0.3, punctuation=0.3)
    assert add_noise(TEXTS, config, seed=5) == add_noise(TEXTS, config, seed=5)
    assert add_noise(TEXTS, config, seed=5) != add_noise(TEXTS, config, seed=6)


def test_a_rate_is_a_share():
    with pytest.raises(UserError, match=r"training.noise.typos=1.5 must be in \[0, 1\]"):
        NoiseConfig(typos=1.5)


def test_words_of_the_tokenizer_do_not_change():
    config = NoiseConfig(case=1.0, typos=1.0)
    for seed in range(20):
        (spoilt,) = add_noise(["bt2 it is a blue ball"], config, seed, {"bt2"})
        assert spoilt.split()[0] == "bt2"
        assert spoilt != "bt2 it is a blue ball"
