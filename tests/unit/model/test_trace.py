import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from seq2seq.model.attention import MultiHeadAttention, attend
from seq2seq.model.transformer import Transformer
from seq2seq.model.variants.trace import record_attention
from tests.unit.model.models import STYLES, make_transformer, pair

KINDS = STYLES | {"post-norm, rotary": {"positions": "rotary"}}


def make_model(**changes: Any) -> Transformer:
    return make_transformer(scale=8, num_decoder_layers=3, **changes)


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> Transformer:
    return make_model(**KINDS[request.param])


def test_recording_changes_no_output_and_ends_also_with_an_error(model: Transformer) -> None:
    src, tgt_in = pair()
    with torch.no_grad():
        expected = model(src, tgt_in)
        with record_attention(model.modules()) as calls:
            assert torch.equal(model(src, tgt_in), expected)
        assert len(calls) == 2 + 3 + 3
        with pytest.raises(RuntimeError), record_attention(model.modules()) as calls:
            raise RuntimeError
        model(src, tgt_in)
    assert calls == {}


def test_the_trace_has_every_layer_and_head_and_hides_padding_and_later_positions(model: Transformer) -> None:
    trace = model.traced(*pair())
    assert [tuple(weights.shape) for weights in trace.encoder] == [(2, 3, 7, 7)] * 2
    assert [tuple(weights.shape) for weights in trace.decoder] == [(2, 3, 5, 5)] * 3
    assert [tuple(weights.shape) for weights in trace.cross] == [(2, 3, 5, 7)] * 3
    for weights in (*trace.encoder, *trace.decoder, *trace.cross):
        assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    for weights in (*trace.encoder, *trace.cross):
        assert (weights[1, :, :, 5:] == 0).all()
        assert (weights[1, :, :, :5] > 0).all()
    for weights in trace.decoder:
        assert (weights.triu(1) == 0).all()
    assert not any(torch.allclose(a, b) for i, a in enumerate(trace.cross) for b in trace.cross[:i])


@pytest.mark.parametrize("has_gradients", [False, True])
def test_weights_times_values_give_each_layers_real_output(model: Transformer, has_gradients: bool) -> None:
    outputs: dict[nn.Module, Tensor] = {}

    def keep(projection: nn.Module, inputs: Any, output: Tensor) -> None:
        outputs[projection] = output

    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.out_proj.register_forward_hook(keep)
    with torch.set_grad_enabled(has_gradients), record_attention(model.modules()) as calls:
        model(*pair())
    assert len(outputs) == len(calls) == 8
    for call in calls.values():
        context = call.weights() @ call.memory.values
        assert_close(context, attend(call.queries(), call.memory, call.mask), atol=1e-5, rtol=1e-5)
        projected = call.attention.out_proj(context.transpose(1, 2).flatten(2))
        assert_close(outputs[call.attention.out_proj], projected, atol=1e-5, rtol=1e-5)


def test_a_trace_in_bfloat16_has_float32_rows_that_sum_to_one() -> None:
    model, (src, tgt_in) = make_model(), pair()
    with torch.autocast("cpu", torch.bfloat16):
        low = model.traced(src, tgt_in)
    exact = model.traced(src, tgt_in)
    for weights, expected in zip((*low.encoder, *low.cross), (*exact.encoder, *exact.cross), strict=True):
        assert weights.dtype == torch.float32
        assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        assert (weights - expected).abs().mean() < 0.05


def test_calls_in_other_threads_are_not_recorded() -> None:
    model, (src, tgt_in) = make_model(), pair()
    with torch.no_grad(), record_attention(model.modules()) as calls:
        model(src, tgt_in)
        other = threading.Thread(target=lambda: model(src[:, :4], tgt_in[:, :2]))
        other.start()
        other.join()
    assert {call.x.shape[1] for call in calls.values()} == {7, 5}
