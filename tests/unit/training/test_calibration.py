"""Confidences: what is learnt from translations with references, and how far it came true."""

import random

import pytest

from seq2seq.settings.bundle import Calibration
from seq2seq.training.calibration import are_acceptable, bar, calibrate, measure_reliability, reliability
from seq2seq.translate.types import Translation
from tests.refusing import refuses

TRUE = Calibration(bias=1.0, mean=3.0, total=0.1, length=0.5)


def drawn(count: int, seed: int) -> tuple[list[tuple[float, int]], list[bool]]:
    """Hypotheses, and outcomes that follow the probabilities of TRUE."""
    rng = random.Random(seed)
    lengths = [rng.randrange(2, 30) for _ in range(count)]
    hypotheses = [(-rng.random() * length, length) for length in lengths]
    return hypotheses, [rng.random() < TRUE.confidence(*one) for one in hypotheses]


BAD = [(-357.6, 44), (-394.3, 178)]  # two long translations that are all wrong


@pytest.mark.parametrize(("count", "bad", "tolerance"), [(20_000, [], 0.02), (500, BAD, 0.15)])
def test_the_law_of_the_outcomes_is_found_again_whatever_two_translations_say(count, bad, tolerance) -> None:
    hypotheses, outcomes = drawn(count, 1)
    found = calibrate([*hypotheses, *bad], [*outcomes, *[False] * len(bad)])
    assert found is not None
    for one in ((-1.0, 5), (-9.0, 12), (-3.0, 25)):
        assert found.confidence(*one) == pytest.approx(TRUE.confidence(*one), abs=tolerance)
    assert found.confidence(-1e9, 3) == 0.0
    others, came_true = drawn(20_000, 2)
    assert reliability([found.confidence(*one) for one in others], came_true).error < 2.5 * tolerance


def test_few_translations_and_a_model_that_is_always_right_teach_nothing() -> None:
    hypotheses, _ = drawn(300, 1)
    for wrong, is_known in ((0, False), (19, False), (20, True), (280, True), (281, False)):
        found = calibrate(hypotheses, [False] * wrong + [True] * (300 - wrong))
        assert (found is not None) is is_known, wrong
    hypotheses, outcomes = drawn(199, 1)
    assert calibrate(hypotheses, outcomes) is None


def test_the_error_is_the_mean_distance_of_the_bins() -> None:
    found = reliability([0.9] * 10 + [0.35] * 10, [True] * 8 + [False] * 2 + [True] * 4 + [False] * 6)
    assert [(one.translations, one.confidence, one.acceptable) for one in found.bins] == [
        (10, pytest.approx(0.35), 0.4),
        (10, pytest.approx(0.9), 0.8),
    ]
    assert (found.error, found.acceptable) == (pytest.approx(0.5 * 0.05 + 0.5 * 0.1), 0.6)


def test_the_coverage_is_the_largest_share_that_is_precise_enough() -> None:
    found = reliability([0.99] * 19 + [0.9] + [0.5] * 20, [True] * 19 + [False] + [True] * 20)
    assert (found.coverage, found.threshold) == (1.0, 0.5)  # 39 of 40
    found = reliability([0.9] * 20 + [0.5] * 20, [True] * 19 + [False] + [False] * 20)
    assert (found.coverage, found.threshold) == (0.5, 0.9)
    assert "50% have a confidence of 0.90 or more, and 95% of these are acceptable" in found.summary()
    found = reliability([0.9, 0.9], [True, False])  # equal confidences cannot be parted
    assert (found.coverage, found.threshold) == (0.0, None)
    assert "no confidence is so high that 95% are" in found.summary()


def test_a_bar_is_as_long_as_the_share_and_marks_the_confidence() -> None:
    (one,) = reliability([0.25] * 4, [True, True, False, False]).bins
    assert bar(one, width=8) == "██◆█····"


def test_texts_without_words_do_not_count() -> None:
    translations = [Translation("Una bola azul.", -1.0, -0.2, [], confidence=0.75), Translation("", 0.0, 0.0, [])]
    found = measure_reliability(translations, ["Una bola azul.", "Un perro."])
    assert (found.translations, found.acceptable, found.error) == (1, 1.0, 0.25)
    refuses("no text has words: there is no confidence to compare", measure_reliability, translations[1:], [""])


def test_acceptable_is_what_shares_enough_with_the_reference() -> None:
    reference = "El gato negro bebió la leche."
    assert are_acceptable([reference, "El gato bebió la leche.", "Hace frío."], [reference] * 3) == [True, True, False]
