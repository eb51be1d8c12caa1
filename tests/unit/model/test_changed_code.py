"""A change of the model's code reaches training and search: the compiled decoder and the fused kernel give way."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seq2seq.errors import UserError
from seq2seq.model import attention, decoders, encoder_decoder, layers, masks, positions, transformer
from seq2seq.model.build import build_model
from seq2seq.model.decoders import TextbookDecoder, agrees, decoder_for_search, make_example
from seq2seq.model.kernels import uses_fused_kernel
from seq2seq.model.native import NativeDecoder
from seq2seq.model.variants.trace import record_attention
from seq2seq.settings.compose import compose
from tests.thin import thin
from tests.unit.model.models import make_transformer
from tests.unit.searches import NEEDS_COMPILER

REPOSITORY = Path(__file__).parents[3]
CONFIGS = [path.stem for path in (REPOSITORY / "conf" / "model").glob("*.yaml") if path.stem != "lstm"]
softmax = attention.attention_weights


def relu_weights(queries: Tensor, keys: Tensor, mask: Tensor | None = None) -> Tensor:
    relevance = ((queries / math.sqrt(queries.shape[-1])) @ keys.transpose(-2, -1)).relu() + 1e-6
    relevance = relevance if mask is None else relevance * mask
    return relevance / relevance.sum(-1, keepdim=True).clamp_min(1e-9)


def top(count: int, queries: Tensor, keys: Tensor, mask: Tensor | None = None) -> Tensor:
    weights = softmax(queries, keys, mask)
    return weights * (weights >= weights.topk(min(count, keys.shape[2])).values[..., -1:])


WEIGHTS: dict[str, Callable[..., Tensor]] = {
    "relu": relu_weights,
    "no scale": lambda queries, keys, mask=None: softmax(queries * math.sqrt(queries.shape[-1]), keys, mask),
    "top 3": partial(top, 3),
    "top 100": partial(top, 100),
    "the same on small examples": lambda queries, keys, mask=None: softmax(queries, keys, mask),
    "constant keys": lambda queries, keys, mask=None: softmax(queries, keys.detach(), mask),
}
Patch = tuple[Any, str, Callable[..., Any]]
_residual, _logits = layers.Residual.forward, encoder_decoder.EncoderDecoder.logits
CODE: dict[str, Patch] = {
    "attend": (attention, "attend", lambda queries, memory, *_: queries + memory.values[:, :, :1]),
    "residual": (layers.Residual, "forward", lambda self, x, sublayer: 0.5 * _residual(self, x, sublayer)),
    "feed-forward": (layers.FeedForward, "forward", lambda self, x: self.down(self.up(x).sigmoid())),
    "causal mask": (masks, "causal_mask", lambda length, past, device: near_mask(length, past)),
    "positions": (transformer, "sinusoidal", lambda *sizes: -positions.sinusoidal(*sizes)),
    "scale": (transformer, "embedding_scale", lambda config: 1.0),
    "banned tokens": (encoder_decoder.EncoderDecoder, "logits", lambda self, hidden: ban(_logits(self, hidden))),
    "a window of 16": (masks, "causal_mask", lambda length, past, device: near_mask(length, past, 16)),
    "logits": (encoder_decoder.EncoderDecoder, "logits", lambda self, hidden: 3 * (_logits(self, hidden) / 3).tanh()),
    **{name: (attention, "attention_weights", WEIGHTS[name]) for name in ("relu", "no scale", "top 3", "top 100")},
}


def near_mask(length: int, past: int, window: int = 3) -> Tensor:
    keys, queries = torch.arange(past + length), torch.arange(past, past + length)[:, None]
    return ((keys <= queries) & (keys > queries - window))[None, None]


def ban(logits: Tensor) -> Tensor:
    return logits.index_fill(-1, torch.tensor([5, 7]), -torch.inf)


@pytest.mark.parametrize("name", WEIGHTS)
def test_changed_weights_are_computed_instead_of_the_fused_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queries, keys, values = torch.randn(3, 2, 2, 7, 4).unbind()
    assert uses_fused_kernel(queries, keys, softmax)
    monkeypatch.setattr(attention, "attention_weights", WEIGHTS[name])
    context = attention.attend(queries, attention.KeysValues(keys, values))
    assert not uses_fused_kernel(queries, keys, attention.attention_weights)
    assert_close(context, WEIGHTS[name](queries, keys) @ values)


def test_pictures_show_the_changed_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "attention_weights", relu_weights)
    layer, x = attention.MultiHeadAttention(8, 2), torch.randn(1, 5, 8)
    with record_attention([layer]) as calls:
        layer(x, layer.keys_values(x))
    assert_close(calls[layer].weights(), relu_weights(layer.queries(x), layer.keys_values(x).keys))


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    decoders.warn_once.cache_clear()
    return caplog


@torch.no_grad()
def steps(decoder: Any, src: Tensor, tgt_in: Tensor) -> Tensor:
    state, logits = decoder.encode(src), []
    for last in tgt_in.unbind(1):
        of_step, state = decoder.step(last, state)
        logits.append(of_step)
    return torch.stack(logits, 1)


@NEEDS_COMPILER
@pytest.mark.parametrize("name", CODE)
def test_a_search_computes_the_changed_code_and_says_so_once(name, monkeypatch, warnings):
    model = make_transformer(scale=4, d_model=16, num_heads=2, d_ff=32)
    before = make_example(model, 1, 1)
    monkeypatch.setattr(*CODE[name])
    example = make_example(model, 1, 1)
    assert agrees(before.logits, example.logits) == (name == "top 100")  # only with more keys than the example's
    decoder, _ = [decoder_for_search(model, torch.float32, "auto") for _ in range(2)]
    assert_close(steps(decoder, example.src, example.tgt_in), example.logits, atol=1e-4, rtol=1e-4)
    limited = decoder.limited_to(torch.arange(1, model.vocab_size))
    assert_close(steps(limited, example.src, example.tgt_in - 1), example.logits[..., 1:], atol=1e-4, rtol=1e-4)
    (warning,) = warnings.messages
    assert warning.startswith("decoding.c computes something else than the model's Python code")
    with pytest.raises(UserError, match=r"^decoding.c computes something else .*: leave out --compile on$"):
        decoder_for_search(model, torch.float32, "on")


@NEEDS_COMPILER
def test_a_hook_and_a_method_of_one_layer_are_changes_too(warnings: pytest.LogCaptureFixture) -> None:
    for change in ("hook", "method"):
        model = make_transformer(scale=4)
        network: Any = model.get_submodule("decoder_layers.1.feed_forward")
        if change == "hook":
            network.register_forward_hook(lambda _module, _inputs, output: 0.5 * output)
        else:
            network.forward = lambda x: 0.5 * x
        assert isinstance(decoder_for_search(model, torch.float32, "auto"), TextbookDecoder)
    assert len(warnings.messages) == 1


@NEEDS_COMPILER
@pytest.mark.parametrize("name", thin(CONFIGS, ["mini", "tiny"]))
@pytest.mark.parametrize("style", ["vaswani", "modern"])
def test_every_shipped_model_is_searched_by_compiled_code(name, style, warnings):
    config = compose([f"model={name}", f"model/style={style}", "model.dropout=0.1", "data=files"]).model
    model = build_model(config, 300).eval()
    random, modes = torch.get_rng_state(), [module.training for module in model.modules()]
    assert isinstance(decoder_for_search(model, torch.float32, "auto"), NativeDecoder)
    assert torch.equal(random, torch.get_rng_state())
    assert modes == [module.training for module in model.modules()]
    assert not warnings.messages


@NEEDS_COMPILER
def test_a_comparison_is_right_within_training_and_about_a_diverged_model(warnings: pytest.LogCaptureFixture) -> None:
    model = make_transformer(scale=4)
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        assert isinstance(decoder_for_search(model, torch.float32, "on"), NativeDecoder)
    model.decoder_norm = torch.nn.Identity()
    model.get_parameter("decoder_layers.1.feed_forward.up.weight").data.fill_(torch.nan)
    assert isinstance(decoder_for_search(model, torch.float32, "auto"), NativeDecoder)
    assert not warnings.messages
