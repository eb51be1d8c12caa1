import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seq2seq.config import ModelConfig
from seq2seq.model import transformer
from seq2seq.model.packed import PackedLinear, can_pack
from seq2seq.model.transformer import Transformer

needs_packing = pytest.mark.skipif(not can_pack(), reason="this PyTorch cannot pack weights")


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "d_model": 16,
        "num_heads": 2,
        "d_ff": 32,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
    }
    return Transformer(ModelConfig(**sizes), 40).eval()


def logits(model: Transformer) -> torch.Tensor:
    src, tgt_in = torch.arange(4, 18).view(2, 7), torch.arange(4, 14).view(2, 5)
    with torch.no_grad():
        return model.decode(tgt_in, model.encode(src))[0]


@needs_packing
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 5, 33])
def test_a_packed_map_is_the_same_map(bias: bool, rows: int) -> None:
    linear, x = nn.Linear(16, 40, bias=bias), torch.randn(2, rows, 16)
    packed = PackedLinear(linear.weight, linear.bias, torch.float32)
    assert_close(packed(x), linear(x))


@needs_packing
def test_a_packed_model_gives_the_same_logits(model: Transformer) -> None:
    packed = copy.deepcopy(model).pack(torch.float32)
    assert not any(isinstance(module, nn.Linear) for module in packed.modules())
    assert_close(logits(packed), logits(model))
    low = copy.deepcopy(model).pack(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(logits(low).float(), logits(model).float(), atol=0.05, rtol=0.05)


def test_without_the_operators_a_model_stays_as_it_is(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    before = logits(model)
    monkeypatch.setattr(transformer, "can_pack", lambda: False)
    assert torch.equal(logits(model.pack(torch.float32)), before)
