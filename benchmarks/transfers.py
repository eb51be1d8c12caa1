"""What a GPU would make the host wait for, counted without one.

On PyTorch's `meta` device tensors have shapes and no values, and code takes the ways that it takes on a GPU. A mode
over all functions of PyTorch sees every request for a value (`item`, `tolist`, `bool`, a boolean index, …), which on a
GPU waits until all work given to it is done, and every copy to the device; it answers requests with a number that
stands in for the value. Products and look-ups are not computed, so this takes a second.
"""

import logging
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from unittest import mock

import lightning as L
import numpy as np
import torch
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from benchmarks.tables import Table
from seq2seq.config import Config, ModelConfig, SearchConfig, TrainerConfig, TrainingConfig
from seq2seq.engine import Engine, Source
from seq2seq.model.build import build_model
from seq2seq.text.batching import Batch, collate
from seq2seq.training.callbacks import Budget, FiniteGuard, RunningAverage, StopSignals
from seq2seq.training.module import TranslationModule
from seq2seq.training.monitor import Meter

META = torch.device("meta")
NUMBER = 5  # stands in for every whole number: as many live hypotheses as the beam, a token that is not EOS
VOCAB_SIZE = 64
_READS: frozenset[Any] = frozenset(
    {
        Tensor.item,
        Tensor.tolist,
        Tensor.__bool__,
        Tensor.__int__,
        Tensor.__float__,
        Tensor.__index__,
        Tensor.cpu,
        Tensor.numpy,
        Tensor.nonzero,
        Tensor.masked_select,
        Tensor.unique,
        Tensor.equal,
        torch.nonzero,
        torch.masked_select,
        torch.unique,
        torch.equal,
    }
)
_MAKES: frozenset[Any] = frozenset({torch.tensor, torch.as_tensor, Tensor.new_tensor})
_INDEXES: frozenset[Any] = frozenset({Tensor.__getitem__, Tensor.__setitem__})


@dataclass(frozen=True, order=True)
class Transfer:
    """One kind of traffic between host and device."""

    what: str  # the function that made it
    line: str  # the line of code that called it
    waits: bool  # whether the host waits for the device


@dataclass
class Counts:
    """Transfers of each update, or of each step of a search, and of what came before the first and after the last."""

    steps: list[Counter[Transfer]] = field(default_factory=list)
    around: Counter[Transfer] = field(default_factory=Counter)

    def most(self, *, waits: bool) -> int:
        """The most transfers of one step, of those that wait or of those that do not."""
        return max(sum(count for one, count in step.items() if one.waits == waits) for step in self.steps)


