"""Read run folders without PyTorch: checkpoints, metrics, scores, size."""

import contextlib
import csv
import errno
import math
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seq2seq.errors import StoppedError, UserError
from seq2seq.settings.loading import load_config
from seq2seq.settings.missing_packages import resume_command
from seq2seq.storage.atomic import WORK, holder_of, is_held, replacing, unlock
from seq2seq.training.run_state import COMPLETE, list_checkpoints, list_resumable, read_results, state_of, step_of

LOCK = "lock"  # in a run's folder: the process that trains in it holds the lock
_NUMBERS = ("loss", "seconds", "val_loss", "val_bleu")  # columns of metrics.csv
_STEP = re.compile(r"\d{1,15}")


@dataclass(frozen=True)
class Validation:
    """The best validation of a run by training.monitor."""

    updates: int
    loss: float | None = None  # nats per target token
    bleu: float | None = None


@dataclass(frozen=True)
class SavedRun:
    """Summary of a run's folder."""

    name: str  # path below runs/, with the run's series if it has one
    folder: Path
    state: str
    holder: str | None = None  # the process that trains there
    updates: int = 0
    seconds: float | None = None  # of training; None if the run left no record of it
    parameters: int | None = None
    monitor: str = "bleu"  # or loss: the measure by which its validations are compared
    validation: Validation | None = None
    tests: dict[str, float] = field(default_factory=dict)  # BLEU by test set
    bytes: int = 0
    changed: float = 0.0  # seconds since 1970


def interruption(folder: Path | None) -> str:
    """Return the message after Ctrl-C: what a run has saved (folder None: nothing yet), and how to resume it."""
    if folder is not None and list_checkpoints(folder / "checkpoints"):
        return f"interrupted; `{resume_command(folder)}` goes on from its last checkpoint"
    return "interrupted before the first update: nothing was saved; start again with the same command"


@contextlib.contextmanager
def running(folder: Path, *, is_resumed: bool = False) -> Iterator[None]:
    """Release the run's folder at the end; turn Ctrl-C and a full disk into errors that say how the run goes on.

    A run that saves nothing leaves no folder, except after resume=, whose settings are in the folder.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        raise StoppedError(interruption(folder)) from error
    except OSError as error:
        saved, again = "what the run has saved is whole", f"`{resume_command(folder)}`"
        if not is_resumed and is_untouched(folder):
            saved, again = "nothing was saved", "start again with the same command"
        what = f"cannot read or write {error.filename or folder}: {error.strerror or error}; {saved}"
        raise UserError(f"{what}: make room or give permission, then {again}") from error
    finally:
        _remove_untouched(folder, is_resumed)
        unlock(folder / LOCK)


def write_text(path: Path, text: str) -> None:
    """Write a text file, which is complete or as before at every moment."""
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")


def is_untouched(folder: Path) -> bool:
    """Return whether no run saved anything in the folder, so that its name is still free."""
    names = {path.name for path in folder.iterdir() if path.suffix != WORK}  # left by killed processes
    return names <= {"config.yaml", "checkpoints", LOCK} and not any((folder / "checkpoints").glob("*"))


def _remove_untouched(folder: Path, is_resumed: bool) -> None:
    if not is_resumed and is_held(folder / LOCK) and is_untouched(folder):
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # the folder holds something else
            folder.parent.rmdir()


def read_metrics(folder: Path) -> list[dict[str, str]]:
    """Return the rows of a run's metrics.csv without truncated and damaged rows; none if there is no file to read."""
    with contextlib.suppress(OSError):
        return [row for row in read_table(folder / "metrics.csv")[1] if _has_numbers(row)]
    return []


def losses_by_update(folder: Path) -> dict[int, float]:
    """Return the validation losses of a run by update, in order; its training losses if it has no validation."""
    rows = read_metrics(folder)
    return dict(sorted((curve(rows, "val_loss") or curve(rows, "loss")).items()))


def curve(rows: Sequence[Mapping[str, str]], name: str) -> dict[int, float]:
    """Return the values of a column of metrics.csv by update."""
    return {int(row["step"]): float(row[name]) for row in rows if row.get(name)}


