import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from seq2seq.model.attention import MultiHeadAttention
from seq2seq.model.trace import Trace, watch
from seq2seq.model.transformer import Transformer
from seq2seq.settings.model import ModelConfig
from seq2seq.text.tokenizer import PAD
from tests.unit.searches import MODERN

V = 31
STYLES: dict[str, dict[str, Any]] = {
    "vaswani": {},
    "modern": {**MODERN, "bias": False},
    "pre-norm, sinusoidal": {"norm_position": "pre"},
    "post-norm, rotary": {"positions": "rotary"},
}


def make_model(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"d_model": 12, "num_heads": 3, "d_ff": 20}
    config = ModelConfig(**{**sizes, "num_encoder_layers": 2, "num_decoder_layers": 3, **changes})
    model = Transformer(config, V).eval()
    for parameter in model.parameters():
        parameter.data.mul_(8)  # so that weights are far from uniform
    return model


def pair() -> tuple[Tensor, Tensor]:
    src, tgt_in = torch.randint(4, V, (2, 7)), torch.randint(4, V, (2, 5))
    src[1, 5:], tgt_in[1, 3:] = PAD, PAD
    return src, tgt_in


@pytest.fixture(params=STYLES)
def model(request: pytest.FixtureRequest) -> Transformer:
    return make_model(**STYLES[request.param])


def all_of(trace: Trace) -> list[Tensor]:
    return [*trace.encoder, *trace.decoder, *trace.cross]


def test_a_watched_pass_computes_what_an_unwatched_one_does(model: Transformer) -> None:
    src, tgt_in = pair()
    with torch.no_grad():
        expected = model(src, tgt_in)
        with watch(model.modules()) as mixed:
            watched = model(src, tgt_in)
    assert torch.equal(watched, expected)
    assert len(mixed) == 2 + 3 + 3


def test_the_trace_has_every_layer_and_head_and_rows_sum_to_one(model: Transformer) -> None:
    trace = model.traced(*pair())
    assert [tuple(one.shape) for one in trace.encoder] == [(2, 3, 7, 7)] * 2
    assert [tuple(one.shape) for one in trace.decoder] == [(2, 3, 5, 5)] * 3
    assert [tuple(one.shape) for one in trace.cross] == [(2, 3, 5, 7)] * 3
    for weights in all_of(trace):
        assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    different = [a for i, a in enumerate(trace.cross) for b in trace.cross[:i] if torch.allclose(a, b)]
    assert not different


def test_no_weight_falls_on_padding_of_the_source_nor_on_later_target_positions(model: Transformer) -> None:
    trace = model.traced(*pair())
    for weights in (*trace.encoder, *trace.cross):
        assert (weights[1, :, :, 5:] == 0).all()
        assert (weights[1, :, :, :5] > 0).all()
    for weights in trace.decoder:
        assert (weights.triu(1) == 0).all()
        assert (weights[:, :, 0, 0] == 1).all()


@pytest.mark.parametrize("wants_gradients", [False, True])
def test_weights_times_values_are_what_each_layer_mixed(model: Transformer, wants_gradients: bool) -> None:
    """Without gradients the layers use the fused kernel and additive masks, with them boolean ones in the open."""
    with torch.set_grad_enabled(wants_gradients), watch(model.modules()) as mixed:
        model(*pair())
    for one in mixed.values():
        assert_close(one.weights() @ one.memory.values, one.context, atol=1e-5, rtol=1e-5)


def test_what_left_each_attention_is_its_mixture_projected(model: Transformer) -> None:
    """The trace belongs to the layer's real output, not only to what the attention says of itself."""
    outputs: dict[nn.Module, Tensor] = {}

    def keep(projection: nn.Module, inputs: Any, output: Tensor) -> None:
        outputs[projection] = output

    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.out_proj.register_forward_hook(keep)
    with torch.no_grad(), watch(model.modules()) as mixed:
        model(*pair())
    assert len(outputs) == len(mixed) == 8
    for one in mixed.values():
        joined = (one.weights() @ one.memory.values).transpose(1, 2).flatten(2)
        assert_close(outputs[one.attention.out_proj], one.attention.out_proj(joined), atol=1e-5, rtol=1e-5)


def test_the_trace_holds_the_attention_that_search_can_watch(model: Transformer) -> None:
    src, tgt_in = pair()
    model.double()  # these random weights amplify float32's last digits, which differ between processors
    for layer in range(3):
        _, state = model.decode(tgt_in, model.encode(src).watching(layer))
        traced = model.traced(src, tgt_in).cross[layer].mean(1)
        assert_close(state.attention, traced, atol=1e-6, rtol=1e-6, check_dtype=False)


def test_a_trace_in_bfloat16_has_float32_rows_that_sum_to_one() -> None:
    src, tgt_in = pair()
    model = make_model()
    with torch.autocast("cpu", torch.bfloat16):
        low = model.traced(src, tgt_in)
    for one, other in zip(all_of(low), all_of(model.traced(src, tgt_in)), strict=True):
        assert one.dtype == torch.float32
        assert_close(one.sum(-1), torch.ones(one.shape[:-1]))
        assert (one - other).abs().mean() < 0.05


def test_one_token_of_target_attends_to_itself() -> None:
    trace = make_model().traced(torch.randint(4, V, (1, 3)), torch.randint(4, V, (1, 1)))
    assert all((weights == 1).all() for weights in trace.decoder)
    assert trace.cross[0].shape == (1, 3, 1, 3)


def test_nobody_watches_afterwards_even_after_an_error() -> None:
    model = make_model()
    model.traced(*pair())
    with pytest.raises(RuntimeError), watch(model.modules()):
        raise RuntimeError
    assert all(getattr(module, "watcher", None) is None for module in model.modules())


def test_another_thread_that_uses_the_model_meanwhile_is_not_seen() -> None:
    model = make_model()
    src, tgt_in = pair()
    with torch.no_grad(), watch(model.modules()) as mixed:
        model(src, tgt_in)
        other = threading.Thread(target=lambda: model(src[:, :4], tgt_in[:, :2]))
        other.start()
        other.join()
    assert {one.queries.shape[1] for one in mixed.values()} == {7, 5}
