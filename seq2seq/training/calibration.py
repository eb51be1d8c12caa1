"""Confidence: the probability that a translation is acceptable, learnt from translations with a reference (Platt 1999).

Acceptable is a translation whose sentence chrF++ against its reference is at least ACCEPTABLE. A reference is one of
many right translations, so some that a reader would accept do not count.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.table import Table
from sacrebleu.metrics.chrf import CHRF

from seq2seq.errors import UserError
from seq2seq.settings.bundle import Calibration, calibration_features
from seq2seq.translate.types import Translation

ACCEPTABLE = 40.0  # sentence chrF++
LEAST = 200  # translations to learn from
LEAST_OF_EACH = 20  # of them acceptable, and not: a model that is always right on them learns only to trust itself
BINS = 10  # of the reliability diagram
PRECISION = 0.95  # share of acceptable translations for which the coverage is given
_STEPS = 50  # of Newton's method
_RIDGE = 0.1  # of the weights, so that they stay finite if they can part both kinds of translations


@dataclass(frozen=True)
class Bin:
    """The translations whose confidence lies in one tenth of the scale."""

    translations: int
    confidence: float  # mean
    acceptable: float  # share


@dataclass(frozen=True)
class Reliability:
    """How well confidences agree with the shares of acceptable translations.

    Attributes:
        translations: their number.
        acceptable: the share of acceptable translations.
        error: expected calibration error (Naeini et al. 2015): the mean distance, over translations, between a bin's
            mean confidence and its share of acceptable translations.
        coverage: the largest share of translations, the most confident, of which PRECISION are acceptable.
        threshold: the least confidence of these; None: there are none.
        bins: the tenths that have translations.
    """

    translations: int
    acceptable: float
    error: float
    coverage: float
    threshold: float | None
    bins: list[Bin]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)

    def summary(self) -> str:
        """Return the numbers that describe all bins, in words."""
        words = f"{self.acceptable:.0%} of {self.translations:,} translations are acceptable; expected calibration "
        words += f"error {self.error:.1%}; "
        if self.threshold is None:
            return words + f"no confidence is so high that {PRECISION:.0%} are"
        words += f"{self.coverage:.0%} have a confidence of {self.threshold:.2f} or more, and "
        return words + f"{PRECISION:.0%} of these are acceptable"

    def report(self) -> list[Table | str]:
        """Return the reliability diagram as a table with a bar for each bin, and its summary."""
        table = Table("confidence", "translations", "acceptable", "")
        for bin_ in self.bins:
            table.add_row(f"{bin_.confidence:.0%}", f"{bin_.translations:,}", f"{bin_.acceptable:.0%}", bar(bin_))
        return [table, f"{self.summary()}; ◆ marks the confidence"]


def bar(bin_: Bin, width: int = 30) -> str:
    """Return a bin's share of acceptable translations as a bar, with a mark at the bin's mean confidence."""
    cells = ["█" if index < round(bin_.acceptable * width) else "·" for index in range(width)]
    cells[min(int(bin_.confidence * width), width - 1)] = "◆"
    return "".join(cells)


def are_acceptable(translations: Sequence[str], references: Sequence[str]) -> list[bool]:
    """Return for each translation whether it is acceptable."""
    chrf = CHRF(word_order=2)
    pairs = zip(translations, references, strict=True)
    return [chrf.sentence_score(translation, [reference]).score >= ACCEPTABLE for translation, reference in pairs]


def calibrate(hypotheses: Sequence[tuple[float, int]], acceptable: Sequence[bool]) -> Calibration | None:
    """Fit a logistic regression by Newton's method; None: there are too few translations, or too few of one kind.

    hypotheses are each translation's sum of log-probabilities (nats) and number of tokens, EOS included.
    """
    if len(hypotheses) < LEAST or not LEAST_OF_EACH <= sum(acceptable) <= len(acceptable) - LEAST_OF_EACH:
        return None
    features = np.array([calibration_features(*hypothesis) for hypothesis in hypotheses])
    outcomes, weights = np.array(acceptable, dtype=float), np.zeros(features.shape[1])

    def loss(weights: np.ndarray) -> float:
        logits = features @ weights
        return float((np.logaddexp(0, logits) - outcomes * logits).sum() + _RIDGE / 2 * weights @ weights)

    for _ in range(_STEPS):
        probabilities = 0.5 * (1 + np.tanh(features @ weights / 2))
        gradient = features.T @ (probabilities - outcomes) + _RIDGE * weights
        curvature = (features.T * (probabilities * (1 - probabilities))) @ features + _RIDGE * np.eye(len(weights))
        step = np.linalg.solve(curvature, gradient)
        while loss(weights - step) > loss(weights) and np.abs(step).max() > 1e-9:  # a whole step can lead far away
            step /= 2
        weights -= step
    return Calibration(*(round(float(weight), 6) for weight in weights))


def measure_reliability(translations: Sequence[Translation], references: Sequence[str]) -> Reliability:
    """Compare the confidences of translations with what their references say; texts without words do not count."""
    counted = [pair for pair in zip(translations, references, strict=True) if pair[0].confidence is not None]
    if not counted:
        raise UserError("no text has words: there is no confidence to compare")
    acceptable = are_acceptable([best.text for best, _ in counted], [reference for _, reference in counted])
    return reliability([best.confidence or 0.0 for best, _ in counted], acceptable)


def reliability(confidences: Sequence[float], acceptable: Sequence[bool]) -> Reliability:
    """Compare confidences with whether the translations are acceptable."""
    confidence, outcomes = np.array(confidences), np.array(acceptable, dtype=float)
    of_bin = np.minimum((confidence * BINS).astype(int), BINS - 1)
    bins = [
        Bin(int(chosen.sum()), float(confidence[chosen].mean()), float(outcomes[chosen].mean()))
        for chosen in (of_bin == index for index in range(BINS))
        if chosen.any()
    ]
    count = len(confidence)
    order = np.argsort(-confidence, kind="stable")
    precisions = np.cumsum(outcomes[order]) / np.arange(1, count + 1)
    is_last_of_equals = np.append(confidence[order][1:] < confidence[order][:-1], True)
    covered = int(max(np.flatnonzero((precisions >= PRECISION) & is_last_of_equals), default=-1)) + 1
    return Reliability(
        count,
        float(outcomes.mean()),
        sum(bin_.translations * abs(bin_.confidence - bin_.acceptable) for bin_ in bins) / count,
        covered / count,
        float(confidence[order][covered - 1]) if covered else None,
        bins,
    )