def forget_after(path: Path, step: int, *, validated: bool) -> None:
    """Drop the rows after a step, and the row of its validation unless validated; the resumed run logs them again."""
    if path.exists():
        names, rows = read_table(path)
        steps = [(row, int(row["step"])) for row in rows]
        rewrite(path, names, [r for r, at in steps if at < step or (at == step and (validated or r.get("loss")))])


def read_table(path: Path) -> tuple[Sequence[str], list[dict[str, str]]]:
    """Return the columns, and the rows with a step up to the first damaged place, with bytes that are not UTF-8."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file", str(path))  # a pipe would wait
    names: Sequence[str] = ()
    rows: list[dict[str, str]] = []
    with (
        contextlib.suppress(FileNotFoundError, csv.Error),
        path.open(newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        reader = csv.DictReader(file, restval="")
        names = reader.fieldnames or ()
        rows.extend(row for row in reader if None not in row and _STEP.fullmatch(row.get("step", "")))
    return names, rows


def _has_numbers(row: Mapping[str, str]) -> bool:
    try:
        return all(math.isfinite(float(row[key])) for key in _NUMBERS if row.get(key))
    except ValueError:
        return False


def rewrite(path: Path, names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace a table's columns and rows; the file is complete at every moment."""
    with replacing(path) as draft, draft.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def best_validation(rows: Sequence[Mapping[str, str]], monitor: str) -> Validation | None:
    """Return the validation with the highest BLEU or the lowest loss, by monitor; the first of equal ones."""
    validations = [row for row in rows if row.get(f"val_{monitor}")]
    if not validations:
        return None
    best = (max if monitor == "bleu" else min)(validations, key=lambda row: float(row[f"val_{monitor}"]))
    loss, bleu = (float(best[key]) if best.get(key) else None for key in ("val_loss", "val_bleu"))
    return Validation(int(best["step"]), loss, bleu)


def best_value(folder: Path, monitor: str) -> float | None:
    """Return the value, BLEU or loss by monitor, of a run's best validation; None if nothing was validated."""
    best = best_validation(read_metrics(folder), monitor)
    return best and (best.bleu if monitor == "bleu" else best.loss)


def list_runs(runs: Path) -> list[SavedRun]:
    """Return all runs of a folder and of its series, the last changed first."""
    files = [*runs.glob("*/config.yaml"), *runs.glob("*/*/config.yaml")]
    folders = {path.parent for path in files if path.is_file()}
    own = sorted(folder for folder in folders if folder.parent not in folders and not folder.is_symlink())
    return sorted((read_run(folder, str(folder.relative_to(runs))) for folder in own), key=lambda run: -run.changed)


def read_run(folder: Path, name: str) -> SavedRun:
    """Return the summary of a run's folder; damaged files count as absent."""
    facts, rows, config = read_results(folder), read_metrics(folder), None
    with contextlib.suppress(UserError):  # settings that are absent, damaged or of another version
        config = load_config(str(folder), [], option="--runs ")
    holder = holder_of(folder / LOCK)
    saved = max(map(step_of, list_resumable(folder / "checkpoints")), default=0)
    state = state_of(folder, config, holder)
    is_complete, monitor = state == COMPLETE, config.training.monitor if config else "bleu"
    logged = int(rows[-1]["step"]) if rows else 0
    times = list(curve(rows, "seconds").values())
    files = _stat_files(folder)
    return SavedRun(
        name=name,
        folder=folder,
        state=state,
        holder=holder,
        updates=max(saved, logged) if holder else facts["updates"] if is_complete else saved,
        seconds=facts["training_seconds"] if is_complete else times[-1] if times else None,
        parameters=facts.get("parameters"),
        monitor=monitor,
        validation=best_validation(rows, monitor),
        tests=facts.get("tests", {}),
        bytes=sum({(s.st_dev, s.st_ino): s.st_size for s in files}.values()),  # hard links take no room
        changed=max((s.st_mtime for s in files), default=0.0),
    )


def _stat_files(folder: Path) -> list[os.stat_result]:
    """Return the status of every file in a folder and its folders; a file may be removed at any time."""
    statuses = []
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                statuses.append((Path(parent) / name).lstat())
    return statuses
