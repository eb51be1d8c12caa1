"""The decoders for search against the textbook: equal logits, step by step, whatever rows go on."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from benchmarks.recording import record
from seq2seq.model import products
from seq2seq.model.decoders import Decoder, for_search
from seq2seq.model.decoding import FlatDecoder
from seq2seq.model.ensemble import Ensemble
from seq2seq.model.flat_state import FlatState
from seq2seq.model.graphs import GraphedDecoder
from seq2seq.model.native import NativeDecoder
from seq2seq.model.products import has_packed_products, missing_rows, product
from seq2seq.model.recurrent import Recurrent
from seq2seq.model.transformer import Transformer
from seq2seq.settings.model import ModelConfig
from seq2seq.text.tokenizer import PAD
from tests.unit.searches import MODERN, NEEDS_COMPILER

V = 40
STYLES: dict[str, dict[str, Any]] = {
    "vaswani": {},
    "modern": {**MODERN, "bias": False},
    "pre-norm, no positions": {"norm_position": "pre", "positions": "none"},
    "shared queries and keys": {"relevance": "shared"},
    "uniform": {"relevance": "uniform"},
    "unscaled": {"relevance": "unscaled"},
    "no causal mask": {"decoder_mask": "none"},
    "no cross-attention": {"cross_attention": "none"},
    "swish, bias on the logits": {"activation": "swish", "output_bias": True},
    "gelu, embeddings as they are": {"activation": "gelu", "scale_embedding": False},
    "deep decoder": {"num_encoder_layers": 1, "num_decoder_layers": 3},
}
# In each step: the old row that each new row continues, and the number of new rows of each sentence that is left.
FORKING = [
    ([0, 0, 0, 1, 1, 2, 2, 2, 3], [3, 2, 3, 1]),
    ([2, 0, 4, 3, 3, 7, 5, 8, 8], [2, 3, 2, 2]),  # crosswise, twice the same
    ([1, 4, 7, 7, 7], [1, 1, 0, 3]),  # a sentence leaves, its memory stays
    ([0, 2, 4], [1, 0, 2]),  # another one leaves, and memories are packed
    ([2, 1, 1], [0, 3]),
    ([2], [1]),
]
flat = partial(FlatDecoder, dtype=torch.float32)


def graphed(model: Transformer) -> GraphedDecoder:
    return GraphedDecoder(flat(model), lambda: record)


EACH = pytest.mark.parametrize("make_decoder", [flat, pytest.param(NativeDecoder, marks=NEEDS_COMPILER), graphed])
LEAVING = [([0, 1, 3], [1, 1, 0, 1]), ([0, 2], [1, 0, 1]), ([1, 1], [0, 2])]


def make(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_encoder_layers": 2}
    model = Transformer(ModelConfig(**{**sizes, "num_decoder_layers": 2, **changes}), V).eval()
    for parameter in model.parameters():
        parameter.data.mul_(4)  # so that attention is far from uniform
    if model.output_bias is not None:
        model.output_bias.normal_()
    return model


@pytest.fixture(params=STYLES)
def model(request: pytest.FixtureRequest) -> Transformer:
    return make(**STYLES[request.param])


def sources() -> Tensor:
    src = torch.randint(4, V, (4, 7))
    src[1, 5:], src[3, 2:] = PAD, PAD
    return src


def require_equal_steps(
    make_decoder: Callable[[Transformer], Decoder], model: Transformer, steps: Sequence[tuple[list[int], list[int]]]
) -> Any:
    """Take one step, then the given ones, with a decoder and the textbook; compare logits and attention."""
    decoder, src = make_decoder(model), sources()
    with torch.no_grad():
        state, textbook = decoder.encode(src).watching(), model.encode(src).watching()
        steps = [([0, 1, 2, 3], [1, 1, 1, 1]), *steps]
        for number, (rows, counts) in enumerate(steps):
            if number:
                state = state.reorder(torch.tensor(rows), counts)
                textbook = textbook.reorder(torch.tensor(rows), counts)
            last = torch.randint(4, V, (len(rows),))
            logits, state = decoder.step(last, state)
            expected, textbook = model.decode(last[:, None], textbook)
            assert_close(logits, expected[:, 0], atol=1e-5, rtol=1e-5)
            assert_close(state.attention, textbook.attention, atol=1e-5, rtol=1e-5)
    return state


@EACH
@pytest.mark.parametrize("steps", [FORKING, LEAVING])
def test_every_step_equals_the_textbooks_whatever_rows_go_on(
    make_decoder: Callable[[Transformer], Decoder], steps: list[tuple[list[int], list[int]]], model: Transformer
) -> None:
    require_equal_steps(make_decoder, model, steps)


def test_sentences_that_left_are_packed_and_rows_that_never_fork_need_no_mask(model: Transformer) -> None:
    forked = require_equal_steps(flat, model, FORKING)
    assert len(forked.memory_mask) == 1
    assert forked.mask is not None
    assert require_equal_steps(flat, model, LEAVING[:2]).mask is None


@EACH
def test_slots_grow_and_are_cleared_of_the_dead(
    make_decoder: Callable[[Transformer], Decoder], model: Transformer
) -> None:
    forks = [([0, 0, 1, 1, 2, 2, 3, 3], [2, 2, 2, 2])]
    state = require_equal_steps(make_decoder, model, forks + [([1, 1, 2, 3, 5, 4, 6, 6], [2, 2, 2, 2])] * 60)
    assert (state.length if isinstance(state, FlatState) else state.past.shape[1]) == 62
    assert state.used < 8 * 62 / (2 if isinstance(state, FlatState) else 1)


@EACH
def test_a_batch_of_one_equals_the_same_sentence_among_others(
    make_decoder: Callable[[Transformer], Decoder], model: Transformer
) -> None:
    decoder, src = make_decoder(model), sources()
    with torch.no_grad():
        together, _ = decoder.step(torch.tensor([4, 5, 6, 7]), decoder.encode(src))
        alone, _ = decoder.step(torch.tensor([5]), decoder.encode(src[1:2, :5]))
    assert_close(alone[0], together[1], atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(not has_packed_products(torch.bfloat16), reason="this processor computes no products in bf16")
def test_products_in_bf16_change_little(model: Transformer) -> None:
    src, last = sources(), torch.tensor([4, 5, 6, 7])
    exact, low = FlatDecoder(model, torch.float32), FlatDecoder(model, torch.bfloat16)
    with torch.no_grad():
        expected, _ = exact.step(last, exact.encode(src))
        with torch.autocast("cpu", torch.bfloat16):
            logits, _ = low.step(last, low.encode(src))
    assert logits.dtype == torch.bfloat16
    assert (logits.float() - expected).norm() < 0.05 * expected.norm()


def test_a_model_without_a_decoder_of_its_own_is_searched_by_the_textbook() -> None:
    torch.manual_seed(0)
    model = Recurrent(ModelConfig(architecture="recurrent", d_model=16), V).eval()
    decoder, src, last = for_search(model, torch.float32), sources(), torch.tensor([4, 5, 6, 7])
    with torch.no_grad():
        logits, _ = decoder.step(last, decoder.encode(src))
        expected, _ = model.decode(last[:, None], model.encode(src))
    assert torch.equal(logits, expected[:, 0])


def test_an_ensemble_is_searched_by_its_members_decoders() -> None:
    models = [make(), make(num_decoder_layers=1)]
    decoder, src, last = for_search(Ensemble(models), torch.float32), sources(), torch.tensor([4, 5, 6, 7])
    with torch.no_grad():
        logits, state = decoder.step(last, decoder.encode(src))
        assert [type(one) for one in state.states] == [FlatState, FlatState]
        expected, _ = Ensemble(models).decode(last[:, None], Ensemble(models).encode(src))
    assert_close(logits, expected[:, 0], atol=1e-5, rtol=1e-5)


def test_rows_are_padded_to_few_numbers() -> None:
    numbers = {rows + missing_rows(rows) for rows in range(1, 201)}
    assert numbers == {4, 8, 12, *range(16, 209, 16)}
    assert all(0 <= missing_rows(rows) < 16 for rows in range(200))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 5, 16, 48])
@pytest.mark.parametrize("many_outputs", [8, 10_000])
def test_a_product_is_its_maps_side_by_side(
    bias: bool, rows: int, many_outputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "MANY_OUTPUTS", many_outputs)
    first, second, x = nn.Linear(16, 40, bias=bias), nn.Linear(16, 8, bias=bias), torch.randn(rows, 16)
    with torch.no_grad():
        joined = product([first, second], torch.float32, [1.0, 3.0])(x)
        assert_close(joined, torch.cat((first(x), 3 * second(x)), -1))


class Adapted(nn.Module):
    """A linear map with a low-rank addition and dropout, as LoRA makes it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear, self.in_features = linear, linear.in_features
        self.down, self.up = nn.Linear(16, 2, bias=False), nn.Linear(2, 40, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.up(self.down(nn.functional.dropout(x, 0.5, self.training)))


@pytest.mark.parametrize("bias", [True, False])
def test_a_product_includes_adapters(bias: bool) -> None:
    adapted, plain, x = Adapted(nn.Linear(16, 40, bias=bias)), nn.Linear(16, 8, bias=bias), torch.randn(5, 16)
    with torch.no_grad():
        assert_close(product([adapted.eval()], torch.float32)(x), adapted(x))
        joined = product([adapted, plain], torch.float32, [1.0, 1.0])(x)
        assert_close(joined, torch.cat((adapted(x), plain(x)), -1))


def test_products_need_no_operators_that_pytorch_does_not_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "has_packed_products", lambda dtype: False)
    monkeypatch.setattr(products, "MANY_OUTPUTS", 8)
    linear, x = nn.Linear(16, 40), torch.randn(5, 16)
    with torch.no_grad():
        assert_close(product([linear], torch.float32)(x), linear(x))
