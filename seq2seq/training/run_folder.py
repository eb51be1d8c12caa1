"""Make a run's folder, once for all its processes, and reopen the folder on resume."""

import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

from seq2seq.errors import UserError
from seq2seq.settings.config import Config, to_plain
from seq2seq.text.prepare import corpus_digests
from seq2seq.training.checkpoint_files import describe_run, newest_checkpoint, require_same_run
from seq2seq.training.checkpoints import RECORD
from seq2seq.training.early_checks import refuse_spent
from seq2seq.training.lock import lock_folder
from seq2seq.training.processes import agree
from seq2seq.training.run_files import forget_after, is_untouched, point, step_of


def prepare_folder(config: Config, runs: Path, stem: str = "run") -> tuple[Config, Path, Path | None]:
    """Make or reopen a run's folder and write config.yaml; return config, the folder and, on resume, the checkpoint.

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
    """Reopen a run's folder at its newest complete checkpoint; drop the rows of metrics.csv that were logged later.

    Raises:
        UserError: there is no checkpoint, the run is complete or still running, or its texts or settings have changed.
    """
    checkpoint = Path(agree("checkpoint", lambda: str(_reopen(config, folder))))
    config.name = folder.name
    return config, folder, checkpoint


def _reopen(config: Config, folder: Path) -> Path:
    """Prepare a run's folder for resuming; return its checkpoint."""
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
    write_config(config, folder)
    return checkpoint


def _begin(config: Config, runs: Path, stem: str) -> str:
    """Make the folder of a new run; return its path."""
    folder = _unused_folder(runs, stem) if config.name is None else runs / config.name
    _require_untouched(folder)
    _take(folder)
    _require_untouched(folder)  # another process may have begun a run in between
    config.name = folder.name
    write_config(config, folder)
    return str(folder)


def _require_untouched(folder: Path) -> None:
    if folder.exists() and not is_untouched(folder):
        raise UserError(f"{folder} is a run already: choose another name=, or go on with resume={folder}")


def _unused_folder(runs: Path, stem: str) -> Path:
    """Make a folder named after stem and the time, which no other process makes; return it."""
    name = stem + time.strftime("-%Y%m%d-%H%M%S")
    for suffix in itertools.count(1):
        folder = runs / (f"{name}-{suffix}" if suffix > 1 else name)
        with _writing(folder), contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise AssertionError


def _take(folder: Path) -> None:
    """Make the folder and lock it; refuse one in which another process trains."""
    with _writing(folder):
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        lock_folder(folder)


def write_config(config: Config, folder: Path) -> None:
    """Write all settings to config.yaml.

    Raises:
        UserError: the file cannot be written.
    """
    text = yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True)
    draft = folder / "config.yaml.tmp"
    with _writing(folder):
        draft.write_text(text, encoding="utf-8")
        draft.replace(folder / "config.yaml")


def point_latest(folder: Path) -> None:
    """Point runs/latest at a run that is about to train.

    Raises:
        UserError: the link cannot be written.
    """
    link = folder.parent / "latest"
    with _writing(link):
        point(link, folder.name)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; choose a folder that you may write to") from error
