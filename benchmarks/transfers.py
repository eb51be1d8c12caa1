"""Waits of the host for a GPU in an update and in a step of a search, counted without a GPU."""

import logging
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import lightning as L
import numpy as np
import torch
from lightning.pytorch.accelerators.cpu import CPUAccelerator
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import SingleDeviceStrategy

from benchmarks.command import Options, Results, Table
from benchmarks.meta_device import META, Counts, Transfer, Transfers, as_on_a_gpu
from seq2seq.data.batching import collate
from seq2seq.model.build import build_model
from seq2seq.search.types import Source
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.training.callbacks import Budget, RunningAverage
from seq2seq.training.module import TranslationModule
from seq2seq.training.progress_log import Meter
from seq2seq.training.replay import Recorder
from seq2seq.translate.engine import Engine

VOCAB_SIZE = 64
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
    "rules": {"no_repeat_ngram": 2, "min_length": 2},
    "greedy with rules": {"beam": 1, "no_repeat_ngram": 2, "min_length": 2},
    "sampling with rules": {"sampling": True, "no_repeat_ngram": 2, "min_length": 2},
    "prefix": {},
    "phrases": {},
}


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `transfers`: only the common ones; --device changes nothing."""


def run(plan: Plan, device: torch.device) -> Results:
    """Rehearse every kind of update and search with every model; count transfers, and list their lines of code."""
    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=UserWarning, module="lightning")
    found: dict[str, list[Counts]] = {}
    for kind, changes in TRAINING.items():
        with TemporaryDirectory() as folder:
            counts = [train(model, training_config(changes), Path(folder)) for model in MODELS.values()]
        found[f"update: {kind}"] = counts
    for kind, changes in SEARCHES.items():
        counts = [search(model, SearchConfig(**changes), sources(kind)) for model in MODELS.values()]
        found[f"step of a search: {kind}"] = counts
    rows = [
        [kind, *(f"{one.most(waits=True)} + {one.most(waits=False)}" for one in counts)]
        for kind, counts in found.items()
    ]
    lines = {
        kind: sorted({f"{seen.what} at {seen.line}" for one in counts for step in one.steps for seen in step})
        for kind, counts in found.items()
    }
    title = "At most so often the host waits for the device + copies to it without waiting"
    return {"lines": lines}, [Table(title, ["", *MODELS], rows)]


def training_config(changes: dict[str, Any]) -> TrainingConfig:
    """Return the settings of a rehearsed training."""
    return TrainingConfig(**{"max_tokens": 64, "learning_rate": 1e-3, "warmup_steps": 2, **changes})


def sources(kind: str) -> list[Source]:
    """Return two source sentences for a search of `SEARCHES`."""
    wanted: dict[str, Any] = {"prefix": {"prefix": [7]}, "phrases": {"phrases": [[7, 8, 9, 10, 11, 12]]}}.get(kind, {})
    return [Source([7, 8, 9], **wanted), Source([7, 8, 9, 10], **wanted)]


class _Meta(CPUAccelerator):
    """The device `meta` as an accelerator of Lightning."""

    def setup_device(self, device: torch.device) -> None: ...  # the CPU's accelerator refuses other devices


class _Updates(Callback):
    """Assigns the counted transfers to batches."""

    def __init__(self, transfers: Transfers) -> None:
        self.transfers, self.counts = transfers, Counts()

    def on_train_batch_start(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
        self.counts.around += self.transfers.seen
        self.transfers.seen.clear()

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
        if trainer.global_step < trainer.max_steps:  # after the last update, Lightning writes the log
            self.counts.steps.append(self.transfers.seen.copy())
            self.transfers.seen.clear()


def train(
    model: ModelConfig, training: TrainingConfig, folder: Path, updates: int = 4, recorder: Recorder | None = None
) -> Counts:
    """Return the transfers of a rehearsed training with `updates` updates and one validation.

    The training has the callbacks of a run that writes no files. A step is a batch. Moving the batch itself to the
    device does not count.
    """
    rng = np.random.default_rng(0)
    batches = [
        collate([(rng.integers(4, VOCAB_SIZE, src), rng.integers(4, VOCAB_SIZE, tgt)) for src, tgt in ((5, 6), (4, 3))])
        for _ in range(updates * training.accumulate)
    ]
    budget = Budget(updates, None)
    with as_on_a_gpu() as transfers:
        module = TranslationModule(build_model(model, VOCAB_SIZE), training, recorder=recorder)
        watch = _Updates(transfers)
        callbacks = [budget, Meter(1000, 1000, budget)]
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


class _EnoughError(Exception):
    """Raised when the search has made the given number of steps."""


def search(model: ModelConfig, settings: SearchConfig, sources: Sequence[Source], steps: int = 5) -> Counts:
    """Return the transfers of the first steps of a rehearsed search."""
    seen: list[Counter[Transfer]] = []  # transfers before the first step, in the first step, …
    with as_on_a_gpu() as transfers:
        engine = Engine(build_model(model, VOCAB_SIZE).to(META), META, torch.float32)

        def count() -> None:
            seen.append(transfers.seen.copy())
            transfers.seen.clear()
            if len(seen) > steps:
                raise _EnoughError

        with suppress(_EnoughError):
            list(engine.search(sources, settings, 1, on_step=count))
    return Counts(seen[1:], seen[0])
