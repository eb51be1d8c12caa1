"""Means of few numbers, compared; knows nothing of what they measure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """By how much one mean is above another, and where the true difference may be (Welch's interval)."""

    value: float
    low: float
    high: float

    def direction(self) -> str:
        """Say "lower" or "higher" if the interval is on one side of 0, else "open"."""
        return "lower" if self.high < 0 else "higher" if self.low > 0 else "open"


def welch(ours: Sequence[float], theirs: Sequence[float]) -> Difference | None:
    """The difference of two means with its 95 % interval, of unequal variances (Welch 1947); None: too few numbers.

    The degrees of freedom are Satterthwaite's.
    """
    if min(len(ours), len(theirs)) < 2:
        return None
    value = fmean(ours) - fmean(theirs)
    parts = [variance(numbers) / len(numbers) for numbers in (ours, theirs)]
    total = sum(parts)
    if total == 0:
        return Difference(value, value, value)
    counts = [len(ours), len(theirs)]
    freedom = total**2 / sum(part**2 / (count - 1) for part, count in zip(parts, counts, strict=True))
    reach = student_t(CONFIDENCE, freedom) * math.sqrt(total)
    return Difference(value, value - reach, value + reach)


def student_t(share: float, freedom: float) -> float:
    """The t within ± of which Student's distribution of so many degrees of freedom has this share, to 1e-6.

    With t = √ν tan θ the density is cosine^(ν-1) θ up to a constant, so the share is the ratio of two integrals.
    """
    grid = np.linspace(0, math.pi / 2, 200_001)
    density = np.cos(grid) ** (freedom - 1)
    within = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) / 2)))
    angle = float(np.interp(share, within / within[-1], grid))
    return math.sqrt(freedom) * math.tan(angle)
