"""The runs of a lab, read from their folders, and their verdicts on claims that were stated before any run.

Every missing or damaged run is reported as a problem. Each experiment has a file conf/experiment/lab/NAME.yaml; the
text of its claim is in the header of the file.
"""

import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from seq2seq.errors import UserError, shorten
from seq2seq.settings.bundle import parse_json
from seq2seq.settings.compose import home
from seq2seq.settings.config import used_settings
from seq2seq.settings.loading import load_config
from seq2seq.settings.missing_packages import require_package
from seq2seq.training.run_files import curve, read_table

Curve = list[tuple[int, float]]  # (updates, nats per target token)
_RUN_SETTINGS = {  # that differ between runs of one experiment
    "name",
    "series",
    "experiment_name",
    "seed",
    "existing",
    "resume",
    "data.root",
    "trainer.progress_bar",
}
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
class LabRun:
    """A complete run: its experiment, scores and loss curves."""

    experiment: str
    seed: int
    bleu: float  # of the first test set
    test_set: str
    validation_loss: float  # nats per target token, teacher-forced, of the last validation
    training_loss: float  # nats per target token, of the last updates in the log
    updates: int
    pairs: int  # training sentence pairs
    parameters: int
    seconds: float
    hardware: str
    losses: Curve
    validation_losses: Curve
    settings: dict[str, Any] = field(default_factory=dict)  # by dotted key; without names, folders and seed


@dataclass(frozen=True)
class Lab:
    """All complete runs of a folder, and a line about each problem."""

    runs: list[LabRun]
    problems: list[str]

    def of(self, experiment: str) -> list[LabRun]:
        """Return an experiment's runs, by seed."""
        return sorted((run for run in self.runs if run.experiment == experiment), key=lambda run: run.seed)

    def differences(self, experiment: str, against: str) -> dict[str, Any]:
        """Return the settings of an experiment that differ from another experiment's and that its network uses."""
        ours, theirs = self.of(experiment), self.of(against)
        return _differing(ours[0].settings, theirs[0].settings) if ours and theirs else {}


def read_lab(folder: Path, expected: Sequence[str]) -> Lab:
    """Read every run in the folder; a missing experiment or seed of the expected experiments is a problem."""
    if not folder.is_dir():
        raise UserError(f"--runs {folder} is no folder: make the runs first (docs/lab.md has the commands)")
    by_seed: dict[tuple[str, int], LabRun] = {}
    problems = []
    for path in sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()):
        try:
            run = read_run(path)
        except UserError as error:
            problems.append(str(error))
            continue
        if by_seed.setdefault((run.experiment, run.seed), run) is not run:
            problems.append(f"{run.experiment}: two runs with seed {run.seed}: the second, by folder name, is left out")
    runs = list(by_seed.values())
    if not runs:
        reasons = f" ({'; '.join(problems)})" if problems else ""
        raise UserError(f"--runs {folder} has no complete run{reasons}: make the runs first (docs/lab.md)")
    seeds = {name: {run.seed for run in runs if run.experiment == name} for name in expected}
    if absent := [name for name, its_seeds in seeds.items() if not its_seeds]:
        problems.append(f"not run: {', '.join(absent)}")
    for name, its_seeds in seeds.items():
        missing = {run.seed for run in runs} - its_seeds
        if missing and its_seeds:
            problems.append(f"{name}: no complete run with seed {', '.join(map(str, sorted(missing)))}")
    return Lab(runs, problems + _unequal(runs))


def read_run(folder: Path) -> LabRun:
    """Read a complete run."""
    config = load_config(str(folder), [], option="--runs ")
    try:
        _, rows = read_table(folder / "metrics.csv")
        if not (folder / "results.json").is_file():
            last = rows[-1]["step"] if rows else "0"
            raise UserError(
                f"{folder.name}: broken off or still going on, {last} updates of {config.trainer.max_steps}"
            )
        losses, validations = (list(curve(rows, key).items()) for key in ("loss", "val_loss"))
        facts = parse_json((folder / "results.json").read_bytes(), Path(folder.name, "results.json"))
        test_set, scores = next(iter(facts["scores"].items()))
        run = LabRun(
            experiment=str(config.experiment_name),
            seed=config.seed,
            bleu=float(scores["bleu"]["value"]),
            test_set=test_set,
            validation_loss=validations[-1][1],
            training_loss=losses[-1][1],
            updates=int(facts["updates"]),
            pairs=int(facts["data"]["sizes"]["train"]),
            parameters=int(facts["parameters"]),
            seconds=float(facts["training_seconds"]),
            hardware=str(facts["hardware"]),
            losses=losses,
            validation_losses=validations,
            settings={key: value for key, value in used_settings(config).items() if key not in _RUN_SETTINGS},
        )
    except UserError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration, OSError) as error:
        raise UserError(f"{folder.name}: results.json or metrics.csv is damaged ({shorten(repr(error))})") from error
    if not all(math.isfinite(value) for value in (run.bleu, run.validation_loss, run.training_loss)):
        raise UserError(f"{folder.name}: its loss or BLEU is not a finite number: the training diverged")
    return run


def _differing(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in ours.items() if key not in theirs or theirs[key] != value}


def _unequal(runs: Sequence[LabRun]) -> list[str]:
    """Return a line for each group of runs that are not comparable with the others."""
    problems = []
    for attribute in ("updates", "pairs", "test_set"):
        groups: dict[object, list[str]] = {}
        for run in runs:
            groups.setdefault(getattr(run, attribute), []).append(f"{run.experiment}-{run.seed}")
        usual = max(groups, key=lambda value: len(groups[value]))
        if odd := [f"{', '.join(names)}: {value}" for value, names in groups.items() if value != usual]:
            problems.append(f"unequal {attribute.replace('_', ' ')} ({usual} elsewhere): {'; '.join(odd)}")
    first: dict[str, LabRun] = {}
    for run in runs:
        if other := _differing(run.settings, first.setdefault(run.experiment, run).settings):
            settings = ", ".join(f"{key}={value}" for key, value in other.items())
            problems.append(f"{run.experiment}-{run.seed}: {settings}, unlike seed {first[run.experiment].seed}")
    return problems


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
