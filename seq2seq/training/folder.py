"""A run's folder: made once however many processes train, found again to resume."""

import csv
import json
import os
import time
from pathlib import Path

import yaml

from seq2seq.config import Config, to_plain
from seq2seq.errors import UserError
from seq2seq.training.processes import agree, rank


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
    """The folder as its newest checkpoint left it: what was logged after that is forgotten.

    Raises:
        UserError: there is no checkpoint, or the run is complete.
    """
    checkpoints = sorted((folder / "checkpoints").glob("step=*.ckpt"))
    if not checkpoints:
        raise UserError(
            f"resume={folder}: no checkpoint in {folder / 'checkpoints'}, so there is nothing to go on from"
        )
    step = int(checkpoints[-1].stem.removeprefix("step="))
    if (folder / "results.json").exists() and _is_spent(config, folder / "results.json", step):
        raise UserError(
            f"resume={folder}: the run is complete after {step} updates; to train on, give it more, as "
            f"trainer.max_steps={2 * step}" + (" trainer.max_time=null" if config.trainer.max_time else "")
        )
    if rank() == 0:
        config.name = folder.name
        _forget_after(folder / "metrics.csv", step)
        _describe(config, folder)
    return config, folder, checkpoints[-1]


def _begin(config: Config, runs: Path) -> str:
    """Make the run's folder; the path that all processes are to know."""
    folder = _new_folder(config, runs)
    config.name = folder.name
    _describe(config, folder)
    return str(folder)


def _is_spent(config: Config, results: Path, step: int) -> bool:
    """Whether the budget leaves nothing to be done."""
    duration = config.trainer.duration()
    seconds = json.loads(results.read_text(encoding="utf-8"))["training_seconds"]
    return step >= config.trainer.max_steps or (duration is not None and seconds >= duration.total_seconds())


def write_config(config: Config, folder: Path) -> None:
    """Write all settings to config.yaml."""
    text = yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True)
    (folder / "config.yaml").write_text(text, encoding="utf-8")


def _describe(config: Config, folder: Path) -> None:
    """Write config.yaml and point runs/latest at the folder.

    Raises:
        UserError: it cannot be written.
    """
    try:
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        write_config(config, folder)
        draft = folder.parent / f".latest-{os.getpid()}"
        draft.symlink_to(folder.name)
        draft.replace(folder.parent / "latest")
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}; choose a folder that you may write to") from error


def _is_untouched(folder: Path) -> bool:
    """Whether a run stopped there before its first update, over its settings or data: the name is still free."""
    names = {path.name for path in folder.iterdir()}
    return names <= {"config.yaml", "checkpoints"} and not any((folder / "checkpoints").glob("*"))


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


def _forget_after(metrics: Path, step: int) -> None:
    """Drop the rows of updates after the given one: they will be made again."""
    if not metrics.exists():
        return
    with metrics.open(newline="") as file:
        reader = csv.DictReader(file)
        kept = [row for row in reader if int(row["step"]) <= step]
        names = reader.fieldnames or []
    draft = metrics.with_suffix(".tmp")
    with draft.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(kept)
    draft.replace(metrics)
