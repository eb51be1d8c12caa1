import copy

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from seq2seq.model.transformer import Transformer
from seq2seq.settings.model import ModelConfig
from seq2seq.text.batching import Batch, collate
from seq2seq.training.loss import cross_entropy
from seq2seq.training.recompute import recompute_layers


def model_of(**changes: object) -> Transformer:
    values = {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_encoder_layers": 2, "num_decoder_layers": 2, **changes}
    torch.manual_seed(0)
    return Transformer(ModelConfig(dropout=0.2, attention_dropout=0.1, ffn_dropout=0.1, **values), 30)  # type: ignore[arg-type]


def batch_of(*lengths: tuple[int, int]) -> Batch:
    rng = np.random.default_rng(0)
    return collate([(rng.integers(4, 30, s), rng.integers(4, 30, t)) for s, t in lengths])


def gradients(model: Transformer, batch: Batch) -> dict[str, Tensor]:
    torch.manual_seed(1)  # of dropout
    loss, _, _ = cross_entropy(model(batch.src, batch.tgt_in), model.embedding.weight, batch.tgt_out, pad=0)
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def kept_by_forward(model: Transformer, batch: Batch) -> int:
    """Bytes that are there after a forward pass and were not before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured:
        hidden = model(batch.src, batch.tgt_in)
    assert hidden.requires_grad
    return sum(event.self_cpu_memory_usage for event in measured.key_averages())


@pytest.mark.parametrize("changes", [{}, {"norm_position": "pre", "activation": "swiglu", "positions": "rotary"}])
def test_gradients_are_the_very_same_with_dropout_too(changes: dict[str, object]) -> None:
    batch = batch_of((5, 3), (4, 6), (2, 2))
    kept, computed = model_of(**changes), model_of(**changes)
    recompute_layers(computed)
    expected, recomputed = gradients(kept, batch), gradients(computed, batch)
    assert recomputed.keys() == expected.keys()
    assert all(torch.equal(recomputed[name], expected[name]) for name in expected)


@pytest.mark.slow
def test_a_layers_activations_are_not_kept() -> None:
    batch = batch_of(*[(20, 20)] * 6)
    kept, computed = (model_of(num_encoder_layers=4, num_decoder_layers=4) for _ in range(2))
    recompute_layers(computed)
    assert kept_by_forward(computed, batch) < 0.25 * kept_by_forward(kept, batch)


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
