"""Settings of where and how long training runs, and where its numbers are shown: `trainer` and `logger`."""

import math
import re
from dataclasses import dataclass, field
from datetime import timedelta

from seq2seq.errors import UserError
from seq2seq.settings.checks import CALLBACKS, BoolOrAuto, IntOrAuto, check_choices, check_ranges, part_of, require
from seq2seq.settings.rules import AUTO


@dataclass(kw_only=True)
class TrainerConfig:
    """Where and how long training runs."""

    accelerator: str = "auto"  # cpu | gpu | auto: a GPU if there is one, else the CPU
    # devices on each node, each with the whole model and a share of each batch (DistributedDataParallel);
    # auto: all GPUs, or one per process that torchrun or SLURM started
    devices: IntOrAuto = 1
    num_nodes: IntOrAuto = 1  # machines that train together; auto: as torchrun or SLURM started them
    precision: str = "auto"  # auto | 32-true | bf16-mixed; auto: bf16-mixed if the device multiplies bf16 fast
    # record an update's forward and backward pass as one CUDA graph for each shape of batch; auto: for a Transformer on
    # GPUs, if training.max_tokens is at least 16384
    replay: BoolOrAuto = AUTO
    # updates of the run; auto: 9 · √(positions of the text · 1024 / positions of an update)
    max_steps: IntOrAuto = AUTO
    # passes over the training pairs; replaces max_steps=auto; if max_steps is a number, the lower limit ends training
    max_epochs: int | None = None
    max_time: str | None = None  # days:hours:minutes:seconds of training, validation included; null: no time limit
    validate_every: IntOrAuto = AUTO  # updates between validations; auto: a 25th of the run, 100 to 5,000
    checkpoint_every: int = 500  # updates between checkpoints
    checkpoint_minutes: float | None = None  # minutes between checkpoints; null: only trainer.checkpoint_every counts
    keep_last: int = 1  # number of latest checkpoints kept, besides the best checkpoints (training.keep_best)
    log_every: int = 50  # updates between two lines of the log, and between two points of the curves
    progress_bar: bool = True  # show a progress bar if stderr is a terminal
    callbacks: list[str] = field(default_factory=list)  # registered callbacks (docs/extensions.md)
    overfit_batches: int = 0  # train and validate on the pairs of so many batches alone; 0: on all text
    fast_dev_run: int = 0  # try so many updates and a validation, and keep nothing; 0: train
    detect_anomaly: bool = False  # stop at the operation of the first wrong gradient; slow
    profiler: str = "none"  # none | simple | advanced | pytorch: write where time goes to the run's folder

    def __post_init__(self) -> None:
        check_choices("trainer.", self, accelerator=("auto", "cpu", "gpu"), precision=("auto", "32-true", "bf16-mixed"))
        check_choices("trainer.", self, profiler=("none", "simple", "advanced", "pytorch"))
        require(self.replay in (AUTO, True, False), f"trainer.replay={self.replay} must be auto, true or false")
        names = ("num_nodes", "checkpoint_every", "keep_last", "log_every")
        names += ("devices", "max_steps", "validate_every", "max_epochs")
        check_ranges("trainer.", self, **dict.fromkeys(names, (1, math.inf)))
        check_ranges("trainer.", self, overfit_batches=(0, math.inf), fast_dev_run=(0, math.inf))
        is_time = self.checkpoint_minutes is None or 0 < self.checkpoint_minutes < math.inf
        require(is_time, f"trainer.checkpoint_minutes={self.checkpoint_minutes} must be greater than 0 (or null)")
        for name in self.callbacks:
            part_of(CALLBACKS, name)
        self.log_every = 1 if self.fast_dev_run else self.log_every
        self.duration()

    def duration(self) -> timedelta | None:
        """Return the time limit, or None."""
        if self.max_time is None:
            return None
        parts = re.fullmatch(":".join([r"(\d{1,8})"] * 4), self.max_time)  # more digits are too long for a timedelta
        if parts is None:
            raise UserError(f"trainer.max_time={self.max_time} must be days:hours:minutes:seconds, as 00:00:25:00")
        days, hours, minutes, seconds = map(int, parts.groups())
        duration = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        require(bool(duration), f"trainer.max_time={self.max_time} leaves no time to train: give more, or null")
        return duration


@dataclass(kw_only=True)
class LoggerConfig:
    """Where a run's numbers are shown, besides its metrics.csv, which is always written."""

    tensorboard: bool = False  # write TensorBoard events into the run's folder
    wandb: bool = False  # log to Weights & Biases
    mlflow: bool = False  # log to MLflow
    project: str = "seq2seq"  # the project in Weights & Biases, the experiment in MLflow

    def __post_init__(self) -> None:
        require(bool(self.project.strip()), "logger.project is empty: give the project's name")
