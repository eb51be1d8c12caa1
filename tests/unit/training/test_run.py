"""What a run can switch on: few batches, a trial, checks of gradients, times, layers that are computed again."""

import copy
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from torch import Tensor

from seq2seq.apps.train import show_model, train
from seq2seq.data.batching import Batch, collate
from seq2seq.data.loading import first_batches, training_feed, validation_loaders
from seq2seq.errors import UserError
from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.compose import compose
from seq2seq.settings.config import Config
from seq2seq.settings.model import ModelConfig
from seq2seq.training.loss import cross_entropy
from seq2seq.training.run import recompute_layers
from tests.toy import FILES, TINY, write_corpus
from tests.unit.saved_runs import make_run
from tests.unit.training.resuming import changed, run

KEPT, STEP = "trainer.fast_dev_run tries a new run and keeps nothing of it: leave out ", "SingleDeviceStrategy.train"
TRANSFORMER = {"num_heads": 2, "d_ff": 32, "ffn_dropout": 0.1}
KINDS = {
    "vaswani": TRANSFORMER,
    "modern": TRANSFORMER | {"norm_position": "pre", "activation": "swiglu", "positions": "rotary"},
    "recurrent": {"architecture": "recurrent"},
    "recurrent without attention": {"architecture": "recurrent", "attention": "none"},
}


@pytest.mark.parametrize("weights", [{}, {"train": 2.0}])
def test_few_batches_are_trained_on_again_and_again_and_validated(config, data, weights):
    config = replace(changed(config, overfit_batches=2), data=replace(config.data, weights=weights))
    few = first_batches(config, data)
    feed = training_feed(config, few, rank=0, world_size=1, pin=False)
    batches = [
        pairs_of(batch) for batch in (*islice(feed, 8), *validation_loaders(config, few, rank=0, world_size=1)[0])
    ]
    assert len(batches[0] | batches[1]) == len(few.train) == few.report["sizes"]["train"] < 28
    assert all(batches[i] | batches[i + 1] == batches[0] | batches[1] for i in range(0, len(batches), 2))
    assert few.validation_pairs[0][0].startswith("The ")


def test_a_run_without_test_translations_ends_with_its_commands(config: Config, tmp_path: Path, capsys: Any) -> None:
    show_model(config, make_run(tmp_path / "run", config, results=6))
    assert re.fullmatch(r"\nWhat to type next:\n  .* --model \S+ .*\n  .* resume=\S+ .*\n", capsys.readouterr().err)


def pairs_of(batch: Batch) -> set[str]:
    return {
        str([src, tgt]).replace(", 0", "") for src, tgt in zip(batch.src.tolist(), batch.tgt_out.tolist(), strict=True)
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*")
def test_a_trial_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_corpus(tmp_path))
    before, cache = sorted(path.name for path in tmp_path.iterdir()), f"data.cache={tmp_path.parent / 'cache'}"
    trial = train(*FILES, *TINY, cache, "training.bleu_sentences=1", "trainer.fast_dev_run=3", "name=trial")
    assert (trial.best, sorted(path.name for path in tmp_path.iterdir())) == (None, before)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        *((("fast_dev_run=1", word), KEPT + word.partition("=")[0]) for word in ("resume=runs/a", "analyse=true")),
        (("fast_dev_run=1", "trainer.overfit_batches=1"), f"{KEPT}trainer.overfit_batches"),
        (("fast_dev_run=1", "trainer.profiler=simple"), f"{KEPT}trainer.profiler"),
        (("overfit_batches=-1",), "trainer.overfit_batches=-1 must be at least 0"),
        (
            ("detect_anomaly=true", "trainer.replay=true"),
            "trainer.replay=true .*, not with trainer.detect_anomaly=true",
        ),
    ],
)
def test_switches_that_contradict_a_setting_are_refused(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        compose([f"trainer.{overrides[0]}", *overrides[1:]])


class Broken(L.Callback):
    """A weight that is not a number, before the second update."""

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Batch, batch_idx: int) -> None:
        if trainer.global_step == 1:
            pl_module.model.encoder_layers[0].self_attention.out_proj.weight.data[0] = torch.nan


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize(
    ("looks", "message"), [(False, "the loss is not a number"), (True, r"Function '\w+' returned nan .* above")]
)
def test_the_first_wrong_gradient_is_named(looks, message, config, data, tmp_path):
    with pytest.raises(UserError, match=message):
        run(changed(config, detect_anomaly=looks), data, tmp_path, None, Broken())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize(("profiler", "words"), [("simple", STEP), ("advanced", STEP), ("pytorch", "Self CPU time")])
def test_the_times_of_training_are_written(profiler, words, config, data, tmp_path):
    run(changed(config, profiler=profiler, max_steps=2), data, tmp_path)
    assert words in (tmp_path / "fit-profile.txt").read_text()


def model_of(kind: str = "vaswani") -> EncoderDecoder:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "num_encoder_layers": 2, "num_decoder_layers": 2}
    config = ModelConfig(**sizes, dropout=0.2, attention_dropout=0.1, **KINDS[kind])  # type: ignore[arg-type]
    return build_model(config, 30)


def batch_of(*lengths: tuple[int, int]) -> Batch:
    rng = np.random.default_rng(0)
    return collate([(rng.integers(4, 30, s), rng.integers(4, 30, t)) for s, t in lengths])


def gradients_of(model: EncoderDecoder, batch: Batch) -> tuple[dict[str, Tensor], int]:
    """Return the gradients, and how many numbers were kept for the backward pass."""
    sizes: list[int] = []
    torch.manual_seed(1)  # of dropout
    with torch.autograd.graph.saved_tensors_hooks(
        lambda kept: (sizes.append(kept.numel()), kept)[1], lambda kept: kept
    ):
        hidden = model(batch.src, batch.tgt_in)
    loss, _, _ = cross_entropy(hidden, model.embedding.weight, batch.tgt_out, pad=0)
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}, sum(sizes)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_the_very_same_with_dropout_too_and_activations_are_not_kept(kind: str) -> None:
    batch = batch_of((5, 3), (4, 6), (2, 2))
    plain, computed = model_of(kind), model_of(kind)
    recompute_layers(computed)
    (expected, kept), (recomputed, kept_then) = gradients_of(plain, batch), gradients_of(computed, batch)
    assert recomputed.keys() == expected.keys() == dict(plain.named_parameters()).keys()
    assert all(torch.equal(recomputed[name], expected[name]) for name in expected)
    assert kept_then < 0.5 * kept


def test_a_copy_computes_with_its_own_weights() -> None:
    model = model_of().eval()
    recompute_layers(model)
    copied = copy.deepcopy(model)
    batch = batch_of((5, 3))
    before = copied(batch.src, batch.tgt_in)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(copied(batch.src, batch.tgt_in), before)
