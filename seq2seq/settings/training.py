"""Settings of how batches change the weights, and of where and how long: `training`, `trainer`, `logger`."""

import math
import re
import sys
from dataclasses import dataclass, field
from datetime import timedelta

from seq2seq.errors import UserError
from seq2seq.settings import checks
from seq2seq.settings.checks import BoolOrAuto, IntOrAuto, NumberOrAuto, check_ranges, require
from seq2seq.settings.rules import AUTO


@dataclass(kw_only=True)
class SubwordSamplingConfig:
    """Random subwords: both sides of a training pair are split anew each time the pair is read."""

    # unigram: smoothing of the draws (Kudo 2018), 0.1-0.5, smaller = more varied; 0 = off;
    # bpe: share of merges left out (BPE dropout, Provilkov et al. 2020), 0.1 = as published
    alpha: float = 0.0

    def __post_init__(self) -> None:
        check_ranges("training.subword_sampling.", self, alpha=(0, 1))


@dataclass(kw_only=True)
class ModifiersConfig:
    """Unusual forms of training pairs, new ones in each epoch; a family changes share · weight / sum of weights."""

    share: float = 0.0  # share of the training pairs that are changed; 0 = none
    capitals: float = 12.0  # weight: BOTH SIDES IN CAPITALS
    title_case: float = 7.0  # weight: a Capital for Every Word, in the source or on both sides
    fragments: float = 10.0  # weight: no final stop, and in half of them a small first letter
    joined: float = 12.0  # weight: two pairs as one
    typography: float = 10.0  # weight: “curly quotes”, dashes and ellipses
    names: float = 14.0  # weight: other names in place of those that both sides have, or somebody addressed
    code: float = 13.0  # weight: placeholders such as {name} and %s, markup, addresses, files, options, keys
    symbols: float = 5.0  # weight: emoji and symbols
    list_marks: float = 4.0  # weight: bullets and numbers at the beginning
    brackets: float = 3.0  # weight: brackets, quotes or tags around both sides
    numbers: float = 6.0  # weight: other numbers
    dates: float = 4.0  # weight: a date, for languages whose months are known
    typos: float = 6.0  # weight: typing errors in the source, one and one more for every ten words
    repeats: float = 0.0  # weight: a word of the source several times, or a pair of few words on both sides
    own: dict[str, float] = field(default_factory=dict)  # weights of registered families by name (docs/extensions.md)

    def __post_init__(self) -> None:
        weights = {name: value for name, value in vars(self).items() if name not in ("share", "own")}
        check_ranges("training.modifiers.", self, share=(0, 1), **dict.fromkeys(weights, (0, sys.float_info.max)))
        for name, weight in self.own.items():
            checks.part_of(checks.MODIFIERS, name)
            checks.require_at_least(f"{checks.MODIFIERS}.{name}", weight, 0)
        require(
            self.share == 0 or any((*weights.values(), *self.own.values())),
            f"training.modifiers.share={self.share} needs a family whose weight is above 0: all are 0",
        )


