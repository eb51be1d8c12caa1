"""`examples/minimal.py` computes what the package computes: batches, logits, loss, updates, searches, translations."""

import ast
import shutil
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import lightning as L
import minimal
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seq2seq import Translator
from seq2seq.data.batching import FixedBatches, plan_batches
from seq2seq.data.dataset import Pairs
from seq2seq.model.build import build_model
from seq2seq.model.transformer import Transformer
from seq2seq.search.types import Source
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.training.module import TranslationModule
from seq2seq.translate.engine import Engine
from tests.documented import REPOSITORY
from tests.thin import thin

MODEL = REPOSITORY / "data/model"
SOURCE = Path(minimal.__file__).read_text(encoding="utf-8")
MODERN: dict[str, Any] = {"norm_position": "pre", "activation": "swiglu", "positions": "rotary", "bias": False}
SIZES: dict[str, Any] = {
    "d_model": 24, "num_heads": 3, "d_ff": 36, "num_encoder_layers": 1, "num_decoder_layers": 2, "dropout": 0.0,
}  # fmt: skip
V, UPDATES, WARMUP, MAX_TOKENS = 60, 20, 5, 128
Models = tuple[minimal.Transformer, Transformer]


@pytest.fixture
def models() -> Models:
    """Both models with the same random weights."""
    torch.manual_seed(1)
    ours = build_model(ModelConfig(**SIZES, **MODERN), V)
    assert isinstance(ours, Transformer)
    theirs = minimal.Transformer(minimal.Config(vocab_size=V, **SIZES))
    theirs.load_state_dict(ours.state_dict())
    return theirs, ours


def random_pairs(number: int = 250) -> list[tuple[list[int], list[int]]]:
    rng = np.random.default_rng(2)
    return [
        (rng.integers(4, V, s).tolist(), rng.integers(4, V, t).tolist()) for s, t in rng.integers(1, 12, (number, 2))
    ]


def both_batches(seed: int) -> tuple[list[minimal.Batch], FixedBatches]:
    """The batches of an epoch: those of the example, and those of the package."""
    src, tgt = zip(*random_pairs(), strict=True)
    ended = [tuple(torch.tensor([*ids, minimal.EOS]) for ids in pair) for pair in random_pairs()]
    pairs, rng, order = Pairs.of(src, tgt), np.random.default_rng(seed), np.arange(len(src))
    rng.shuffle(order)
    ours = FixedBatches(pairs, plan_batches(pairs, order, MAX_TOKENS, rng))
    return minimal.make_batches(ended, MAX_TOKENS, np.random.default_rng(seed)), ours


def test_the_example_is_short_and_imports_four_packages() -> None:
    assert len(SOURCE.splitlines()) <= 300
    modules = [
        name
        for node in ast.walk(ast.parse(SOURCE))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [one.name for one in getattr(node, "names", [])]
        )
    ]
    packages = {name.split(".")[0] for name in modules} - sys.stdlib_module_names
    assert packages == {"numpy", "safetensors", "sentencepiece", "torch"}


@pytest.mark.parametrize("seed", [1, 2])
def test_batches_are_those_of_the_package(seed: int) -> None:
    theirs, ours = both_batches(seed)
    assert len(theirs) == len(ours) > 10
    for (src, tgt), batch in zip(theirs, ours, strict=True):
        assert_close((src, tgt), (batch.src, batch.tgt_out))


def test_logits_loss_and_gradients_are_those_of_the_package(models: Models) -> None:
    theirs, ours = models
    for batch in islice(both_batches(1)[1], 4):
        logits = theirs(batch.src, batch.tgt_in)
        assert_close(logits, ours.predict(batch.src, batch.tgt_in), atol=1e-6, rtol=1e-6)
        minimal.smoothed_loss(logits, batch.tgt_out).backward()
        loss, _, tokens = TranslationModule(ours, TrainingConfig()).loss(batch, 0.1)
        assert_close(minimal.smoothed_loss(logits, batch.tgt_out), loss / tokens, atol=1e-5, rtol=1e-5)
        (loss / tokens).backward()
        assert_close(gradients(theirs), gradients(ours), atol=1e-5, rtol=1e-5)


def gradients(model: torch.nn.Module) -> dict[str, Tensor | None]:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


class Progress(L.Callback):
    """Tells the package's learning rate which share of the updates is over, as `Budget` does."""

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        pl_module.progress = batch_idx / UPDATES


@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*the number of training batches")
@pytest.mark.filterwarnings("ignore:.*have no `val_dataloader")
def test_weights_after_twenty_updates_are_those_of_the_package(models: Models, tmp_path: Path) -> None:
    theirs, ours = models
    config = TrainingConfig(max_tokens=MAX_TOKENS, learning_rate=2e-3, warmup_steps=WARMUP)
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = L.Trainer(
        accelerator="cpu", max_steps=UPDATES, enable_model_summary=False, default_root_dir=tmp_path,
        callbacks=[Progress()], **quiet,
    )  # fmt: skip
    batches, ours_batches = both_batches(1)
    before = {name: weight.clone() for name, weight in ours.state_dict().items()}
    loader: Any = torch.utils.data.DataLoader(list(ours_batches), batch_size=None)  # type: ignore[arg-type]
    trainer.fit(TranslationModule(ours, config), loader)
    minimal.train(theirs, batches, UPDATES, WARMUP, peak_rate=2e-3)
    assert len(batches) >= UPDATES
    assert_close(theirs.state_dict(), dict(ours.state_dict()), atol=1e-5, rtol=0)
    assert all((weight - before[name]).abs().max() > 1e-3 for name, weight in ours.state_dict().items())


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize(("number", "max_length"), thin([(100, 30), (5, 30), (5, 4)], [(5, 30), (5, 4)]))
def test_searches_find_the_tokens_of_the_package(number: int, max_length: int, early_stopping: bool) -> None:
    translator, (model, _) = Translator.load(MODEL, "cpu"), minimal.load(MODEL)
    lines = (REPOSITORY / "data/bundled/everyday.test.tsv").read_text(encoding="utf-8").splitlines()[:number]
    sources = translator.tokenizer.source.encode([line.split("\t")[0] for line in lines])
    best = [
        minimal.beam_search(model, [*ids, minimal.EOS], max_length, early_stopping=early_stopping) for ids in sources
    ]
    settings = SearchConfig(max_length_ratio=0.0, max_length_offset=max_length, early_stopping=early_stopping)
    assert isinstance(translator.engine, Engine)
    for compiles in ("off", "on") if shutil.which("cc") else ("off",):
        engine = Engine(translator.engine.model, "cpu", torch.float32, compiles=compiles)
        batches = engine.search([Source(ids) for ids in sources], settings, 1)
        found = dict(result for batch in batches for result in batch)
        assert best == [found[index][0].ids for index in range(number)]


def test_the_published_model_translates_as_in_the_readme(capsys, monkeypatch):
    sentences = ["The black cat drank the milk.", "The ball is blue."]
    monkeypatch.setattr(sys, "argv", ["minimal.py", "--model", str(MODEL), *sentences])
    minimal.main()
    answers = capsys.readouterr().out.splitlines()
    assert answers == Translator.load(MODEL, "cpu").translate(sentences)
    assert f'$ python translate.py "{sentences[0]}"\n{answers[0]}\n' in (REPOSITORY / "README.md").read_text("utf-8")


@pytest.mark.slow
def test_a_model_is_trained_on_the_bundled_corpus() -> None:
    model, tokenizer = minimal.train_on_corpus(updates=4)
    assert tokenizer.vocab_size() == model.embedding.num_embeddings == 2000
