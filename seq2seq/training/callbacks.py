"""What happens around updates: the budget, stop signals, broken numbers, checkpoints."""

import logging
import signal
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, cast

import lightning as L
from lightning.pytorch.callbacks import Callback, Checkpoint, EarlyStopping, EMAWeightAveraging, ModelCheckpoint, Timer

from seq2seq.config import Config
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
        cast(TranslationModule, pl_module).progress = max(trainer.global_step / self.max_steps, time_share)


class StopSignals(Callback):
    """Turns the first Ctrl-C (or SIGTERM) into an orderly stop after the current update; a second one interrupts."""

    def __init__(self) -> None:
        self.received: str | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the signals over."""

        def stop(number: int, frame: FrameType | None) -> None:
            if self.received:
                raise KeyboardInterrupt
            self.received = signal.Signals(number).name
            trainer.should_stop = True
            log.warning("%s: stopping after this update; once more to stop at once", self.received)

        for name in (signal.SIGINT, signal.SIGTERM):
            self._previous[name] = signal.signal(name, stop)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Give the signals back."""
        for name, handler in self._previous.items():
            signal.signal(name, handler)
        self._previous.clear()


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


class LatestCheckpoint(Checkpoint):
    """Keeps one checkpoint to resume from: after every so many updates, and after the last one, however it came.

    The old one goes only when the new one is whole.
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
        is_update = (batch_idx + 1) % trainer.accumulate_grad_batches == 0 or trainer.is_last_batch
        ends = trainer.should_stop or trainer.global_step >= trainer.max_steps
        if is_update and (ends or trainer.global_step % self.every == 0):
            self._save(trainer)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save if early stopping ends the training here."""
        if trainer.should_stop:
            self._save(trainer)

    def _save(self, trainer: L.Trainer) -> None:
        if trainer.global_step == self._saved:
            return
        path = self.folder / f"step={trainer.global_step:07d}.ckpt"
        trainer.save_checkpoint(path)
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
        callbacks.append(
            EMAWeightAveraging(
                decay=training.ema_decay,
                update_starting_at_step=min(training.warmup_steps, trainer.validate_every - 1),
            )
        )
    monitor, mode = f"val_{training.monitor}", "max" if training.monitor == "bleu" else "min"
    if training.patience > 0:
        callbacks.append(EarlyStopping(monitor, patience=training.patience, mode=mode, check_on_train_epoch_end=False))
    callbacks.append(LatestCheckpoint(folder / "checkpoints", trainer.checkpoint_every))
    if training.keep_best > 0:
        callbacks.append(
            ModelCheckpoint(
                folder / "checkpoints",
                filename=f"best-{{step:07d}}-{{{monitor}:.2f}}",
                monitor=monitor,
                mode=mode,
                save_top_k=training.keep_best,
                save_weights_only=True,
                save_on_train_epoch_end=False,
            )
        )
    return callbacks
