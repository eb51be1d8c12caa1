"""When a run saves a checkpoint, what it records there besides Lightning's state, and which checkpoints it keeps.

Each file is complete or absent, also after a power failure.
"""

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO

from seq2seq.data.batching import Batch
from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.storage.atomic import link_or_copy, replacing
from seq2seq.training.processes import rank
from seq2seq.training.run_state import checkpoint_name, list_checkpoints, step_of

RECORD = "run"  # the key of our own values in a checkpoint, besides Lightning's keys
_BEST = re.compile(r"best-step=\d{7,}-[a-z_]+=-?[0-9a-z.]+\.ckpt")


def ends_update(trainer: L.Trainer, batch_idx: int) -> bool:
    """Return whether this batch completes an update; every epoch has a whole number of updates."""
    return (batch_idx + 1) % trainer.accumulate_grad_batches == 0


def validates_now(trainer: L.Trainer, every: int) -> bool:
    """Return whether a validation is due after this update: after every `every` updates, and after the last update.

    The last update before a stop by a signal makes no validation due, because little time is left.
    """
    ends = trainer.should_stop and trainer.limit_val_batches != 0
    return ends or trainer.global_step % every == 0


class Checkpoints(Checkpoint):
    """Saves all that a run needs to continue as if it had never stopped; `KeptCheckpoints` decides which files stay.

    It saves after every so many updates or minutes, before each validation, and after the last update and its
    validation. A checkpoint from before a validation records that the validation is due, and a run that resumes from
    the checkpoint validates first. Therefore only the last validation needs a save after it.
    """

    def __init__(self, folder: Path, config: Config, record: Mapping[str, Any], clock: Callable[[], float]) -> None:
        """Save to folder; each checkpoint holds the record, plain values that a resumed run is compared with.

        clock returns the time in seconds, the same on all ranks.
        """
        trainer, training = config.trainer, config.training
        self.kept = KeptCheckpoints(
            folder, f"val_{training.monitor}", keep_last=trainer.keep_last, keep_best=training.keep_best
        )
        self.record, self._clock = dict(record), clock
        self.every, self.minutes = trainer.checkpoint_every, trainer.checkpoint_minutes
        self.validate_every = trainer.validate_every
        self._pending = False  # whether a validation is due before the next update
        self._last_save = self._clock()
        self.on_best: Callable[[], None] = lambda: None  # called in process 0 after the best validation so far

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
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        """Save after an update if a save is due, if a validation follows, or if the run ends."""
        if not ends_update(trainer, batch_idx):
            return
        self._pending = validates_now(trainer, self.validate_every)
        are_minutes_up = self.minutes is not None and self._clock() - self._last_save >= 60 * self.minutes
        if self._pending or trainer.should_stop or trainer.global_step % self.every == 0 or are_minutes_up:
            self._save(trainer)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Give the checkpoint a second name if it is among the best; save again after the last validation."""
        self._pending = False
        value = float(trainer.callback_metrics.get(self.kept.monitor, math.nan))
        best = self.kept.add_best(value, trainer.global_step)
        if trainer.should_stop:
            self._save(trainer)
        if trainer.is_global_zero and best is not None:
            self.kept.link_best(best)
            if self.kept.best()[0] == best:
                self.on_best()

    def _save(self, trainer: L.Trainer) -> None:
        trainer.save_checkpoint(self.kept.folder / checkpoint_name(trainer.global_step), weights_only=False)
        if trainer.is_global_zero:
            self.kept.delete_others()
        self._last_save = self._clock()

    def state_dict(self) -> dict[str, Any]:
        """Return which checkpoints are kept."""
        return self.kept.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore which checkpoints are kept; a run that was killed before it linked one of the best lacks its name."""
        self.kept.load_state_dict(state_dict)
        for path in self.kept.best():
            if rank() == 0 and not path.exists():
                self.kept.link_best(path)

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add the record to the checkpoint."""
        shares = {"ranks": trainer.world_size, "accumulate": trainer.accumulate_grad_batches}  # of an update's batches
        checkpoint[RECORD] = {**self.record, **shares, "validation_pending": self._pending}

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Convert Lightning's counters to another number of ranks; note a validation that is still due."""
        record = checkpoint[RECORD]
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        convert_counters(progress, cast(int, trainer.accumulate_grad_batches), record["accumulate"])
        self._pending = record["validation_pending"]


def convert_counters(progress: dict[str, Any], accumulate: int, accumulated: int) -> None:
    """Change Lightning's counts of a rank's batches, made when it accumulated others, to its present batches."""
    for count in progress.values():
        if isinstance(count, dict):  # in a checkpoint from within a batch, completed may be one behind
            lag = count["ready"] - count["completed"]
            for key in ("ready", "started", "processed"):
                count[key] = count[key] * accumulate // accumulated
            count["completed"] = count["ready"] - lag


class KeptCheckpoints:
    """The last `keep_last` and the best `keep_best` checkpoints of a folder; knows neither Lightning nor time.

    A best checkpoint is a second name (a hard link) of a file that was saved before the validation. One that is not
    among the best any more stays until the next save: the last checkpoint still names it.
    """

    def __init__(self, folder: Path, monitor: str, *, keep_last: int, keep_best: int) -> None:
        """Keep checkpoints in a folder; monitor is `val_bleu`, whose best value is the highest, or `val_loss`."""
        self.folder, self.monitor = folder, monitor
        self.keep_last, self.keep_best = keep_last, keep_best
        self._best: dict[str, float] = {}  # names of the best checkpoints → monitored value

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

    def link_best(self, path: Path) -> None:
        """Give a best checkpoint its second name, if the file is still there by its first one."""
        saved = self.folder / checkpoint_name(step_of(path))
        if saved.exists():
            link(saved, path)

    def delete_others(self) -> None:
        """Delete the checkpoints that are neither among the last nor among the best; the last one is saved."""
        best = [path for path in self.folder.glob("*.ckpt") if _BEST.fullmatch(path.name) and path.is_file()]
        worse = [path for path in best if path.name not in self._best]
        for path in (*list_checkpoints(self.folder)[: -self.keep_last], *worse):
            path.unlink(missing_ok=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the best checkpoints."""
        return {"scores": dict(self._best)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state; the values of another measure do not compare, so its best checkpoints are forgotten."""
        for name in state["scores"]:
            if not _BEST.fullmatch(name):
                raise UserError(f"{self.folder} has a checkpoint that names {name!r} as one of the best: it is forged")
        self._best = {name: float(value) for name, value in state["scores"].items() if f"-{self.monitor}=" in name}


class DurableIO(TorchCheckpointIO):
    """Writes a checkpoint that is complete or absent, also after a power failure."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write one file."""
        with _durable(Path(path)) as draft, draft.open("wb") as file:
            try:
                torch.save(checkpoint, file)
            except RuntimeError as error:  # which replaces an error of the file
                raise error.__context__ or error from None


def link(path: Path, name: Path) -> None:
    """Give a file a second name, or make a copy on a file system without hard links."""
    if not (name.exists() and name.samefile(path)):
        with _durable(name) as draft:
            link_or_copy(path, draft)


@contextlib.contextmanager
def _durable(path: Path) -> Iterator[Path]:
    """Yield a draft that replaces a file; force its bytes and its new name to the disk."""
    with replacing(path) as draft:
        yield draft
        _sync(draft)
    _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
