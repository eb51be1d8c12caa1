"""A recurrent model learns what needs its attention, and two processes train it like one."""

from pathlib import Path
from typing import cast

import lightning as L
import numpy as np
import pytest
import torch
from launcher import Launcher
from small_run import PAIR, VARIANTS, logged

from seq2seq.data.batching import collate
from seq2seq.model.build import build_model
from seq2seq.search.types import Source
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.training.module import TranslationModule
from seq2seq.translate.engine import Engine

pytestmark = pytest.mark.system
V, UPDATES = 16, 300


class OneDevice:
    """What the module asks of its trainer."""

    world_size = accumulate_grad_batches = 1


def strings(rng: np.random.Generator, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return strings and their reversals."""
    sources = [rng.integers(4, V, rng.integers(3, 9)) for _ in range(count)]
    return [(ids, ids[::-1].copy()) for ids in sources]


def test_it_learns_to_reverse_strings() -> None:
    torch.manual_seed(1)
    config = ModelConfig(architecture="recurrent", d_model=64, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0)
    model = build_model(config, V)
    module = TranslationModule(model.train(), TrainingConfig(max_tokens=300, learning_rate=7e-4, label_smoothing=0.0))
    module.trainer = cast(L.Trainer, OneDevice())
    optimizer = module.configure_optimizers()
    assert isinstance(optimizer, torch.optim.Optimizer)
    rng = np.random.default_rng(0)
    for step in range(UPDATES):
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * min(1, (step + 1) / 50) * (1 - step / UPDATES)
        optimizer.zero_grad()
        module.training_step(collate(strings(rng, 32)), step).backward()
        module.configure_gradient_clipping(optimizer)
        optimizer.step()
    unseen = strings(rng, 200)
    engine = Engine(model, torch.device("cpu"), torch.float32)
    settings = SearchConfig(beam=2, max_length_ratio=0.0, max_length_offset=12)
    batches = engine.search([Source(src.tolist()) for src, _ in unseen], settings, 1)
    translations = {index: hypotheses[0].ids for batch in batches for index, hypotheses in batch}
    exact = sum(translations[index] == tgt.tolist() for index, (_, tgt) in enumerate(unseen))
    assert exact >= 0.99 * len(unseen)


def test_two_processes_train_like_one(workdir: Path, launcher: Launcher) -> None:
    sets = (*VARIANTS["recurrent"], "model.dropout=0", "trainer.max_steps=3", "trainer.precision=32-true")
    one = launcher.train(*sets, "name=one", "training.accumulate=2", cwd=workdir)
    two = launcher.train(*sets, "name=two", *PAIR, cwd=workdir)
    assert (one.status, two.status) == (0, 0), one.output + two.output
    rows = [logged(workdir / "runs" / name, "grad_norm") for name in ("one", "two")]
    measures = [[float(value) for row in run for value in row] for run in rows]  # update, loss and gradient's norm
    assert len(rows[0]) == 3
    assert measures[0] == pytest.approx(measures[1], rel=1e-4)
