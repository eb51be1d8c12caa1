"""A run's folder: made once however many processes train, found again to resume."""

import csv
import json
import os
import time
from pathlib import Path

import yaml

from seq2seq.config import Config, to_plain
from seq2seq.errors import UserError
from seq2seq.text.prepare import corpus_digests
from seq2seq.training.checkpoints import RECORD, step_of
from seq2seq.training.lock import lock_folder
from seq2seq.training.processes import agree
from seq2seq.training.restore import describe_run, newest_checkpoint, require_same_run


def prepare_folder(config: Config, runs: Path) -> tuple[Config, Path, Path | None]:
    """The run's folder, made and described by config.yaml; on resume, also its newest checkpoint.

    Raises:
        UserError: the folder is taken or cannot be written, or there is nothing to resume.
    """
    if config.resume is not None:
        return resume_folder(config, Path(config.resume))
    folder = Path(agree("run", lambda: _begin(config, runs)))
    config.name = folder.name
    return config, folder, None


def resume_folder(config: Config, folder: Path) -> tuple[Config, Path, Path]:
    """The folder as its newest whole checkpoint left it: what was logged after that is forgotten.

    Raises:
        UserError: there is no checkpoint, the run is complete or still going on, or its texts or settings are not what
            they were.
    """
    checkpoint = Path(agree("checkpoint", lambda: str(_reopen(config, folder))))
    config.name = folder.name
    return config, folder, checkpoint


def _reopen(config: Config, folder: Path) -> Path:
    """Make a run's folder ready to be gone on with; the checkpoint that all processes are to take."""
    if not (folder / "checkpoints").is_dir():
        raise UserError(f"resume={folder}: there is no run (no {folder / 'checkpoints'})")
    _take(folder)
    checkpoint, values = newest_checkpoint(folder)
    step = step_of(checkpoint)
    if (folder / "results.json").exists() and _is_spent(config, folder / "results.json", step):
        raise UserError(
            f"resume={folder}: the run is complete after {step} updates; to train on, give it more, as "
            f"trainer.max_steps={2 * step}"
            + (" trainer.max_time=null" if config.trainer.max_time else "")
            + (" training.patience=0" if config.training.patience else "")
        )
    record = values[RECORD]
    require_same_run(folder, record, describe_run(config, corpus_digests(config.data)))
    config.name = folder.name
    for draft in (folder / "checkpoints").glob("*.tmp"):
        draft.unlink()
    _forget_after(folder / "metrics.csv", step, validated=not record["validation_pending"])
    _describe(config, folder)
    return checkpoint


def _begin(config: Config, runs: Path) -> str:
    """Make the run's folder; the path that all processes are to know."""
    folder = _new_folder(config, runs)
    config.name = folder.name
    _take(folder)
    if not _is_untouched(folder):
        raise UserError(f"{folder} is a run already: choose another name=, or go on with resume={folder}")
    _describe(config, folder)
    return str(folder)


def _is_spent(config: Config, results: Path, step: int) -> bool:
    """Whether the budget leaves nothing to be done: the results are of this very update, and no more are wanted."""
    duration, patience = config.trainer.duration(), config.training.patience
    try:
        facts = json.loads(results.read_text(encoding="utf-8"))
        seconds, was_patient = float(facts["training_seconds"]), int(facts["training"]["patience"])
        if int(facts["updates"]) != step:  # it was given more, and killed before the new results
            return False
        out_of_patience = bool(facts["out_of_patience"]) and 0 < patience <= was_patient
    except (OSError, ValueError, KeyError, TypeError):
        return False  # damaged: it is made again
    is_over = duration is not None and seconds >= duration.total_seconds()
    return step >= config.trainer.max_steps or is_over or out_of_patience


def _take(folder: Path) -> None:
    """Make the folder and lock it.

    Raises:
        UserError: it cannot be written, or another process trains there.
    """
    try:
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        lock_folder(folder)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}; choose a folder that you may write to") from error


def write_config(config: Config, folder: Path) -> None:
    """Write all settings to config.yaml."""
    text = yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True)
    draft = folder / "config.yaml.tmp"
    draft.write_text(text, encoding="utf-8")
    draft.replace(folder / "config.yaml")


def _describe(config: Config, folder: Path) -> None:
    """Write config.yaml and point runs/latest at the folder.

    Raises:
        UserError: it cannot be written.
    """
    try:
        write_config(config, folder)
        draft = folder.parent / f".latest-{os.getpid()}"
        draft.symlink_to(folder.name)
        draft.replace(folder.parent / "latest")
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}; choose a folder that you may write to") from error


def _is_untouched(folder: Path) -> bool:
    """Whether a run stopped there before its first update, over its settings or data: the name is still free."""
    names = {path.name for path in folder.iterdir()}
    return names <= {"config.yaml", "config.yaml.tmp", "checkpoints", "lock"} and not any(
        (folder / "checkpoints").glob("*")
    )


def _new_folder(config: Config, runs: Path) -> Path:
    if config.name is not None:
        folder = runs / config.name
        if folder.exists() and not _is_untouched(folder):
            raise UserError(f"{folder} is a run already: choose another name=, or go on with resume={folder}")
        return folder
    name = time.strftime(f"{config.experiment_name}-%Y%m%d-%H%M%S")
    folder, suffix = runs / name, 2
    while folder.exists():
        folder, suffix = runs / f"{name}-{suffix}", suffix + 1
    return folder


def _forget_after(metrics: Path, step: int, *, validated: bool) -> None:
    """Drop the rows of updates after the given one, and of its validation unless validated: they will be made again."""
    if not metrics.exists():
        return
    with metrics.open(newline="") as file:
        reader = csv.DictReader(file)
        rows = [row for row in reader if (row.get("step") or "").isdigit()]  # the last may be cut short
        names = reader.fieldnames or []
    kept = [
        row for row in rows if int(row["step"]) < step or (int(row["step"]) == step and (validated or row.get("loss")))
    ]
    draft = metrics.with_suffix(".tmp")
    with draft.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(kept)
    draft.replace(metrics)
