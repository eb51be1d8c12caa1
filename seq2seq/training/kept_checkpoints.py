"""What a run keeps of its checkpoints: the last ones, the best ones, and those that the last ones need on resume.

Each file is complete or absent, also after a power failure.
"""

import contextlib
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from seq2seq.errors import UserError
from seq2seq.settings.missing_packages import resume_command
from seq2seq.storage.atomic import link_or_copy
from seq2seq.training.run_state import checkpoint_name, list_checkpoints, step_of

_BEST = re.compile(r"best-step=\d{7,}-[a-z_]+=-?[0-9a-z.]+\.ckpt")


class DurableIO(TorchCheckpointIO):
    """Writes a checkpoint under another name, forces it to the disk, and renames it."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write one file."""
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _durable(path, path.with_name("saving.tmp")) as draft, draft.open("wb") as file:
                torch.save(checkpoint, file)
        except (OSError, RuntimeError) as error:
            reason = error if isinstance(error, OSError) else error.__context__  # torch.save replaces its file's error
            if not isinstance(reason, OSError):
                raise
            before = "; the checkpoint before is whole" if list_checkpoints(path.parent) else ""
            message = f"cannot write {path}: {reason.strerror or reason}{before}"
            raise UserError(f"{message}: make room, then `{resume_command(path.parent.parent)}`") from error


def link(path: Path, name: Path) -> None:
    """Give a file a second name, or make a copy on a file system without hard links."""
    if not (name.exists() and name.samefile(path)):
        with _durable(name, name.with_name("best.tmp")) as draft:
            draft.unlink(missing_ok=True)  # of a killed process
            link_or_copy(path, draft)


@contextlib.contextmanager
def _durable(path: Path, draft: Path) -> Iterator[Path]:
    """Yield a draft to write, and then rename it; force its bytes and its new name to the disk."""
    try:
        yield draft
        _sync(draft)
        draft.replace(path)
        _sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class KeptCheckpoints:
    """The last `keep_last` and the best `keep_best` checkpoints of a folder; knows neither Lightning nor time.

    A best checkpoint is a second name (a hard link) of a file that was saved before the validation. A run can resume
    from any of the last checkpoints, so the best ones of that time stay as long as the last one does.
    """

    def __init__(self, folder: Path, monitor: str, *, keep_last: int, keep_best: int) -> None:
        """Keep checkpoints in a folder; monitor is `val_bleu`, whose best value is the highest, or `val_loss`."""
        self.folder, self.monitor = folder, monitor
        self.keep_last, self.keep_best = keep_last, keep_best
        self._best: dict[str, float] = {}  # names of the best checkpoints → monitored value
        self._last: dict[str, list[str]] = {}  # names of the last checkpoints → the best ones of their time

    def best(self) -> list[Path]:
        """Return the best checkpoints, the best first; the earlier of equal ones first."""
        earliest_first = sorted(self._best)
        names = sorted(earliest_first, key=self._best.__getitem__, reverse=self.monitor == "val_bleu")
        return [self.folder / name for name in names]

    def add_best(self, value: float, step: int) -> Path | None:
        """Rank the checkpoint after `step` updates; return its path as one of the best, or None if it is none."""
        if math.isnan(value):
            return None
        path = self.folder / f"best-step={step:07d}-{self.monitor}={value:.2f}.ckpt"
        self._best[path.name] = value
        self._best = {kept.name: self._best[kept.name] for kept in self.best()[: self.keep_best]}
        return path if path.name in self._best else None

    def add_last(self, step: int) -> Path:
        """Make the checkpoint after `step` updates, which is about to be saved, the last one; return its path."""
        name = checkpoint_name(step)
        self._last[name] = list(self._best)
        names = sorted(self._last, key=lambda name: step_of(Path(name)))[-self.keep_last :]
        self._last = {name: self._last[name] for name in names}
        return self.folder / name

    def link_best(self, path: Path) -> None:
        """Give a best checkpoint its second name, if the file is still there by its first one."""
        saved = self.folder / checkpoint_name(step_of(path))
        if saved.exists():
            link(saved, path)

    def delete_others(self) -> None:
        """Delete the run's checkpoints that are neither kept nor needed by a kept one."""
        kept = {*self._last, *self._best, *(name for names in self._last.values() for name in names)}
        best = [path for path in self.folder.glob("*.ckpt") if _BEST.fullmatch(path.name) and path.is_file()]
        for path in (*list_checkpoints(self.folder), *best):
            if path.name not in kept:
                path.unlink(missing_ok=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the best checkpoints, and those of the time of each of the last checkpoints."""
        return {"scores": dict(self._best), "named": {name: list(best) for name, best in self._last.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state; the values of another measure do not compare, so its best checkpoints are forgotten."""
        scores, named = state["scores"], state["named"]
        for name in (*scores, *(name for names in named.values() for name in names)):
            if not _BEST.fullmatch(name):
                raise UserError(f"{self.folder} has a checkpoint that names {name!r} as one of the best: it is forged")
        self._best = {name: float(value) for name, value in scores.items() if f"-{self.monitor}=" in name}
        self._last = {str(name): list(names) for name, names in named.items()}