@dataclass(kw_only=True)
class TrainingConfig:
    """How batches change the weights."""

    # positions of a batch on either side, padding included, on each device; auto: 1,024 on a CPU; on a GPU by
    # its memory and the model's size
    max_tokens: IntOrAuto = AUTO
    # peak learning rate; auto: 1e-3 · √(256 / model.d_model), twice that with pre-norm, more above 25,000 positions an
    # update
    learning_rate: NumberOrAuto = AUTO
    # adamw | muon: matrices of layers change by their orthogonalised momentum (Jordan et al. 2024), the rest by AdamW;
    # auto: muon for a Transformer with pre-norm, else adamw
    optimizer: str = "adamw"
    schedule: str = "linear"  # inverse_sqrt | cosine | linear | constant, after the warm-up
    warmup_steps: IntOrAuto = AUTO  # updates of linear warm-up; auto: a tenth of the run or of its time, at most 4,000
    final_rate: float = 0.0  # last learning rate of cosine and linear, as a share of the peak
    betas: list[float] = field(default_factory=lambda: [0.9, 0.98])  # AdamW: β₁ and β₂
    eps: float = 1e-9  # AdamW: ε of the denominator
    weight_decay: float = 0.0  # AdamW: decoupled weight decay, times the learning rate
    clip_norm: float = 1.0  # largest norm of the gradient per target token; 0 = off
    label_smoothing: float = 0.1  # share of the target probability spread over the whole vocabulary
    # R-Drop (Liang et al. 2021): weight α of the KL divergence between two dropout passes; 0 = off
    r_drop: float = 0.0
    subword_sampling: SubwordSamplingConfig = field(default_factory=SubwordSamplingConfig)
    modifiers: ModifiersConfig = field(default_factory=ModifiersConfig)
    accumulate: int = 1  # batches per update
    activation_checkpointing: bool = False  # compute layers again for the backward pass: less memory, more time
    ema_decay: float = 0.0  # exponential moving average of the weights: share kept at each update; 0 = off
    # weights of the bundle: last | best | average (of the kept best) | ema | auto: the best if training ran out of
    # patience, else ema if ema_decay is above 0, else last
    final_weights: str = "auto"
    monitor: str = "bleu"  # bleu | loss: the validation score that decides which checkpoint is best, and when to stop
    keep_best: int = 1  # number of best checkpoints kept
    # validations in which neither training.monitor nor the loss improves before training stops; 0 = never
    patience: int = 8
    bleu_sentences: int = 200  # validation sentences translated for BLEU; 0 = none
    sample_translations: int = 3  # validation translations shown in the log
    # unusual forms of test sentences that are translated at the end (docs/evaluation.md), at most one for each
    # sentence; 0 = none
    probes: int = 2000

    def __post_init__(self) -> None:
        names = ("learning_rate", "warmup_steps", "keep_best", "patience", "weight_decay", "clip_norm")
        names += ("bleu_sentences", "r_drop", "probes")
        at_least_0 = dict.fromkeys(names, (0, math.inf))
        check_ranges("training.", self, max_tokens=(16, math.inf), accumulate=(1, math.inf), **at_least_0)
        checks.check_choices(
            "training.",
            self,
            optimizer=(AUTO, "adamw", "muon"),
            schedule=("inverse_sqrt", "cosine", "linear", "constant"),
            final_weights=("auto", "last", "best", "average", "ema"),
            monitor=("bleu", "loss"),
        )
        require(len(self.betas) == 2, f"training.betas={self.betas} must be two numbers")
        for name in ("label_smoothing", "ema_decay"):
            require(0 <= getattr(self, name) < 1, f"training.{name}={getattr(self, name)} must be in [0, 1)")
        require(
            self.final_weights != "ema" or self.ema_decay > 0,
            "training.final_weights=ema needs training.ema_decay above 0",
        )
        require(
            self.ema_decay == 0 or self.final_weights != "last",
            "training.ema_decay above 0 averages the weights: choose training.final_weights=auto, ema, best or average",
        )
        require(
            self.monitor != "bleu" or self.bleu_sentences > 0,
            "training.monitor=bleu needs training.bleu_sentences above 0 (or choose training.monitor=loss)",
        )
        require(
            self.final_weights not in ("best", "average") or self.keep_best > 0,
            f"training.final_weights={self.final_weights} needs training.keep_best of at least 1",
        )


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
        precisions, profilers = ("auto", "32-true", "bf16-mixed"), ("none", "simple", "advanced", "pytorch")
        accelerators = ("auto", "cpu", "gpu")
        checks.check_choices("trainer.", self, accelerator=accelerators, precision=precisions, profiler=profilers)
        require(self.replay in (AUTO, True, False), f"trainer.replay={self.replay} must be auto, true or false")
        names = ("num_nodes", "checkpoint_every", "keep_last", "log_every")
        names += ("devices", "max_steps", "validate_every", "max_epochs")
        check_ranges("trainer.", self, **dict.fromkeys(names, (1, math.inf)))
        check_ranges("trainer.", self, overfit_batches=(0, math.inf), fast_dev_run=(0, math.inf))
        is_time = self.checkpoint_minutes is None or 0 < self.checkpoint_minutes < math.inf
        require(is_time, f"trainer.checkpoint_minutes={self.checkpoint_minutes} must be greater than 0 (or null)")
        for name in self.callbacks:
            checks.part_of(checks.CALLBACKS, name)
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
    attention: bool = False  # draw cross-attention for tensorboard and wandb at each validation
    project: str = "seq2seq"  # the project in Weights & Biases, the experiment in MLflow

    def __post_init__(self) -> None:
        require(bool(self.project.strip()), "logger.project is empty: give the project's name")
        takes_pictures = not self.attention or self.tensorboard or self.wandb
        require(takes_pictures, "logger.attention=true needs logger.tensorboard=true or logger.wandb=true")
