"""Callbacks around updates: budget, signals, early stopping, running average."""

import logging
import math
import re
import signal
import threading
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, cast

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, Timer, WeightAveraging

from seq2seq.data.batching import Batch
from seq2seq.data.dataset import PreparedData, trained_length
from seq2seq.errors import UserError
from seq2seq.settings.checks import CALLBACKS, part_of
from seq2seq.settings.config import Config
from seq2seq.settings.missing_packages import resume_command
from seq2seq.training.checkpoints import Checkpoints, ends_update
from seq2seq.training.module import TranslationModule
from seq2seq.training.progress_log import Meter, TranslationValidation
from seq2seq.training.run_files import interruption

log = logging.getLogger(__name__)
_LOST = re.compile(r"[Cc]onnection (closed|reset|refused)|Broken pipe|Socket Timeout|[Tt]imed out|remote process")


class StoppedValidationError(Exception):
    """A signal ended the training during a validation; the last update is saved."""


class Budget(Timer):
    """Timer that ends training on all ranks together when updates or time are spent or a signal arrives.

    The first Ctrl-C, SIGTERM or SIGUSR1 stops training after the current update. SLURM sends SIGTERM before it takes a
    node away, and the signal of `--signal`, usually SIGUSR1, some time earlier. The update is saved and not validated,
    since little time is left; a running validation is stopped, and repeated on resume. A second signal interrupts at
    once. Lightning restores the former handlers when training ends.
    """

    def __init__(self, max_steps: int, max_time: timedelta | None) -> None:
        super().__init__()  # Lightning's own limit would skip a validation that is due when the run is resumed
        self.max_steps, self.max_time = max_steps, max_time
        self.received = 0  # the signal that this process has received; 0: none
        self.stopped_by: str | None = None  # the name of a signal that any process has received
        self.seconds = 0.0  # of training and validation when the ranks last exchanged them, the same on all ranks

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the clock and handle signals, before any wait for other processes; stop if the budget is spent."""
        super().on_train_start(trainer, pl_module)

        def stop(number: int, frame: FrameType | None) -> None:
            if self.received:
                raise KeyboardInterrupt
            self.received = number
            message = "%s: stopping after this update; once more to stop at once"
            log.warning(message, signal.Signals(number).name)

        if threading.current_thread() is threading.main_thread():  # others may not handle signals
            for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
                signal.signal(name, stop)
        self._agree(trainer)
        self._set_progress(trainer, pl_module)
        trainer.should_stop = trainer.should_stop or self._is_spent(trainer)

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Batch, batch_idx: int
    ) -> None:
        """Set the module's progress, which determines the learning rate."""
        self._set_progress(trainer, pl_module)

    def _set_progress(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Set progress to the larger spent share of updates or time; several processes use the exchanged time."""
        seconds = self.seconds if trainer.world_size > 1 else self.time_elapsed()
        time_share = seconds / self.max_time.total_seconds() if self.max_time else 0.0
        cast(TranslationModule, pl_module).progress = max(trainer.global_step / self.max_steps, time_share)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        """Stop when time or updates are spent or a signal arrived, but never between the batches of one update.

        Lightning validates after the last update because `should_stop` is set, but not after a signal.
        """
        if not ends_update(trainer, batch_idx):
            return
        if self._agree(trainer):
            trainer.should_stop = True
            trainer.limit_val_batches = 0
        self._set_progress(trainer, pl_module)
        trainer.should_stop = trainer.should_stop or self._is_spent(trainer)

    def _is_spent(self, trainer: L.Trainer) -> bool:
        is_late = self.max_time is not None and self.seconds >= self.max_time.total_seconds()
        return is_late or trainer.global_step >= self.max_steps

    def on_validation_batch_start(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
        """Stop the validation after a signal; a checkpoint from before the validation exists."""
        if self._agree(trainer):
            raise StoppedValidationError

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Stop training if a signal arrived during the validation."""
        super().on_validation_end(trainer, pl_module)
        trainer.should_stop = self._agree(trainer) or trainer.should_stop

    def _agree(self, trainer: L.Trainer) -> bool:
        """Set `seconds` to the ranks' maximum, and `stopped_by`; return whether any rank has received a signal."""
        self.seconds, number = self.time_elapsed(), self.received
        if trainer.world_size > 1:
            maxima = torch.tensor([self.seconds, number], dtype=torch.float64)  # on the host: nothing waits for a GPU
            torch.distributed.all_reduce(maxima, torch.distributed.ReduceOp.MAX)
            self.seconds, number = maxima.tolist()
        self.stopped_by = signal.Signals(int(number)).name if number else None
        return bool(number)

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Log what the run has saved after a second signal; raise an error if another process died."""
        if trainer.world_size > 1 and isinstance(exception, RuntimeError) and _LOST.search(str(exception)):
            raise UserError(
                f"another process of this run has died ({str(exception).splitlines()[0][:100]}): "
                f"the last checkpoint is whole, go on with `{resume_command(trainer.default_root_dir)}`"
            ) from exception
        if isinstance(exception, KeyboardInterrupt):
            log.error("error: %s", interruption(Path(trainer.default_root_dir)))


class Patience(EarlyStopping):
    """Early stopping after validations that improve neither the monitored value nor the loss.

    With several validation sets, both values are means: a gain in one set offsets an equal decline in another. The
    loss counts because BLEU is about zero in the first validations, while the loss already falls. A resumed run keeps
    its count, and stops at once if it had already run out of patience.
    """

    def __init__(self, monitor: str, patience: int, mode: str) -> None:
        super().__init__(monitor, patience=patience, mode=mode, check_on_train_epoch_end=False)
        self.best_loss = math.inf  # nats per target token

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Restart the count if the loss is the lowest so far; else count by the monitored value."""
        loss = float(trainer.callback_metrics.get("val_loss", math.nan))
        if loss < self.best_loss:
            self.best_loss, self.wait_count = loss, -1  # the count goes to 0 below
        super().on_validation_end(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """Return Lightning's state and the lowest loss."""
        return {**super().state_dict(), "best_loss": self.best_loss}

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Stop at once if patience had run out."""
        trainer.should_stop = trainer.should_stop or self.is_out

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the count and the lowest loss; the patience comes from the settings."""
        self.best_loss = state_dict.get("best_loss", math.inf)
        super().load_state_dict({**state_dict, "patience": self.patience})

    @property
    def is_out(self) -> bool:
        """Whether too many validations brought no improvement."""
        return self.wait_count >= self.patience


class RunningAverage(WeightAveraging):
    """Exponential moving average of the weights, with a decay that rises over the first updates.

    The share kept in update n is min(decay, (1 + n) / (10 + n)), so that the first weights do not dominate a short run.
    Validation, checkpoints' `state_dict` and the final model use the average.
    """

    def __init__(self, decay: float) -> None:
        super().__init__()
        self.decay = decay

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Make the average; keep its count of updates on the host, which reads the count at every update."""
        super().setup(trainer, pl_module, stage)
        if self._average_model is not None:
            self._average_model.n_averaged = self._average_model.n_averaged.cpu()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any, **kwargs: Any) -> None:
        """Move the average towards the new weights, without waiting for the device."""
        average = self._average_model  # Lightning's public hooks update it with a wait for the device
        if average is None or trainer.global_step <= self._latest_update_step:
            return
        number = int(average.n_averaged)
        share = min(self.decay, (1 + number) / (10 + number)) if number else 0.0  # at first the average is the weights
        kept, new = ([*of.parameters(), *of.buffers()] for of in (average.module, pl_module))
        with torch.no_grad():
            torch._foreach_lerp_(kept, new, 1 - share)  # pyright: ignore[reportPrivateImportUsage]
        average.n_averaged += 1
        self._latest_update_step = trainer.global_step


def make_callbacks(
    config: Config, folder: Path, data: PreparedData, record: Mapping[str, Any], updates_per_epoch: float | None = None
) -> list[Callback]:
    """Return all callbacks of a run, in the order in which they act; checkpoints hold the record.

    With updates_per_epoch the log counts epochs.
    """
    training, trainer = config.training, config.trainer
    budget = Budget(trainer.max_steps, trainer.duration())
    callbacks: list[Callback] = [
        budget,
        Meter(trainer.log_every, trainer.validate_every, budget, updates_per_epoch),
        TranslationValidation(
            {name: data.validation_pairs[rows.start : rows.stop] for name, rows in data.validation_sets.items()},
            data.tokenizer,
            training,
            config.search,
            language=config.data.tgt_lang,
            trained_length=trained_length(data),
        ),
    ]
    if training.ema_decay > 0:
        callbacks.append(RunningAverage(training.ema_decay))
    if training.patience > 0:
        monitor, mode = f"val_{training.monitor}", "max" if training.monitor == "bleu" else "min"
        callbacks.append(Patience(monitor, training.patience, mode))
    if not trainer.fast_dev_run:
        callbacks.append(Checkpoints(folder / "checkpoints", config, record, lambda: budget.seconds))
    return [*callbacks, *(part_of(CALLBACKS, name)(config) for name in trainer.callbacks)]