class Transfers(TorchFunctionMode):
    """Counts transfers between the host and a device while it is active; on `meta`, values get stand-ins."""

    def __init__(self, device: torch.device = META) -> None:
        super().__init__()
        self.device = device
        self.seen: Counter[Transfer] = Counter()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _READS and args[0].device == self.device:
            self._count(func.__name__)
            if self.device == META:
                return _stand_in(func, args[0])
        elif func in _MAKES and self._is_made_there(func, args, kwargs):
            self._count(func.__name__)
        elif func is Tensor.to and (target := _target(args[1:], kwargs)) not in (None, args[0].device):
            self._count("to", waits=target.type == "cpu" or not kwargs.get("non_blocking"))
            if target.type == "cpu":
                return torch.zeros(args[0].shape, dtype=args[0].dtype)
        elif func in _INDEXES and args[0].device == self.device and any(map(_is_data, _indexes(args[1]))):
            self._count("index")
            if self.device == META and func is Tensor.__getitem__:
                return args[0].flatten(0, args[1].ndim - 1)  # as if all were wanted
        return func(*args, **kwargs)

    def _is_made_there(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        default = args[0].device if func is Tensor.new_tensor else "cpu"
        return torch.device(kwargs.get("device") or default) == self.device

    def _count(self, what: str, *, waits: bool = True) -> None:
        self.seen[Transfer(what, _line(), waits)] += 1


def _target(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The device that `Tensor.to` was given, if any."""
    given = [one for one in (*args, kwargs.get("device")) if isinstance(one, (str, torch.device))]
    return torch.device(given[0]) if given else None


def _indexes(index: Any) -> Sequence[Any]:
    return cast(Sequence[Any], index) if isinstance(index, tuple) else (index,)


def _is_data(index: Any) -> bool:
    """Whether an index has to be read on the host or made there: a mask or a list."""
    return isinstance(index, list) or (isinstance(index, Tensor) and index.dtype == torch.bool)


def _stand_in(func: Any, x: Tensor) -> Any:
    """What a request for values gets.

    Raises:
        RuntimeError: the answer would have a shape that depends on values.
    """
    whole = not x.dtype.is_floating_point
    if func is Tensor.tolist:
        return torch.full(x.shape, NUMBER if whole else 1.0, dtype=x.dtype, device="cpu").numpy().tolist()
    if func is Tensor.cpu:
        return torch.zeros(x.shape, dtype=x.dtype)
    answers: dict[Any, Any] = {
        Tensor.__bool__: True,
        Tensor.__float__: 1.0,
        Tensor.__int__: NUMBER,
        Tensor.__index__: NUMBER,
        Tensor.item: NUMBER if whole else 1.0,
    }
    if func not in answers:
        raise RuntimeError(f"{func.__name__} at {_line()} needs values")
    return answers[func]


def _line() -> str:
    """The innermost line of the project, or else of Lightning or PyTorch's optimizers, that is being run."""
    frame, found = sys._getframe(1), ""
    while frame:
        path = Path(frame.f_code.co_filename)
        for package in ("seq2seq", "lightning", "torch/optim"):
            if f"/{package}/" in path.as_posix() and (not found or package == "seq2seq"):
                found = f"{package}/{path.as_posix().rpartition(f'/{package}/')[2]}:{frame.f_lineno}"
                if package == "seq2seq":
                    return found
        frame = cast(Any, frame.f_back)
    return found or "elsewhere"


@contextmanager
def as_on_a_gpu() -> Iterator[Transfers]:
    """Count transfers, on a `meta` device that has the fused optimizer and no autocast."""
    enabled, autocast = torch.is_autocast_enabled, torch.autocast

    def is_enabled(device: str = "cpu") -> bool:
        return device != "meta" and enabled(device)

    def cast_for(device: str, *args: Any, **kwargs: Any) -> Any:
        return autocast("cpu", enabled=False) if device == "meta" else autocast(device, *args, **kwargs)

    with (
        mock.patch.object(torch, "is_autocast_enabled", is_enabled),
        mock.patch.object(torch, "autocast", cast_for),
        mock.patch.object(
            sys.modules[Optimizer.__module__], "_get_fused_kernels_supported_devices", return_value=["meta"]
        ),
        Transfers() as transfers,
    ):
        yield transfers


class _Meta(Accelerator):
    """`meta`, as Lightning wants to know a device."""

    def setup_device(self, device: torch.device) -> None: ...

    def teardown(self) -> None: ...

    @staticmethod
    def parse_devices(devices: Any) -> int:
        return 1

    @staticmethod
    def get_parallel_devices(devices: Any) -> list[torch.device]:
        return [META]

    @staticmethod
    def auto_device_count() -> int:
        return 1

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def name() -> str:
        return "meta"

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        return {}


class _Updates(Callback):
    """Divides what was counted by batch."""

    def __init__(self, transfers: Transfers) -> None:
        self.transfers, self.counts = transfers, Counts()

    def on_train_batch_start(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
        self.counts.around += self.transfers.seen
        self.transfers.seen.clear()

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
        if trainer.global_step < trainer.max_steps:  # after the last one, the log is written
            self.counts.steps.append(self.transfers.seen.copy())
            self.transfers.seen.clear()


def train(model: ModelConfig, training: TrainingConfig, folder: Path, updates: int = 4) -> Counts:
    """Rehearse a training of so many updates and one validation, with the callbacks of a run that writes no files.

    A step is a batch; of the batch itself coming to the device nothing is counted.
    """
    rng = np.random.default_rng(0)
    batches = [_batch(rng) for _ in range(updates * training.accumulate)]
    config = Config(training=training, trainer=TrainerConfig(max_steps=updates))
    budget = Budget(updates, None)
    with as_on_a_gpu() as transfers:
        module = TranslationModule(build_model(model, VOCAB_SIZE), config.training)
        watch = _Updates(transfers)
        callbacks = [budget, StopSignals(), FiniteGuard(1000), Meter(1000, 1000, budget, show_bar=False)]
        callbacks += [RunningAverage(training.ema_decay)] if training.ema_decay else []
        trainer = L.Trainer(
            strategy=SingleDeviceStrategy(META, accelerator=_Meta()),
            max_steps=updates,
            accumulate_grad_batches=training.accumulate,
            callbacks=[*callbacks, watch],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        loader: Any = torch.utils.data.DataLoader(cast(Any, batches), batch_size=None)
        trainer.fit(module, loader, loader)
    watch.counts.around += transfers.seen
    return watch.counts


def _batch(rng: np.random.Generator) -> Batch:
    return collate([(rng.integers(4, VOCAB_SIZE, s), rng.integers(4, VOCAB_SIZE, t)) for s, t in ((5, 6), (4, 3))])


class _EnoughError(Exception):
    """The search has made as many steps as were wanted."""


def search(model: ModelConfig, settings: SearchConfig, sources: Sequence[Source], steps: int = 5) -> Counts:
    """Rehearse so many steps of a search."""
    seen: list[Counter[Transfer]] = []  # before the first step, in the first, …
    with as_on_a_gpu() as transfers:
        engine = Engine(build_model(model, VOCAB_SIZE).to(META), META, torch.float32)
        make_step: Callable[..., Any] = engine._step  # pyright: ignore[reportPrivateUsage] (what the search calls)

        def step(*args: Any) -> Any:
            seen.append(transfers.seen.copy())
            transfers.seen.clear()
            if len(seen) > steps:
                raise _EnoughError
            return make_step(*args)

        with mock.patch.object(engine, "_step", step), suppress(_EnoughError):
            list(engine.search(sources, settings, 1))
    return Counts(seen[1:], seen[0])


TRANSFORMER = ModelConfig(d_model=32, num_heads=4, d_ff=64)
MODELS = {
    "transformer": TRANSFORMER,
    "modern": replace(TRANSFORMER, norm_position="pre", norm="rmsnorm", activation="swiglu", positions="rotary"),
    "lstm": ModelConfig(architecture="recurrent", d_model=32, num_encoder_layers=1, num_decoder_layers=1),
}
TRAINING: dict[str, dict[str, Any]] = {
    "plain": {},
    "R-Drop": {"r_drop": 5.0},
    "running average": {"ema_decay": 0.9},
    "two batches an update": {"accumulate": 2},
    "no clipping": {"clip_norm": 0.0},
}
SEARCHES: dict[str, dict[str, Any]] = {
    "beam": {},
    "beam, early stopping": {"early_stopping": True},
    "greedy": {"beam": 1},
    "sampling": {"sampling": True},
    "diverse": {"beam": 4, "groups": 2},
    "coverage": {"coverage_penalty": 0.2},
    "rules": {"no_repeat_ngram": 2, "repetition_penalty": 1.2, "min_length": 2},
    "greedy with rules": {"beam": 1, "no_repeat_ngram": 2, "repetition_penalty": 1.2, "min_length": 2},
    "sampling with rules": {"sampling": True, "no_repeat_ngram": 2, "min_length": 2},
    "prefix": {},
    "phrases": {},
}


def training_config(changes: dict[str, Any]) -> TrainingConfig:
    """A rehearsed training's settings."""
    return TrainingConfig(**{"max_tokens": 64, "learning_rate": 1e-3, "warmup_steps": 2, **changes})


def sources(kind: str) -> list[Source]:
    """Two sentences for a search of `SEARCHES`."""
    wanted: dict[str, Any] = {"prefix": {"prefix": [7]}, "phrases": {"phrases": [[7, 8, 9, 10, 11, 12]]}}.get(kind, {})
    return [Source([7, 8, 9], **wanted), Source([7, 8, 9, 10], **wanted)]


def run() -> dict[str, Any]:
    """Rehearse every kind of update and of search with every model: counts, and the lines that make them."""
    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=UserWarning, module="lightning")
    found: dict[str, list[Counts]] = {}
    for kind, changes in TRAINING.items():
        with TemporaryDirectory() as folder:
            trained = [train(model, training_config(changes), Path(folder)) for model in MODELS.values()]
        found[f"update: {kind}"] = trained
    for kind, changes in SEARCHES.items():
        searched = [search(model, SearchConfig(**changes), sources(kind)) for model in MODELS.values()]
        found[f"step of a search: {kind}"] = searched
    rows = [
        [kind, *(f"{one.most(waits=True)} + {one.most(waits=False)}" for one in of_models)]
        for kind, of_models in found.items()
    ]
    title = "At most so often the host waits for the device + copies to it without waiting"
    lines = {
        kind: sorted({f"{one.what} at {one.line}" for counts in of_models for step in counts.steps for one in step})
        for kind, of_models in found.items()
    }
    return {"lines": lines, "tables": [asdict(Table(title, ["", *MODELS], rows))]}
