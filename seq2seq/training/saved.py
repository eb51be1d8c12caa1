"""What run folders hold, read without PyTorch: checkpoints, progress, scores, size."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seq2seq.errors import UserError
from seq2seq.extras import resume_command
from seq2seq.settings.loading import load_config
from seq2seq.training.lock import holder_of, is_held, lock_folder, release_folder
from seq2seq.training.metrics_file import read_metrics

COMPLETE, STOPPED, RUNNING, NOTHING = "complete", "stopped", "running", "nothing saved"
_LINKS = ("latest", "best")


@dataclass(frozen=True)
class Validation:
    """The best validation of a run, as training.monitor counts."""

    updates: int
    loss: float | None = None  # nats per target token
    bleu: float | None = None


@dataclass(frozen=True)
class SavedRun:
    """A run's folder in short."""

    name: str  # under runs/, with its series if it has one
    folder: Path
    state: str
    holder: str | None = None  # the process that trains there
    updates: int = 0
    seconds: float | None = None  # of training; None if the run left no record of it
    parameters: int | None = None
    validation: Validation | None = None
    tests: dict[str, float] = field(default_factory=dict)  # BLEU by test set
    bytes: int = 0
    changed: float = 0.0  # seconds since 1970


def checkpoint_name(step: int) -> str:
    """The file name after so many updates; names sort like numbers."""
    return f"step={step:07d}.ckpt"


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints to resume from, the oldest first."""
    paths = [path for path in folder.glob("step=*.ckpt") if path.stem.removeprefix("step=").isdecimal()]
    return sorted(paths, key=step_of)


def step_of(path: Path) -> int:
    """How many updates a checkpoint has seen, by its name."""
    return int(path.stem.removeprefix("step="))


def interruption(folder: Path | None) -> str:
    """What Ctrl-C left of a run (None: it had no folder yet), and how to go on."""
    if folder is not None and list_checkpoints(folder / "checkpoints"):
        return f"interrupted; `{resume_command(folder)}` goes on from its last checkpoint"
    return "interrupted before the first update: nothing was saved; start again with the same command"


@contextlib.contextmanager
def running(folder: Path) -> Iterator[None]:
    """Release the run's folder at the end, and make Ctrl-C an error that says what is left of the run.

    A run that is refused or interrupted before it has saved anything leaves no folder, except in a sweep, whose table
    shows it.

    Raises:
        UserError: Ctrl-C.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        message = interruption(folder)
        _remove_untouched(folder)
        raise UserError(message) from error
    except UserError:
        _remove_untouched(folder)
        raise
    finally:
        release_folder(folder)


def is_untouched(folder: Path) -> bool:
    """Whether a run stopped there before its first update, over its settings or data: the name is still free."""
    names = {path.name for path in folder.iterdir()}
    return names <= {"config.yaml", "config.yaml.tmp", "checkpoints", "lock", "sweep.json"} and not any(
        (folder / "checkpoints").glob("*")
    )


def _remove_untouched(folder: Path) -> None:
    if is_held(folder) and is_untouched(folder) and not (folder / "sweep.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # something else is there
            folder.parent.rmdir()


def best_validation(rows: Sequence[Mapping[str, str]], monitor: str) -> Validation | None:
    """The validation with the highest BLEU or the lowest loss, as monitor says; of equals the first."""
    found = [row for row in rows if row.get(f"val_{monitor}")]
    if not found:
        return None
    best = (max if monitor == "bleu" else min)(found, key=lambda row: float(row[f"val_{monitor}"]))
    loss, bleu = (float(best[key]) if best.get(key) else None for key in ("val_loss", "val_bleu"))
    return Validation(int(best["step"]), loss, bleu)


def list_runs(runs: Path) -> list[SavedRun]:
    """All runs of a folder and of its series, the last changed first."""
    found = [read_run(folder, str(folder.relative_to(runs))) for folder in _run_folders(runs)]
    return sorted(found, key=lambda run: -run.changed)


def _run_folders(runs: Path) -> Iterator[Path]:
    for folder in _folders_in(runs):
        if (folder / "config.yaml").is_file():
            yield folder
        else:
            yield from (inner for inner in _folders_in(folder) if (inner / "config.yaml").is_file())


def _folders_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())


