import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seq2seq.model import transformer
from seq2seq.model.packed import can_pack, missing_rows, pack
from seq2seq.model.transformer import Transformer
from seq2seq.settings.model import ModelConfig

needs_packing = pytest.mark.skipif(not can_pack(torch.float32), reason="this PyTorch cannot pack weights")


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


def test_rows_are_padded_to_few_numbers() -> None:
    numbers = {rows + missing_rows(rows) for rows in range(1, 201)}
    assert numbers == {4, 8, 12, *range(16, 209, 16)}
    assert all(0 <= missing_rows(rows) < 16 for rows in range(200))


@needs_packing
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(8, 1), (48, 1), (5, 1), (16, 3)])
def test_packed_maps_are_the_same_maps_side_by_side(bias: bool, shape: tuple[int, int]) -> None:
    first, second, x = nn.Linear(16, 40, bias=bias), nn.Linear(16, 8, bias=bias), torch.randn(*shape, 16)
    assert_close(pack([first, second], torch.float32)(x), torch.cat((first(x), second(x)), -1))


@needs_packing
@pytest.mark.parametrize("rows", [1, 5, 16, 17])
def test_a_packed_model_gives_the_same_logits(model: Transformer, rows: int) -> None:
    packed, low = copy.deepcopy(model).pack(torch.float32), copy.deepcopy(model).pack(torch.bfloat16)  # if it can be
    src, tgt_in = torch.randint(4, 40, (rows, 7)), torch.randint(4, 40, (rows, 5))
    whole, state, states = model.decode(tgt_in, model.encode(src))[0], packed.encode(src), low.encode(src)
    for step in range(5):
        logits, state = packed.decode(tgt_in[:, step : step + 1], state)
        assert_close(logits[:, 0], whole[:, step])
        with torch.autocast("cpu", torch.bfloat16):
            lower, states = low.decode(tgt_in[:, step : step + 1], states)
        assert_close(lower[:, 0].float(), whole[:, step], atol=0.05, rtol=0.05)
    assert_close(packed.decode(tgt_in, packed.encode(src))[0], whole)


@needs_packing
def test_packed_rows_go_on_from_chosen_ones(model: Transformer) -> None:
    packed, src = copy.deepcopy(model).pack(torch.float32), torch.randint(4, 40, (3, 7))
    states = [one.decode(src[:, :1], one.encode(src).watching())[1] for one in (model, packed)]
    for rows, counts in (([0, 0, 1, 1, 1, 2], [2, 3, 1]), ([1, 4, 2, 5, 5], [1, 2, 2]), ([0, 2], [1, 0, 1])):
        ids = torch.randint(4, 40, (len(rows), 1))
        steps = [
            one.decode(ids, state.reorder(torch.tensor(rows), counts))
            for one, state in zip((model, packed), states, strict=True)
        ]
        states = [state for _, state in steps]
        assert_close(steps[1][0], steps[0][0])
        assert_close(states[1].attention, states[0].attention)


def test_without_the_operators_a_model_stays_as_it_is(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    before = logits(model)
    monkeypatch.setattr(transformer, "can_pack", lambda dtype: False)
    assert torch.equal(logits(model.pack(torch.float32)), before)
