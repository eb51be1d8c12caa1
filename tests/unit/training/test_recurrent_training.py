"""A recurrent model is trained by the same code as a Transformer; what it cannot do is refused."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.batching import Batch, collate
from seq2seq.training import loss
from seq2seq.training.module import TranslationModule
from seq2seq.training.recompute import recompute_layers

V = 23
KINDS = ["additive", "none"]


def recurrent(attention: str = "additive", **changes: Any) -> EncoderDecoder:
    torch.manual_seed(3)
    sizes = {"d_model": 12, "num_encoder_layers": 2, "num_decoder_layers": 2, "dropout": 0.2, **changes}
    return build_model(ModelConfig(architecture="recurrent", attention=attention, **sizes), V)


def batch_of(*lengths: tuple[int, int]) -> Batch:
    rng = np.random.default_rng(0)
    return collate([(rng.integers(4, V, s), rng.integers(4, V, t)) for s, t in lengths])


BATCH = batch_of((5, 3), (4, 6), (2, 2))


def updated(model: EncoderDecoder, config: TrainingConfig, updates: int = 3) -> list[float]:
    """Train in place with what the module's optimizer holds; the losses."""
    module, losses = TranslationModule(model.train(), config), []
    optimizer = module.configure_optimizers()
    assert isinstance(optimizer, torch.optim.Optimizer)
    for step in range(updates):
        torch.manual_seed(step)
        computed = module.training_step(BATCH, step)
        computed.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(computed.detach()))
    return losses


def gradients(model: EncoderDecoder) -> dict[str, Tensor]:
    torch.manual_seed(1)  # of dropout
    model.zero_grad()
    hidden = model(BATCH.src, BATCH.tgt_in)
    loss.cross_entropy(hidden, model.embedding.weight, BATCH.tgt_out, pad=0)[0].backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def saved(model: EncoderDecoder) -> int:
    """How many numbers are kept for the backward pass."""
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda kept: (sizes.append(kept.numel()), kept)[1], lambda kept: kept
    ):
        model(BATCH.src, BATCH.tgt_in)
    return sum(sizes)


@pytest.mark.parametrize("attention", KINDS)
def test_recomputed_activations_give_the_very_same_gradients(attention: str) -> None:
    kept, computed = recurrent(attention, attention_dropout=0.1), recurrent(attention, attention_dropout=0.1)
    recompute_layers(computed)
    expected, recomputed = gradients(kept), gradients(computed)
    assert recomputed.keys() == expected.keys() == dict(kept.named_parameters()).keys()
    assert all(torch.equal(recomputed[name], expected[name]) for name in expected)
    assert saved(computed) < 0.5 * saved(kept)
