"""Make a run's folder, once for all its processes, and reopen the folder on resume."""

import contextlib
import itertools
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import yaml

from seq2seq.data.prepare import corpus_digests
from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.storage.atomic import WORK, is_abandoned, is_held, lock, unlock
from seq2seq.training.checkpoint_files import describe_run, newest_checkpoint, require_same_run
from seq2seq.training.checkpoints import RECORD
from seq2seq.training.kept_checkpoints import link
from seq2seq.training.preflight import is_done
from seq2seq.training.processes import broadcast_decision
from seq2seq.training.run_files import LOCK, forget_after, is_untouched, write_text
from seq2seq.training.run_state import NOTHING, checkpoint_name, state_of, step_of

_PLACES = ("", "checkpoints/", "translations/**/", "analysis/**/")  # not model/, which may hold large exports
PLANS = "plans-"  # and a machine's name: the folder of the plans that its processes share
_DRAFTS = (f"{PLANS}*", "checkpoints/*.tmp", *(folder + name for folder in _PLACES for name in (WORK, f".*{WORK}")))
_LOGS = ("metrics.csv", "loggers.json", "events.out.tfevents.*")  # of a run that was killed before it saved anything


def prepare_folder(config: Config, runs: Path, stem: str = "run") -> tuple[Config, Path, Path | None]:
    """Make or reopen a run's folder and write config.yaml; return config, the folder and, on resume, the checkpoint.

    A run without a name gets stem and the time as its name.
    """
    checkpoint = None
    try:
        if config.resume is not None:
            folder = Path(config.resume)
            checkpoint = Path(broadcast_decision("checkpoint", lambda: str(_reopen(config, folder))))
        else:
            folder = Path(broadcast_decision("run", lambda: _begin(config, runs, stem)))
    except OSError as error:
        advice = "choose a folder that you may write to and that has room"
        raise UserError(f"cannot write {error.filename or 'the run'}: {error.strerror}; {advice}") from error
    config.name = folder.name
    return config, folder, checkpoint


def _reopen(config: Config, folder: Path) -> Path:
    """Reopen a run's folder at its newest complete checkpoint; drop the rows of metrics.csv that were logged later."""
    with _taken(folder):
        checkpoint, values = newest_checkpoint(folder)
        is_done(config, folder, checkpoint)  # refused before anything is written
        record = values[RECORD]
        require_same_run(folder, record, describe_run(config, corpus_digests(config.data)))
        config.name = folder.name
        link(checkpoint, checkpoint.with_name(checkpoint_name(step_of(checkpoint))))  # a best one may have lost it
        forget_after(folder / "metrics.csv", step_of(checkpoint), validated=not record["validation_pending"])
        write_config(config, folder)
        return checkpoint


def _begin(config: Config, runs: Path, stem: str) -> str:
    """Make the folder of a new run; return its path."""
    folder = _unused_folder(runs, stem) if config.name is None else runs / config.name
    _require_nothing_saved(folder)
    with _taken(folder):
        _require_nothing_saved(folder)  # another process may have begun a run in between
        _remove(folder, _LOGS)
        config.name = folder.name
        write_config(config, folder)
        return str(folder)


def _require_nothing_saved(folder: Path) -> None:
    is_run = (folder / "config.yaml").exists()  # other folders may hold anything, such as the runs of a series
    if folder.exists() and not (is_untouched(folder) or (is_run and state_of(folder, None) == NOTHING)):
        raise UserError(f"{folder} is a run already: choose another name=, or go on with resume={folder}")


def _unused_folder(runs: Path, stem: str) -> Path:
    """Make a folder named after stem and the time, which no other process makes; return it."""
    name = stem + time.strftime("-%Y%m%d-%H%M%S")
    for suffix in itertools.count(1):
        folder = runs / (f"{name}-{suffix}" if suffix > 1 else name)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise AssertionError


@contextlib.contextmanager
def _taken(folder: Path) -> Iterator[None]:
    """Make the folder, lock it, and remove drafts of killed processes; refuse one in which another process trains.

    If the block fails, the lock is released: the process may live on, and the user try again.
    """
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    if not is_held(folder / LOCK):
        lock(folder / LOCK, f"{folder} is being trained in", "wait for it, stop it, or choose another name=")
    try:
        _remove(folder, _DRAFTS)
        yield
    except BaseException:
        unlock(folder / LOCK)
        raise


def _remove(folder: Path, patterns: Iterable[str]) -> None:
    for path in [path for pattern in patterns for path in folder.glob(pattern)]:
        if not path.is_dir() or path.is_symlink():
            path.unlink(missing_ok=True)
        elif is_abandoned(path):
            shutil.rmtree(path)


def write_config(config: Config, folder: Path) -> None:
    """Write all settings to config.yaml."""
    write_text(folder / "config.yaml", yaml.safe_dump(asdict(config), sort_keys=False, allow_unicode=True))


def point_latest(folder: Path) -> None:
    """Point runs/latest at a run that is about to train."""
    draft = folder / "checkpoints" / "latest.tmp"
    draft.unlink(missing_ok=True)  # of a killed process
    draft.symlink_to(folder.name)
    draft.replace(folder.parent / "latest")
