"""Save checkpoints with all that a resumed run needs; keep the latest and the best. Each is complete or absent."""

import io
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO

from seq2seq.errors import UserError
from seq2seq.extras import resume_command
from seq2seq.settings.config import Config
from seq2seq.text.batching import Batch
from seq2seq.training.processes import rank
from seq2seq.training.run_state import checkpoint_name, list_checkpoints, step_of

RECORD = "run"  # the key of our own values in a checkpoint, besides Lightning's keys
_BEST = re.compile(r"best-step=(\d{7,})-[a-z_]+=-?[0-9a-z.]+\.ckpt")


def ends_update(trainer: L.Trainer, batch_idx: int) -> bool:
    """Return whether this batch completes an update; every epoch has a whole number of updates."""
    return (batch_idx + 1) % trainer.accumulate_grad_batches == 0


def validates_now(trainer: L.Trainer, every: int) -> bool:
    """Return whether a validation is due after this update: after every `every` updates, and after the last update.

    The last update before a stop by a signal makes no validation due, because little time is left.
    """
    ends = trainer.should_stop and trainer.limit_val_batches != 0
    return ends or trainer.global_step % every == 0


class DurableIO(TorchCheckpointIO):
    """Writes a checkpoint under another name, forces it to the disk, and renames it: it is complete or absent."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write one file."""
        path = Path(path)
        draft = path.with_name("saving.tmp")
        file = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _RecordingFile(draft.open("wb", buffering=0)) as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            _sync_folder(path.parent)
        except (OSError, RuntimeError) as error:  # torch.save turns its file's errors into RuntimeErrors
            reason = error if isinstance(error, OSError) else file.error if file is not None else None
            if reason is None:
                raise
            draft.unlink(missing_ok=True)
            before = "; the checkpoint before is whole" if list_checkpoints(path.parent) else ""
            raise UserError(
                f"cannot write {path}: {reason.strerror or reason}{before}: "
                f"make room, then `{resume_command(path.parent.parent)}`"
            ) from error


class _RecordingFile(io.BufferedWriter):
    error: OSError | None = None  # the error of the last write that failed

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.error = error
            raise


