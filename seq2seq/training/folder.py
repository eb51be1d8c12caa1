"""A run's folder: made once however many processes train, found again to resume."""

import itertools
import time
from pathlib import Path

import yaml

from seq2seq.errors import UserError
from seq2seq.settings.config import Config, to_plain
from seq2seq.text.prepare import corpus_digests
from seq2seq.training.checkpoints import RECORD
from seq2seq.training.lock import lock_folder
from seq2seq.training.metrics_file import forget_after
from seq2seq.training.processes import agree
from seq2seq.training.refusals import refuse_spent
from seq2seq.training.restore import describe_run, newest_checkpoint, require_same_run
from seq2seq.training.saved import is_untouched, point, step_of


def prepare_folder(config: Config, runs: Path, stem: str = "run") -> tuple[Config, Path, Path | None]:
    """The run's folder, made and described by config.yaml; on resume, also its newest checkpoint.

    A run without a name gets stem and the time as its name.

    Raises:
        UserError: the folder is taken or cannot be written, or there is nothing to resume.
    """
    if config.resume is not None:
        return resume_folder(config, Path(config.resume))
    folder = Path(agree("run", lambda: _begin(config, runs, stem)))
    config.name = folder.name
    return config, folder, None


def resume_folder(config: Config, folder: Path) -> tuple[Config, Path, Path]:
    """Open the folder at its newest whole checkpoint; drop rows that were logged later.

    Raises:
        UserError: there is no checkpoint, the run is complete or still going on, or its texts or settings are not what
            they were.
    """
    checkpoint = Path(agree("checkpoint", lambda: str(_reopen(config, folder))))
    config.name = folder.name
    return config, folder, checkpoint


def _reopen(config: Config, folder: Path) -> Path:
    """Prepare a run's folder for resuming; return the checkpoint for all processes."""
    if not (folder / "checkpoints").is_dir():
        raise UserError(f"resume={folder}: there is no run (no {folder / 'checkpoints'})")
    _take(folder)
    checkpoint, values = newest_checkpoint(folder)
    step = step_of(checkpoint)
    refuse_spent(config, folder, step)
    record = values[RECORD]
    require_same_run(folder, record, describe_run(config, corpus_digests(config.data)))
    config.name = folder.name
    for draft in (folder / "checkpoints").glob("*.tmp"):
        draft.unlink()
    forget_after(folder / "metrics.csv", step, validated=not record["validation_pending"])
    _describe(config, folder)
    return checkpoint


def _begin(config: Config, runs: Path, stem: str) -> str:
    """Make the run's folder; the path that all processes are to know."""
    folder = _new_folder(config, runs, stem)
    config.name = folder.name
    _take(folder)
    if not is_untouched(folder):
        raise UserError(f"{folder} is a run already: choose another name=, or go on with resume={folder}")
    _describe(config, folder)
    return str(folder)


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
    """Write config.yaml.

    Raises:
        UserError: it cannot be written.
    """
    try:
        write_config(config, folder)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}; choose a folder that you may write to") from error


def point_latest(folder: Path) -> None:
    """Point runs/latest at a run that is about to train.

    Raises:
        UserError: it cannot be written.
    """
    link = folder.parent / "latest"
    try:
        point(link, folder.name)
    except OSError as error:
        raise UserError(f"cannot write {link}: {error.strerror}; choose a folder that you may write to") from error


def _new_folder(config: Config, runs: Path, stem: str) -> Path:
    if config.name is not None:
        folder = runs / config.name
        if folder.exists() and not is_untouched(folder):
            raise UserError(f"{folder} is a run already: choose another name=, or go on with resume={folder}")
        return folder
    name = stem + time.strftime("-%Y%m%d-%H%M%S")
    for suffix in itertools.count(1):
        folder = runs / (f"{name}-{suffix}" if suffix > 1 else name)
        try:
            folder.mkdir(parents=True)  # not one that another process makes at this moment
            return folder
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(
                f"cannot write {folder}: {error.strerror}; choose a folder that you may write to"
            ) from error
    raise AssertionError
