"""What training does on a GPU only, done on the CPU: the loss and every gradient stay what they are."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from seq2seq.data.batching import Batch, Shape, gather
from seq2seq.data.dataset import Pairs
from seq2seq.model import attention
from seq2seq.model.build import build_model
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.training import loss as loss_file
from seq2seq.training.module import TranslationModule

V = 40
LENGTHS = ((5, 9), (13, 4), (1, 1), (8, 17))  # tokens of each source and target


def make_module(r_drop: float = 0.0, **changes: Any) -> TranslationModule:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "num_heads": 4, "d_ff": 24, "num_encoder_layers": 2, "num_decoder_layers": 2}
    config = ModelConfig(**sizes, dropout=0.0, attention_dropout=0.0, ffn_dropout=0.0, **changes)
    training = TrainingConfig(max_tokens=128, learning_rate=1e-3, label_smoothing=0.1)
    module = TranslationModule(build_model(config, V), training).double()
    module.config.r_drop = r_drop  # which its settings refuse without dropout
    return module.train()


def make_batch(shape: Shape | None = None) -> Batch:
    rng = np.random.default_rng(0)
    src, tgt = zip(*((rng.integers(4, V, s), rng.integers(4, V, t)) for s, t in LENGTHS), strict=True)
    return gather(Pairs.of(src, tgt), np.arange(len(LENGTHS)), shape=shape)


def loss_and_gradients(module: TranslationModule, batch: Batch) -> list[Tensor]:
    module.zero_grad()
    loss = module.training_step(batch, 0)
    loss.backward()
    assert module.last_nll is not None
    gradients = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    return [loss.detach(), module.last_nll, *gradients]


STYLES: dict[str, dict[str, Any]] = {
    "vaswani": {},
    "modern": {"norm_position": "pre", "norm": "rmsnorm", "activation": "swiglu", "positions": "rotary"},
    "no causal mask": {"decoder_mask": "none"},
    "no source": {"cross_attention": "none"},
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("r_drop", [0.0, 5.0])
def test_a_gpus_way_of_training_changes_no_loss_and_no_gradient(style, r_drop, monkeypatch):
    module, fused, keys = make_module(r_drop, **STYLES[style]), F.scaled_dot_product_attention, list[Tensor]()
    with monkeypatch.context() as textbook:
        textbook.setattr(attention, "uses_fused_kernel", lambda *_: False)
        expected = loss_and_gradients(module, make_batch())
    assert len(expected) > 20
    monkeypatch.setattr(loss_file, "LEAVES_OUT_PADDING", ())

    def recorded(query: Tensor, key: Tensor, value: Tensor, *arguments: Any, **options: Any) -> Tensor:
        keys.append(key)
        return fused(query, key, value, *arguments, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", recorded)
    for batch in (make_batch(), make_batch(Shape(8, 20))):  # on the ladder, with rows that no pair needs
        assert_close(loss_and_gradients(module, batch), expected, atol=1e-6, rtol=1e-6)
    assert {key.shape[2] for key in keys} == {14, 18, 20}
