"""What happens around updates: the budget, stop signals, broken numbers, checkpoints."""

import logging
import signal
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, cast

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint, EarlyStopping, ModelCheckpoint, Timer, WeightAveraging
from torch import Tensor

from seq2seq.config import Config
from seq2seq.errors import UserError
from seq2seq.text.batching import Batch
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.training.module import TranslationModule
from seq2seq.training.monitor import Meter, TranslationValidation

log = logging.getLogger(__name__)


class Budget(Timer):
    """Lightning's Timer, which also tells the module what share of its updates or time is spent."""

    def __init__(self, max_steps: int, max_time: timedelta | None) -> None:
        super().__init__(duration=max_time, interval="step", verbose=False)
        self.max_steps, self.max_time = max_steps, max_time

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Batch, batch_idx: int
    ) -> None:
        """Tell the module where it stands."""
        time_share = self.time_elapsed() / self.max_time.total_seconds() if self.max_time else 0.0
        if self.max_time and trainer.world_size > 1:
            time_share = trainer.strategy.broadcast(time_share)  # one learning rate for all ranks
        cast(TranslationModule, pl_module).progress = max(trainer.global_step / self.max_steps, time_share)

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
        """Stop when time is up, but never between the batches of one update."""
        if ends_update(trainer, kwargs.get("batch_idx", args[-1] if args else 0)):
            super().on_train_batch_end(trainer, *args, **kwargs)


class StopSignals(Callback):
    """Turns the first Ctrl-C (or SIGTERM) into an orderly stop after the current update; a second one interrupts.

    Lightning puts the former handlers back when training ends.
    """

    def __init__(self) -> None:
        self.received: str | None = None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the signals over."""

        def stop(number: int, frame: FrameType | None) -> None:
            if self.received:
                raise KeyboardInterrupt
            self.received = signal.Signals(number).name
            log.warning("%s: stopping after this update; once more to stop at once", self.received)

        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, stop)

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        """Stop on all ranks together."""
        if not ends_update(trainer, batch_idx):
            return
        wanted = self.received is not None
        if trainer.world_size > 1:
            wanted = trainer.strategy.reduce_boolean_decision(wanted, all=False)
        trainer.should_stop = trainer.should_stop or wanted

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Say what is left after the second signal."""
        if isinstance(exception, KeyboardInterrupt):
            log.error(
                "error: interrupted; python train.py resume=%s goes on from its last checkpoint",
                trainer.default_root_dir,
            )


def ends_update(trainer: L.Trainer, batch_idx: int) -> bool:
    """Whether an update follows this batch: epochs are whole numbers of updates."""
    return (batch_idx + 1) % trainer.accumulate_grad_batches == 0


class FiniteGuard(Callback):
    """Stops training when the loss is no number any more: at once on the CPU, at each log entry and save on a GPU.

    It comes before the checkpoint callbacks, so that a broken state is never saved.
    """

    def __init__(self, every: int) -> None:
        self.every = every

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        """Check the last update."""
        if pl_module.device.type == "cpu" or trainer.global_step % self.every == 0:
            cast(TranslationModule, pl_module).require_finite()

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Check before a save."""
        cast(TranslationModule, pl_module).require_finite()


class RunningAverage(WeightAveraging):
    """Exponential moving average of the weights, which remembers less while there is little to remember.

    The share kept in update n is min(decay, (1 + n) / (10 + n)), so that a short run's average is not its beginning.
    Validation, checkpoints' `state_dict` and the final model use the average.
    """

    def __init__(self, decay: float) -> None:
        def average(kept: Tensor, new: Tensor, number: Tensor | int) -> Tensor:
            share = min(decay, (1 + int(number)) / (10 + int(number)))
            return torch.lerp(kept, new, 1 - share)

        super().__init__(avg_fn=average)


class LatestCheckpoint(Checkpoint):
    """Keeps one checkpoint to resume from: after every so many updates, and after the last one, however it came.

    Written under another name and renamed; the old one goes only when the new one is whole. Where a validation
    follows, it is written again after it, with what the validation decided.
    """

    def __init__(self, folder: Path, every: int) -> None:
        self.folder, self.every = folder, every
        self._saved = 0  # updates done at the last save

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        """Save if it is time, or time is up."""
        ends = trainer.should_stop or trainer.global_step >= trainer.max_steps
        if ends_update(trainer, batch_idx) and (ends or trainer.global_step % self.every == 0):
            self._save(trainer)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save again what was saved before the validation; or if early stopping ends the training here."""
        if trainer.should_stop or self._saved == trainer.global_step:
            self._save(trainer)

    def _save(self, trainer: L.Trainer) -> None:
        path, draft = self.folder / f"step={trainer.global_step:07d}.ckpt", self.folder / "saving.tmp"
        try:
            trainer.save_checkpoint(draft)
            if trainer.is_global_zero:
                draft.replace(path)
        except OSError as error:
            raise UserError(
                f"cannot write {path}: {error.strerror or error}; the checkpoint before is whole: "
                f"make room, then `python train.py resume={self.folder.parent}`"
            ) from error
        finally:
            if trainer.is_global_zero:
                draft.unlink(missing_ok=True)
        self._saved = trainer.global_step
        if trainer.is_global_zero:
            for old in self.folder.glob("step=*.ckpt"):
                if old != path:
                    old.unlink()


def make_callbacks(
    config: Config, folder: Path, pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer
) -> list[Callback]:
    """All callbacks of a run, in the order in which they have to act."""
    training, trainer = config.training, config.trainer
    budget = Budget(trainer.max_steps, trainer.duration())
    callbacks: list[Callback] = [
        budget,
        StopSignals(),
        FiniteGuard(trainer.log_every),
        Meter(trainer.log_every, budget, trainer.progress_bar),
        TranslationValidation(pairs, tokenizer, training, config.search),
    ]
    if training.ema_decay > 0:
        callbacks.append(RunningAverage(training.ema_decay))
    monitor, mode = f"val_{training.monitor}", "max" if training.monitor == "bleu" else "min"
    if training.patience > 0:
        callbacks.append(EarlyStopping(monitor, patience=training.patience, mode=mode, check_on_train_epoch_end=False))
    if training.keep_best > 0:
        callbacks.append(
            ModelCheckpoint(
                folder / "checkpoints",
                filename=f"best-{{step:07d}}-{{{monitor}:.2f}}",
                monitor=monitor,
                mode=mode,
                save_top_k=training.keep_best,
                save_on_train_epoch_end=False,
            )
        )
    callbacks.append(LatestCheckpoint(folder / "checkpoints", trainer.checkpoint_every))
    return callbacks
