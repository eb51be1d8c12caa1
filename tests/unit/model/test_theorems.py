"""What can be proved of attention, shown to hold of ours; what is empirical is no test."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from seq2seq.model import transformer
from seq2seq.model.attention import KeysValues, MultiHeadAttention, attend, attention_weights
from seq2seq.model.trace import record_attention
from seq2seq.model.transformer import Transformer
from seq2seq.text.tokenizer import PAD
from tests.unit.model.models import V, make_transformer

ORDER = torch.tensor([3, 0, 5, 1, 6, 4, 2])


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def make_model(**changes: Any) -> Transformer:
    return make_transformer(scale=8, **changes)


def encoder_output(model: Transformer, src: Tensor) -> Tensor:
    """The encoder's output at each position, from which cross-attention gets its keys and values."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, given: Any, output: Tensor) -> None:
        seen.append(output)

    handle = model.encoder_layers[-1].register_forward_hook(keep)
    with torch.no_grad():
        model.encode(src)
    handle.remove()
    return model.encoder_norm(seen[0])


def test_permuting_keys_together_with_values_changes_nothing() -> None:
    queries, keys, values = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 4)
    mask = torch.rand(2, 1, 5, 7) > 0.3
    mask[..., 0] = True
    shuffled = KeysValues(keys[:, :, ORDER], values[:, :, ORDER])
    assert_close(attend(queries, shuffled, mask[..., ORDER]), attend(queries, KeysValues(keys, values), mask))
    assert not torch.allclose(
        attend(queries, KeysValues(keys[:, :, ORDER], values)), attend(queries, KeysValues(keys, values))
    )


def test_permuting_the_weights_columns_is_all_that_permuting_keys_does() -> None:
    queries, keys = torch.randn(1, 2, 5, 4), torch.randn(1, 2, 7, 4)
    assert_close(
        attention_weights(queries, keys[:, :, ORDER], None), attention_weights(queries, keys, None)[..., ORDER]
    )


def nowhere(start: int, length: int, d_model: int, device: torch.device) -> Tensor:
    return torch.zeros(length, d_model, device=device)


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_without_positions_the_encoder_is_permutation_equivariant(
    norm_position: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    src = torch.randint(4, V, (2, 7))
    model = make_model(norm_position=norm_position)
    with_positions = encoder_output(model, src)
    assert not torch.allclose(encoder_output(model, src[:, ORDER]), with_positions[:, ORDER], atol=0.1)
    monkeypatch.setattr(transformer, "sinusoidal", nowhere)
    without = encoder_output(model, src)
    assert_close(encoder_output(model, src[:, ORDER]), without[:, ORDER], atol=1e-5, rtol=1e-4)
    assert not torch.allclose(without, with_positions)


def test_without_positions_no_prediction_depends_on_the_order_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer, "sinusoidal", nowhere)
    model = make_model()
    src, tgt_in = torch.randint(4, V, (2, 7)), torch.randint(4, V, (2, 5))
    with torch.no_grad():
        assert_close(model(src[:, ORDER], tgt_in), model(src, tgt_in), atol=1e-5, rtol=1e-4)


def test_the_masked_decoder_tells_order_even_without_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mask shows each position another set, so a decoder is no bag of words."""
    monkeypatch.setattr(transformer, "sinusoidal", nowhere)
    model = make_model()
    src, tgt_in = torch.randint(4, V, (1, 7)), torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        last, other = model(src, tgt_in)[:, -1], model(src, tgt_in[:, [1, 0, 2, 3]])[:, -1]
    assert not torch.allclose(last, other, atol=1e-3)


@pytest.mark.parametrize("is_shared", [True, False])
def test_one_projection_for_queries_and_keys_makes_relevance_symmetric(is_shared: bool) -> None:
    attention = MultiHeadAttention(12, 3)
    if is_shared:
        attention.k_proj = attention.q_proj
    x = torch.randn(2, 6, 12)
    relevance = attention.queries(x) @ attention.keys_values(x).keys.transpose(-2, -1)
    assert torch.allclose(relevance, relevance.transpose(-2, -1), atol=1e-6) is is_shared


def test_symmetric_relevance_makes_no_symmetric_weights() -> None:
    """Each row is normalised by itself; exp of the scores is symmetric, shares are not."""
    attention = MultiHeadAttention(12, 3)
    attention.k_proj = attention.q_proj
    x = torch.randn(1, 6, 12)
    with record_attention([attention]) as calls, torch.no_grad():
        attention(x, attention.keys_values(x))
    weights = calls[attention].weights()
    assert not torch.allclose(weights, weights.transpose(-2, -1))


def test_a_product_of_unit_vectors_has_variance_c_and_dividing_by_its_root_gives_variance_one() -> None:
    """Sums of c products of independent numbers of variance 1 (Vaswani et al. 2017, §3.2.1, footnote 4)."""
    for channels in (4, 64, 512):
        queries, keys = torch.randn(400, channels), torch.randn(400, channels)
        scores = queries @ keys.T
        assert scores.var() == pytest.approx(channels, rel=0.1)
        assert (scores / math.sqrt(channels)).var() == pytest.approx(1, rel=0.1)


def test_the_gradient_of_softmax_dies_as_scores_grow() -> None:
    """d softmax(βx) / dx = β (diag(a) - a aᵀ) goes to 0 where one score leads by a margin and β grows."""
    scores = torch.randn(8, dtype=torch.float64).sort().values
    lead = (scores[-1] - scores[-2]).item()
    norms = []
    for scale in (4.0, 16.0, 64.0, 256.0):
        jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), scale * scores)
        assert isinstance(jacobian, Tensor)
        weights = (scale * scores).softmax(-1)
        assert_close(jacobian, weights.diag() - weights.outer(weights))
        norms.append(jacobian.norm().item())
        assert norms[-1] <= 2 * 8 * math.exp(-scale * lead)
    assert norms == sorted(norms, reverse=True)
    assert norms[-1] < 1e-6 * norms[0]


def test_without_the_root_attention_over_many_channels_passes_less_gradient_to_its_queries() -> None:
    channels = 512
    queries, keys = torch.randn(1, 1, 50, channels), torch.randn(1, 1, 20, channels)

    def passed(stretch: float) -> float:
        """Mean size of the softmax's Jacobian, by the sum of a (1 - a) that is its trace."""
        weights = attention_weights(queries * stretch, keys, None)
        return (weights * (1 - weights)).sum(-1).mean().item()

    assert passed(math.sqrt(channels)) < 0.1 * passed(1.0)


def test_a_fixed_mixing_ratio_gives_every_asker_the_same() -> None:
    """Without queries there is nothing that could tell two positions' needs apart."""
    values = torch.randn(1, 2, 7, 4)
    mixed = attend(torch.zeros(1, 2, 5, 4), KeysValues(torch.randn(1, 2, 7, 4), values))
    assert_close(mixed, values.mean(2, keepdim=True).expand(-1, -1, 5, -1))


def test_padding_is_no_part_of_any_mixture() -> None:
    model = make_model()
    src = torch.randint(4, V, (1, 5))
    padded = torch.cat((src, torch.full((1, 3), PAD)), 1)
    assert_close(encoder_output(model, padded)[:, :5], encoder_output(model, src), atol=1e-5, rtol=1e-4)
