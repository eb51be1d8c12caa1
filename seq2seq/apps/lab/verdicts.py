"""The claim of each ablation, stated before any run, and the verdict of the runs on each claim.

Each experiment has a file conf/experiment/lab/NAME.yaml; the text of its claim is in the header of the file.
"""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from seq2seq.apps.lab.runs import Lab
from seq2seq.errors import UserError
from seq2seq.settings.compose import home
from seq2seq.settings.missing_packages import require_package

BASELINE = "baseline"
RULE = (
    "A claim is **borne out** if the 95 % interval of the difference of means (Welch's, over seeds) lies wholly on the "
    "side that it claims, **contradicted** if it lies wholly on the other, and **open** if it includes 0. Of one run "
    "each there is no interval and no verdict, only a difference. Where nothing is claimed the verdict says what was "
    "found. No correction is made for the number of claims: of twenty differences that do not exist, one is expected "
    "to look as if it did."
)
# experiment, direction, measure (default: BLEU) and experiment to compare with (default: the baseline)
_CLAIMS = (
    ("no_positions", "lower"),
    ("shared_query_key", "lower"),
    ("no_queries", "lower"),
    ("unscaled", "lower"),
    ("heads_1", "lower"),
    ("heads_2", "lower"),
    ("heads_8", "higher"),
    ("no_causal_mask", "lower", "validation_loss"),
    ("no_causal_mask", "lower"),
    ("no_cross_attention", "lower"),
    ("no_warmup", "lower"),
    ("no_dropout", "lower"),
    ("pre_norm", "either"),
    ("rotary", "higher"),
    ("swiglu", "higher"),
    ("no_biases", "either"),
    ("modern", "higher"),
    ("lstm_attention", "lower"),
    ("lstm_no_attention", "lower", "bleu", "lstm_attention"),
)


@dataclass(frozen=True)
class Claim:
    """The expected difference of a measure between two experiments with equal data, updates and seeds.

    direction: "lower" or "higher" than the measure of `against`; "either" if nothing is claimed.
    measure: "bleu" of the test set, or "validation_loss" (nats per target token, teacher-forced).
    """

    experiment: str
    text: str
    direction: str
    measure: str = "bleu"
    against: str = BASELINE


@dataclass(frozen=True)
class Measured:
    """A mean over seeds and its standard deviation (None for one run)."""

    mean: float
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Measured":
        """Return the mean, deviation and number of values."""
        return cls(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Difference:
    """One mean minus another, with Welch's 95 % interval of the true difference."""

    value: float
    low: float
    high: float

    def direction(self) -> str:
        """Return "lower" or "higher" if the interval is on one side of 0, else "open"."""
        return "lower" if self.high < 0 else "higher" if self.low > 0 else "open"


@dataclass(frozen=True)
class Verdict:
    """A claim and the measurements that decide it."""

    claim: Claim
    ours: Measured
    theirs: Measured
    difference: Difference | None
    word: str  # borne out | contradicted | open | no verdict (too few runs) | lower | higher


def read_claims() -> list[Claim]:
    """Return the claims in the order of the report, with their texts from conf/experiment/lab/."""
    folder, claims = home() / "conf" / "experiment" / "lab", []
    if not folder.is_dir():
        raise UserError(f"there is no {folder}: set the environment's SEQ2SEQ_HOME to the project's folder")
    for experiment, *rest in _CLAIMS:
        header = (folder / f"{experiment}.yaml").read_text(encoding="utf-8")
        (text,) = re.findall(r"^# Claim: (.*)$", header, re.MULTILINE)
        claims.append(Claim(experiment, text, *rest))
    return claims


def judge(claim: Claim, lab: Lab) -> Verdict | None:
    """Return the verdict of the runs on a claim, or None if one of the two experiments has no run."""
    ours, theirs = ([getattr(run, claim.measure) for run in lab.of(name)] for name in (claim.experiment, claim.against))
    if not ours or not theirs:
        return None
    difference = compare(ours, theirs)
    word = "no verdict" if difference is None else difference.direction()
    if word in ("lower", "higher") and claim.direction != "either":
        word = "borne out" if word == claim.direction else "contradicted"
    return Verdict(claim, Measured.of(ours), Measured.of(theirs), difference, word)


def compare(ours: Sequence[float], theirs: Sequence[float]) -> Difference | None:
    """Return the difference of two means by Welch's t-test (unequal variances); None: too few values."""
    if min(len(ours), len(theirs)) < 2:
        return None
    value = fmean(ours) - fmean(theirs)
    if len(set(ours)) == len(set(theirs)) == 1:  # both variances are 0, and SciPy would divide by them
        return Difference(value, value, value)
    with require_package("lab", "the lab's report"):
        from scipy.stats import ttest_ind
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)  # all values of one side are equal
        interval = ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    return Difference(value, float(interval.low), float(interval.high))
