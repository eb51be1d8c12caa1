"""Settings of where and how long training runs: `trainer`."""

import math
from dataclasses import dataclass
from datetime import timedelta

from seq2seq.settings.checks import require, require_at_least, require_choice


@dataclass(kw_only=True)
class TrainerConfig:
    """Where and how long training runs."""

    accelerator: str = "auto"  # auto | cpu | gpu
    devices: int = 1  # on each node
    num_nodes: int = 1
    strategy: str = "auto"  # auto | ddp | fsdp (weights and optimizer spread over the devices)
    precision: str = "auto"  # auto | 32-true | bf16-mixed; auto: bf16 where the device multiplies it quickly
    compile: bool = False  # training's kernels made for this model by torch.compile; minutes at the beginning
    max_steps: int = 100_000  # updates
    max_time: str | None = None  # days:hours:minutes:seconds of training, validation included
    validate_every: int = 1000  # updates
    checkpoint_every: int = 1000  # updates
    checkpoint_minutes: float | None = None  # since the last checkpoint; null: only after so many updates
    keep_last: int = 1  # checkpoints to go on from, besides training.keep_best
    log_every: int = 50  # updates
    progress_bar: bool = True  # when the standard error is a terminal

    def __post_init__(self) -> None:
        require_choice("trainer.accelerator", self.accelerator, ("auto", "cpu", "gpu"))
        require_choice("trainer.strategy", self.strategy, ("auto", "ddp", "fsdp"))
        require_choice("trainer.precision", self.precision, ("auto", "32-true", "bf16-mixed"))
        keys = ("devices", "num_nodes", "max_steps", "validate_every", "checkpoint_every", "keep_last", "log_every")
        for key in keys:
            require_at_least(f"trainer.{key}", getattr(self, key), 1)
        if self.checkpoint_minutes is not None:
            require(
                0 < self.checkpoint_minutes < math.inf,
                f"trainer.checkpoint_minutes={self.checkpoint_minutes} must be greater than 0 (or null)",
            )
        self.duration()

    def duration(self) -> timedelta | None:
        """The time limit, or None.

        Raises:
            UserError: max_time is not days:hours:minutes:seconds.
        """
        if self.max_time is None:
            return None
        parts = self.max_time.split(":")
        require(
            len(parts) == 4 and all(part.isdigit() for part in parts),
            f"trainer.max_time={self.max_time} must be days:hours:minutes:seconds, as 00:00:25:00",
        )
        days, hours, minutes, seconds = map(int, parts)
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
