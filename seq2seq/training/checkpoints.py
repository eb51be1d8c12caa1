"""When a run saves a checkpoint, and what it records there besides Lightning's state."""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import lightning as L
from lightning.pytorch.callbacks import Checkpoint

from seq2seq.data.batching import Batch
from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.training.kept_checkpoints import KeptCheckpoints
from seq2seq.training.processes import rank

RECORD = "run"  # the key of our own values in a checkpoint, besides Lightning's keys


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

    def __init__(
        self, folder: Path, config: Config, record: Mapping[str, Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
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
        if trainer.is_global_zero:
            if best is not None:
                self.kept.link_best(best)
            self.kept.delete_others()
            if best is not None and self.kept.best()[0] == best:
                self.on_best()

    def _save(self, trainer: L.Trainer) -> None:
        trainer.save_checkpoint(self.kept.add_last(trainer.global_step), weights_only=False)
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
        checkpoint[RECORD] = {**self.record, **shares(trainer), "validation_pending": self._pending}

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Convert Lightning's counters to another number of ranks; note a validation that is still due."""
        record, now = checkpoint[RECORD], shares(trainer)
        require_same_updates(record, now)
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        convert_counters(progress, now["accumulate"], record["accumulate"])
        self._pending = record["validation_pending"]


def shares(trainer: L.Trainer) -> dict[str, int]:
    """Return how an update's batches are distributed: ranks, and batches that each rank accumulates."""
    return {"ranks": trainer.world_size, "accumulate": cast(int, trainer.accumulate_grad_batches)}


def require_same_updates(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse `shares` with which an update would consist of another number of batches than before."""
    theirs, total = then["ranks"] * then["accumulate"], now["ranks"]
    if theirs != total * now["accumulate"]:
        raise UserError(
            f"every update of this run is made of {theirs} batches ({then['ranks']} processes × "
            f"training.accumulate={then['accumulate']}), now of {total} × {now['accumulate']}: "
            + (f"use a divisor of {theirs}" if theirs % total else f"set training.accumulate={theirs // total}")
        )


def convert_counters(progress: dict[str, Any], accumulate: int, accumulated: int) -> None:
    """Change Lightning's counts of a rank's batches, made when it accumulated others, to its present batches."""
    for count in progress.values():
        if isinstance(count, dict):  # in a checkpoint from within a batch, completed may be one behind
            lag = count["ready"] - count["completed"]
            for key in ("ready", "started", "processed"):
                count[key] = count[key] * accumulate // accumulated
            count["completed"] = count["ready"] - lag
