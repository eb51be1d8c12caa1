"""The runs of a lab, read from their folders; every missing or damaged run is reported as a problem."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seq2seq.errors import UserError, shorten
from seq2seq.settings.bundle import parse_json
from seq2seq.settings.config import used_settings
from seq2seq.settings.loading import load_config

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
    runs, problems = [], []
    for path in sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()):
        try:
            runs.append(read_run(path))
        except UserError as error:
            problems.append(str(error))
    runs = _without_copies(runs, problems)
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
        rows = _read_metrics(folder)
        if not (folder / "results.json").is_file():
            last = rows[-1]["step"] if rows else "0"
            raise UserError(
                f"{folder.name}: broken off or still going on, {last} updates of {config.trainer.max_steps}"
            )
        losses, validations = (
            [(int(row["step"]), float(row[key])) for row in rows if row.get(key)] for key in ("loss", "val_loss")
        )
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
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration, OSError, csv.Error) as error:
        raise UserError(f"{folder.name}: results.json or metrics.csv is damaged ({shorten(repr(error))})") from error
    if not all(math.isfinite(value) for value in (run.bleu, run.validation_loss, run.training_loss)):
        raise UserError(f"{folder.name}: its loss or BLEU is not a finite number: the training diverged")
    return run


def _without_copies(runs: Sequence[LabRun], problems: list[str]) -> list[LabRun]:
    """Return the first run of each experiment and seed; append a problem for each other run of them."""
    first: dict[tuple[str, int], LabRun] = {}
    copies = [run for run in runs if first.setdefault((run.experiment, run.seed), run) is not run]
    problems += [
        f"{run.experiment}: two runs with seed {run.seed}: the second, by folder name, is left out" for run in copies
    ]
    return list(first.values())


def _read_metrics(folder: Path) -> list[dict[str, str]]:
    try:
        with (folder / "metrics.csv").open(newline="") as file:
            return [row for row in csv.DictReader(file) if (row.get("step") or "").isdigit()]
    except FileNotFoundError:
        return []


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