def _sync_folder(folder: Path) -> None:
    """Force new and changed names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Checkpoints(Checkpoint):
    """Saves all that a run needs to continue as if it had never stopped; keeps the last k and the best k checkpoints.

    It saves after every so many updates or minutes, before each validation, and after the last update and its
    validation. A checkpoint from before a validation records that the validation is due, and a run that resumes from
    the checkpoint validates first. Therefore only the last validation needs a save after it. The best checkpoints are
    second names (hard links) of files that were saved before a validation. One is deleted only when neither the run nor
    a kept checkpoint records it as one of the best.
    """

    def __init__(
        self, folder: Path, config: Config, record: Mapping[str, Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Save to folder; each checkpoint holds the record, plain values that a resumed run is compared with.

        clock returns the time in seconds, the same on all ranks.
        """
        self.folder, self.record, self._clock = folder, dict(record), clock
        trainer, training = config.trainer, config.training
        self.every, self.minutes = trainer.checkpoint_every, trainer.checkpoint_minutes
        self.validate_every = trainer.validate_every
        self.keep_last, self.keep_best = trainer.keep_last, training.keep_best
        self.monitor = f"val_{training.monitor}"
        self._sign = 1.0 if training.monitor == "bleu" else -1.0  # sign × monitored value: larger is better
        self._scores: dict[str, float] = {}  # names of the best checkpoints → monitored value
        self._named: dict[str, list[str]] = {}  # names of the last checkpoints → the best ones that each records
        self._pending = False  # whether a validation is due before the next update
        self._last_save = self._clock()
        self.on_best: Callable[[], None] = lambda: None  # called in process 0 after the best validation so far

    def best(self) -> list[Path]:
        """Return the best checkpoints, the best first; the earlier of equal ones first."""
        names = sorted(self._scores, key=lambda name: (-self._sign * self._scores[name], name))
        return [self.folder / name for name in names]

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start to count minutes; run the validation that was due when the run was interrupted."""
        self._last_save = self._clock()
        if self._pending:
            loop = trainer.fit_loop.epoch_loop.val_loop  # `Trainer.validate` would end the fit that has begun
            loop.restarting = False
            trainer.validating = True
            loop.run()
            trainer.training = True

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        """Save after an update if a save is due, if a validation follows, or if the run ends."""
        if not ends_update(trainer, batch_idx):
            return
        self._pending = validates_now(trainer, self.validate_every)
        if self._pending or trainer.should_stop or trainer.global_step % self.every == 0 or self._minutes_are_up():
            self._save(trainer)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Give the checkpoint a second name if it is among the best; save again after the last validation."""
        self._pending = False
        best = self._enter(float(trainer.callback_metrics.get(self.monitor, math.nan)), trainer.global_step)
        if trainer.should_stop:
            self._save(trainer)
        if trainer.is_global_zero:
            if best is not None:
                link(self.folder / checkpoint_name(trainer.global_step), self.folder / best)
            self._remove_others()
            if best is not None and self.best()[0].name == best:
                self.on_best()

    def _minutes_are_up(self) -> bool:
        return self.minutes is not None and self._clock() - self._last_save >= 60 * self.minutes

    def _enter(self, value: float, step: int) -> str | None:
        """Add the current weights to the best checkpoints; return their name if they are among the best `keep_best`."""
        if math.isnan(value):
            return None
        name = f"best-step={step:07d}-{self.monitor}={value:.2f}.ckpt"
        self._scores[name] = value
        self._scores = {path.name: self._scores[path.name] for path in self.best()[: self.keep_best]}
        return name if name in self._scores else None

    def _save(self, trainer: L.Trainer) -> None:
        path = self.folder / checkpoint_name(trainer.global_step)
        self._named[path.name] = list(self._scores)
        for old in sorted(self._named, key=lambda name: step_of(Path(name)))[: -self.keep_last]:
            del self._named[old]
        trainer.save_checkpoint(path, weights_only=False)
        if trainer.is_global_zero:
            self._remove_others()
        self._last_save = self._clock()

    def _remove_others(self) -> None:
        """Delete the checkpoints that neither the run nor a kept checkpoint needs."""
        wanted = {*self._named, *self._scores, *(name for names in self._named.values() for name in names)}
        last = set(list_checkpoints(self.folder))
        for path in self.folder.glob("*.ckpt"):
            ours = path in last or (_BEST.fullmatch(path.name) and path.is_file())
            if ours and path.name not in wanted:
                path.unlink(missing_ok=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the best checkpoints, and the best ones that each of the last checkpoints records."""
        return {"scores": dict(self._scores), "named": {name: list(best) for name, best in self._named.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best checkpoints. Files of these names may be deleted, so the names must match the pattern.

        Raises:
            UserError: a name does not match.
        """
        scores, named = state_dict["scores"], state_dict["named"]
        for name in (*scores, *(name for names in named.values() for name in names)):
            if not _BEST.fullmatch(name):
                raise UserError(f"{self.folder} has a checkpoint that names {name!r} as one of the best: it is forged")
        ours = {name: value for name, value in scores.items() if f"-{self.monitor}=" in name}  # others do not compare
        self._scores = {str(name): float(value) for name, value in ours.items()}
        self._named = {str(name): [str(one) for one in names] for name, names in named.items()}
        for path in self.best():  # a run that was killed before it made the link lacks the name
            source = self.folder / checkpoint_name(int(cast(re.Match[str], _BEST.fullmatch(path.name))[1]))
            if rank() == 0 and source.exists() and not path.exists():
                link(source, path)

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add the record to the checkpoint."""
        checkpoint[RECORD] = {**self.record, **shares(trainer), "validation_pending": self._pending}

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Convert Lightning's counters to another number of ranks; note a validation that is still due."""
        record, now = checkpoint[RECORD], shares(trainer)
        if record["ranks"] * record["accumulate"] != now["ranks"] * now["accumulate"]:
            theirs, total = record["ranks"] * record["accumulate"], now["ranks"]
            raise UserError(
                f"every update of this run is made of {theirs} batches ({record['ranks']} processes × "
                f"training.accumulate={record['accumulate']}), now of {total} × {now['accumulate']}: "
                + (f"use a divisor of {theirs}" if theirs % total else f"set training.accumulate={theirs // total}")
            )
        loops = checkpoint["loops"]["fit_loop"]
        for count in loops["epoch_loop.batch_progress"].values():
            if isinstance(count, dict):  # in a checkpoint from within a batch, completed may be one behind
                lag = count["ready"] - count["completed"]
                for key in ("ready", "started", "processed"):
                    count[key] = count[key] * now["accumulate"] // record["accumulate"]
                count["completed"] = count["ready"] - lag
        self._pending = record["validation_pending"]


def shares(trainer: L.Trainer) -> dict[str, int]:
    """Return how an update's batches are distributed: ranks, and batches that each rank accumulates."""
    return {"ranks": trainer.world_size, "accumulate": cast(int, trainer.accumulate_grad_batches)}


def link(path: Path, name: Path) -> None:
    """Give a file a second name, or make a copy on a file system without hard links."""
    if name.exists() and name.samefile(path):
        return
    draft = name.with_name("best.tmp")
    try:
        draft.unlink(missing_ok=True)
        try:
            os.link(path, draft)
        except OSError:
            shutil.copyfile(path, draft)
            with draft.open("rb") as file:
                os.fsync(file.fileno())
        draft.replace(name)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(name.parent)
