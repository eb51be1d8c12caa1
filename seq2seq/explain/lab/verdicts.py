"""What the runs say of each claim, by a rule that was stated before them; writes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from seq2seq.explain.lab.claims import Claim
from seq2seq.explain.lab.runs import Lab, Run
from seq2seq.explain.lab.welch import Difference, welch

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
class Verdict:
    """A claim beside what was measured."""

    claim: Claim
    ours: Measured
    theirs: Measured
    difference: Difference | None
    word: str  # borne out | contradicted | open | no verdict (too few runs) | lower | higher


def judge(claim: Claim, lab: Lab) -> Verdict | None:
    """Hold a claim against the runs; None: there are none of the one or the other experiment."""
    ours, theirs = (_values(lab.of(name), claim.measure) for name in (claim.experiment, claim.against))
    if not ours or not theirs:
        return None
    difference = welch(ours, theirs)
    return Verdict(claim, Measured.of(ours), Measured.of(theirs), difference, _word(claim, difference))


def _values(runs: Sequence[Run], measure: str) -> list[float]:
    return [run.bleu if measure == "bleu" else run.validation_loss for run in runs]


def _word(claim: Claim, difference: Difference | None) -> str:
    if difference is None:
        return "no verdict"
    found = difference.direction()
    if found == "open" or claim.direction == "either":
        return found
    return "borne out" if found == claim.direction else "contradicted"
