"""Layers that are computed again for the backward pass give the same gradients and keep less memory."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor

from seq2seq.data.batching import Batch, collate
from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.model import ModelConfig
from seq2seq.training.loss import cross_entropy
from seq2seq.training.run import recompute_layers

TRANSFORMER = {"num_heads": 2, "d_ff": 32, "ffn_dropout": 0.1}
KINDS = {
    "vaswani": TRANSFORMER,
    "modern": TRANSFORMER | {"norm_position": "pre", "activation": "swiglu", "positions": "rotary"},
    "recurrent": {"architecture": "recurrent"},
    "recurrent without attention": {"architecture": "recurrent", "attention": "none"},
}


def model_of(kind: str = "vaswani") -> EncoderDecoder:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "num_encoder_layers": 2, "num_decoder_layers": 2}
    config = ModelConfig(**sizes, dropout=0.2, attention_dropout=0.1, **KINDS[kind])  # type: ignore[arg-type]
    return build_model(config, 30)


def batch_of(*lengths: tuple[int, int]) -> Batch:
    rng = np.random.default_rng(0)
    return collate([(rng.integers(4, 30, s), rng.integers(4, 30, t)) for s, t in lengths])


def gradients(model: EncoderDecoder, batch: Batch) -> tuple[dict[str, Tensor], int]:
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
    (expected, kept), (recomputed, kept_then) = gradients(plain, batch), gradients(computed, batch)
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
