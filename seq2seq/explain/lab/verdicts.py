"""The verdict of the runs on each claim, by a rule stated before them."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from seq2seq.explain.lab.claims import Claim
from seq2seq.explain.lab.runs import Lab, Run
from seq2seq.extras import needing

RULE = (
    "A claim is **borne out** if the 95 % interval of the difference of means (Welch's, over seeds) lies wholly on the "
    "side that it claims, **contradicted** if it lies wholly on the other, and **open** if it includes 0. Of one run "
    "each there is no interval and no verdict, only a difference. Where nothing is claimed the verdict says what was "
    "found. No correction is made for the number of claims: of twenty differences that do not exist, one is expected "
    "to look as if it did."
)


@dataclass(frozen=True)
class Measured:
    """A mean over seeds and its standard deviation (None: of one run)."""

    mean: float
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Measured":
        """Measure some values."""
        return cls(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Difference:
    """One mean minus another, with Welch's 95 % interval of the true difference."""

    value: float
    low: float
    high: float

    def direction(self) -> str:
        """Say "lower" or "higher" if the interval is on one side of 0, else "open"."""
        return "lower" if self.high < 0 else "higher" if self.low > 0 else "open"


@dataclass(frozen=True)
class Verdict:
    """A claim and the measurements that decide it."""

    claim: Claim
    ours: Measured
    theirs: Measured
    difference: Difference | None
    word: str  # borne out | contradicted | open | no verdict (too few runs) | lower | higher


def judge(claim: Claim, lab: Lab) -> Verdict | None:
    """The verdict of the runs on a claim; None: one of its two experiments has no run.

    Raises:
        UserError: SciPy is not installed (extra `lab`).
    """
    ours, theirs = (_values(lab.of(name), claim.measure) for name in (claim.experiment, claim.against))
    if not ours or not theirs:
        return None
    difference = compare(ours, theirs)
    return Verdict(claim, Measured.of(ours), Measured.of(theirs), difference, _word(claim, difference))


def compare(ours: Sequence[float], theirs: Sequence[float]) -> Difference | None:
    """The difference of two means by Welch's t-test (unequal variances); None: too few values for an interval.

    Raises:
        UserError: SciPy is not installed (extra `lab`).
    """
    if min(len(ours), len(theirs)) < 2:
        return None
    value = fmean(ours) - fmean(theirs)
    if len(set(ours)) == len(set(theirs)) == 1:  # SciPy divides by the variances
        return Difference(value, value, value)
    with needing("lab", "the lab's report"):
        from scipy.stats import ttest_ind
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)  # where one side's values are all equal
        interval = ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    return Difference(value, float(interval.low), float(interval.high))


def _values(runs: Sequence[Run], measure: str) -> list[float]:
    return [run.bleu if measure == "bleu" else run.validation_loss for run in runs]


def _word(claim: Claim, difference: Difference | None) -> str:
    if difference is None:
        return "no verdict"
    found = difference.direction()
    if found == "open" or claim.direction == "either":
        return found
    return "borne out" if found == claim.direction else "contradicted"
