"""A recurrent model learns what needs its attention, and its runs are runs like all others."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import lightning as L
import numpy as np
import pytest
import torch
from launcher import Launcher

from seq2seq.engine import Engine
from seq2seq.interface import Source
from seq2seq.model.build import build_model
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.batching import collate
from seq2seq.training.module import TranslationModule
from seq2seq.translator import Translator
from tests.toy import PAIRS, write_corpus

pytestmark = pytest.mark.system
V, UPDATES = 16, 300


class OneDevice:
    """What the module asks of its trainer."""

    world_size = accumulate_grad_batches = 1


def strings(rng: np.random.Generator, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Strings and themselves reversed."""
    drawn = [rng.integers(4, V, rng.integers(3, 9)) for _ in range(count)]
    return [(ids, ids[::-1].copy()) for ids in drawn]


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
        optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = (
            5e-3 * min(1, (step + 1) / 50) * (1 - step / UPDATES)
        )
        optimizer.zero_grad()
        module.training_step(collate(strings(rng, 32)), step).backward()
        module.configure_gradient_clipping(optimizer)
        optimizer.step()
    unseen = strings(rng, 200)
    engine = Engine(model, torch.device("cpu"), torch.float32)
    settings = SearchConfig(beam=2, max_length_ratio=0.0, max_length_offset=12)
    batches = engine.search([Source(src.tolist()) for src, _ in unseen], settings, 1)
    found = {index: best[0].ids for batch in batches for index, best in batch}
    exact = sum(found[index] == tgt.tolist() for index, (_, tgt) in enumerate(unseen))
    assert exact >= 0.99 * len(unseen)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


BASE = (
    "model=lstm",
    "model.d_model=16",
    "data=files",
    "data.train=[train.tsv]",
    "data.validation=[validation.tsv]",
    "data.test=[test.tsv]",
    "data.remove_overlap=false",
    "tokenizer.vocab_size=300",
    "training.max_tokens=256",
    "training.bleu_sentences=4",
    "trainer.max_steps=12",
    "trainer.validate_every=6",
    "trainer.checkpoint_every=5",
    "trainer.log_every=1",
)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoints/step=0000012.ckpt", weights_only=True)["state_dict"]


def test_a_killed_run_goes_on_to_the_very_same_weights(place: Path, launcher: Launcher) -> None:
    straight = launcher.train(*BASE, "name=straight", cwd=place)
    assert straight.status == 0, straight.output
    killed = launcher.train(*BASE, "name=killed", cwd=place, until="update 7 ")
    assert killed.status == -9, killed.output
    resumed = launcher.train("resume=runs/killed", cwd=place)
    assert resumed.status == 0, resumed.output
    once, again = weights(place / "runs/straight"), weights(place / "runs/killed")
    assert all(torch.equal(again[name], tensor) for name, tensor in once.items())
    results = json.loads((place / "runs/straight/results.json").read_text())
    assert results["model"]["architecture"] == "recurrent"
    assert "A recurrent encoder–decoder (LSTM)" in (place / "runs/straight/model/README.md").read_text()
    assert len(Translator.load(place / "runs/straight/model").translate([PAIRS[0][0]])) == 1


def test_two_processes_train_like_one(place: Path, launcher: Launcher) -> None:
    common = ("model.dropout=0", "training.keep_best=0", "trainer.max_steps=3", "trainer.precision=32-true")
    one = launcher.train(*BASE, *common, "name=one", "training.accumulate=2", cwd=place)
    two = launcher.train(
        *BASE, *common, "name=two", "trainer=ddp", "trainer.devices=2", "trainer.accelerator=cpu", cwd=place
    )
    assert (one.status, two.status) == (0, 0), one.output + two.output
    losses = []
    for name in ("one", "two"):
        with (place / f"runs/{name}/metrics.csv").open() as file:
            losses.append([float(row["loss"]) for row in csv.DictReader(file) if row["loss"]])
    assert len(losses[0]) == 3
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