def read_run(folder: Path, name: str) -> SavedRun:
    """A run's folder in short; damaged files count as absent."""
    facts, rows = _read_results(folder), read_metrics(folder)
    checkpoints, holder = list_checkpoints(folder / "checkpoints"), holder_of(folder)
    saved = step_of(checkpoints[-1]) if checkpoints else 0
    is_complete = bool(facts) and (not checkpoints or facts.get("updates") == saved)
    state = RUNNING if holder else COMPLETE if is_complete else STOPPED if checkpoints else NOTHING
    logged = int(rows[-1]["step"]) if rows else 0
    times = [float(row["seconds"]) for row in rows if row.get("seconds")]
    files = _files_in(folder)
    return SavedRun(
        name=name,
        folder=folder,
        state=state,
        holder=holder,
        updates=max(saved, logged) if holder else facts["updates"] if is_complete else saved,
        seconds=facts["training_seconds"] if is_complete else times[-1] if times else None,
        parameters=facts.get("parameters"),
        validation=best_validation(rows, monitor_of(folder)),
        tests=facts.get("tests", {}),
        bytes=sum({(s.st_dev, s.st_ino): s.st_size for s in files}.values()),  # further names of a file take no room
        changed=max((s.st_mtime for s in files), default=0.0),
    )


def _read_results(folder: Path) -> dict[str, Any]:
    """What a table needs of results.json; nothing if the file is absent or damaged."""
    try:
        facts = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        return {
            "updates": int(facts["updates"]),
            "training_seconds": float(facts["training_seconds"]),
            "parameters": int(facts["parameters"]),
            "tests": {name: float(scores["bleu"]["value"]) for name, scores in facts["scores"].items()},
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}


def monitor_of(folder: Path) -> str:
    """What a run's validations are compared by: bleu or loss."""
    try:
        return load_config(str(folder), [], option="--runs ").training.monitor
    except UserError:  # settings of another version, say: the run is listed all the same
        return "bleu"


def _files_in(folder: Path) -> list[os.stat_result]:
    paths = [Path(parent) / name for parent, _, names in os.walk(folder) for name in names]
    return [path.lstat() for path in paths if path.exists()]  # a running run may just have removed one


def require_idle(run: SavedRun) -> None:
    """Refuse a run that is going on.

    Raises:
        UserError: a process trains in its folder.
    """
    if run.holder is not None:
        raise UserError(f"{run.name} is running (process {run.holder}): stop it before removing it")


def remove_run(run: SavedRun) -> None:
    """Delete a run's folder, and let `latest` and `best` beside it point at no missing run.

    Raises:
        UserError: it is being trained in, or cannot be deleted.
    """
    require_idle(run)
    try:
        lock_folder(run.folder)  # against a run that begins at this moment
        shutil.rmtree(run.folder)
        for folder in {run.folder.parent, run.folder.parents[run.name.count("/")]}:
            _repair_links(folder)
    except OSError as error:
        raise UserError(f"{run.folder} cannot be removed ({error.strerror}): check who owns its files") from error


def _repair_links(runs: Path) -> None:
    """Point a `latest` that leads nowhere at the newest run that is left; remove a `best` that does."""
    for link in (runs / name for name in _LINKS):
        if link.is_symlink() and not link.exists():
            link.unlink()
            left = [run for run in list_runs(runs) if run.folder.parent == runs]
            if link.name == "latest" and left:
                point(link, left[0].folder.name)


def point(link: Path, name: str) -> None:
    """Make a link to the folder of this name beside it, in place of an earlier one.

    Raises:
        OSError: it cannot be written.
    """
    draft = link.with_name(f".{link.name}-{os.getpid()}")
    draft.unlink(missing_ok=True)
    draft.symlink_to(name)
    draft.replace(link)
