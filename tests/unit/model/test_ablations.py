"""Each ablation removes its part and nothing else; all ways of computing still agree."""

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from seq2seq.model.attention import MultiHeadAttention, attend, attention_weights
from seq2seq.model.variants.ablations import AblatedAttention
from seq2seq.settings.model import ModelConfig
from seq2seq.text.tokenizer import PAD
from tests.unit.model.models import decode_in_parts, make_transformer, other_ids, token_ids
from tests.unit.searches import MODERN

N, T, S, D, H = 2, 5, 7, 12, 3
ABLATIONS: dict[str, dict[str, Any]] = {
    "no positions": {"positions": "none"},
    "shared": {"relevance": "shared"},
    "shared, modern": {**MODERN, "activation": "relu", "relevance": "shared", "bias": False},
    "uniform": {"relevance": "uniform"},
    "unscaled": {"relevance": "unscaled"},
    "no causal mask": {"decoder_mask": "none"},
    "no cross-attention": {"cross_attention": "none"},
}


make = partial(make_transformer, noise=0.3)


def make_attention(relevance: str) -> MultiHeadAttention:
    torch.manual_seed(0)
    attention = MultiHeadAttention(D, H)
    return attention if relevance == "query_key" else AblatedAttention(attention, relevance)


def scores(attention: MultiHeadAttention, x: Tensor, rotation: Tensor | None = None) -> Tensor:
    return attention.queries(x, rotation) @ attention.keys_values(x, rotation).keys.transpose(-2, -1)


def test_without_queries_every_permitted_position_weighs_the_same() -> None:
    uniform, x = make_attention("uniform"), torch.randn(N, S, D)
    mask = torch.rand(N, 1, S, S) > 0.5
    mask[..., 0] = True
    queries, memory = uniform.queries(x), uniform.keys_values(x)
    weights = attention_weights(queries, memory.keys, mask)
    assert_close(weights, (mask / mask.sum(-1, keepdim=True)).expand_as(weights))
    assert_close(attend(queries, memory), memory.values.mean(2, keepdim=True).expand_as(queries))


def test_with_one_projection_relevance_is_symmetric_and_weights_are_not() -> None:
    x = torch.randn(N, S, D)
    symmetric, directed = (scores(make_attention(relevance), x) for relevance in ("shared", "query_key"))
    assert_close(symmetric, symmetric.transpose(-2, -1))
    assert not torch.allclose(directed, directed.transpose(-2, -1))
    weights = symmetric.softmax(-1)
    assert not torch.allclose(weights, weights.transpose(-2, -1))
    model = make(relevance="shared", positions="rotary")
    x, rotation = model._embed(token_ids(N, S), "source", 0)
    symmetric = scores(next(iter(model._encoder())).self_attention, x, rotation)
    assert_close(symmetric, symmetric.transpose(-2, -1))


def test_unscaled_scores_are_not_divided() -> None:
    plain, unscaled, x = make_attention("query_key"), make_attention("unscaled"), torch.randn(N, S, D)
    unscaled.load_state_dict(plain.state_dict())
    expected, memory = scores(plain, x).softmax(-1), unscaled.keys_values(x)
    assert_close(attention_weights(unscaled.queries(x), memory.keys), expected)
    assert_close(attend(unscaled.queries(x), memory), expected @ memory.values)


@pytest.mark.parametrize("positions", ["none", "sinusoidal", "rotary"])
def test_only_without_positions_no_prediction_depends_on_the_order_of_the_source(positions: str) -> None:
    src, tgt_in, order = token_ids(N, S), token_ids(N, T), torch.randperm(S)
    model = make(positions=positions)
    keys, shuffled = (model.encode(ids).memory[-1].keys for ids in (src, src[:, order]))
    assert torch.allclose(shuffled, keys[:, :, order], atol=1e-5) == (positions == "none")
    assert torch.allclose(model(src[:, order], tgt_in), model(src, tgt_in), atol=1e-5) == (positions == "none")
    swapped = tgt_in[:, [1, 0, 2, 3, 4]]  # the mask shows each position another set of tokens
    assert not torch.allclose(model(src, swapped)[:, -1], model(src, tgt_in)[:, -1])


def test_without_causal_mask_training_sees_the_future_and_decoding_by_tokens_cannot() -> None:
    model, src, tgt_in = make(decoder_mask="none"), token_ids(N, S), token_ids(N, T)
    edited = tgt_in.clone()
    edited[:, 3:] = other_ids(edited[:, 3:])
    assert not torch.allclose(model(src, tgt_in)[:, 0], model(src, edited)[:, 0])
    predictions = [decode_in_parts(model, src, target, [1] * T) for target in (tgt_in, edited)]
    assert torch.equal(predictions[0][:, :3], predictions[1][:, :3])
    assert not torch.allclose(predictions[0][:, 3:], predictions[1][:, 3:])
    assert not torch.allclose(predictions[0], model.decode(tgt_in, model.encode(src))[0])


def test_without_causal_mask_targets_see_neither_padding_nor_each_other() -> None:
    model, src, tgt_in = make(decoder_mask="none"), token_ids(N, S), token_ids(N, T)
    tgt_in[1, 3:] = PAD
    together = model.decode(tgt_in, model.encode(src))[0]
    alone = model.decode(tgt_in[1:2, :3], model.encode(src[1:2]))[0]
    assert_close(together[1, :3], alone[0])
    edited = tgt_in.clone()
    edited[0] = other_ids(edited[0])
    assert_close(model.decode(edited, model.encode(src))[0][1:], together[1:])


def test_without_cross_attention_no_source_changes_anything_and_all_attention_is_zero(monkeypatch):
    """Kernels for GPUs differ in what they return for a row without keys, so no kernel gets such a row."""
    fused, masks = F.scaled_dot_product_attention, []

    def record(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
        masks.append(mask)
        return fused(q, k, v, mask, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", record)
    model, src, tgt_in = make(cross_attention="none"), token_ids(N, S), token_ids(N, T)
    assert not model.can_align
    hidden = model(src, tgt_in)
    assert masks
    assert all(mask is None or mask.any(-1).all() for mask in masks)
    assert torch.equal(hidden, model(other_ids(src), tgt_in))
    hidden.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    with torch.no_grad():
        assert not model.predict_and_align(src, tgt_in)[1].any()


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_other_ablation_still_reads_the_source_and_decodes_in_parts(name: str) -> None:
    model, src, tgt_in = make(**ABLATIONS[name]), token_ids(N, S), token_ids(N, T)
    difference = (model(src, tgt_in) - model(other_ids(src), tgt_in)).abs().amax(-1)
    assert (difference > 1e-5).all() == (name != "no cross-attention")
    src[1, 5:] = PAD
    by_tokens = decode_in_parts(model, src, tgt_in, [1] * T)
    assert_close(decode_in_parts(model, src, tgt_in, [1, T - 1]), by_tokens)
    if name != "no causal mask":
        assert_close(decode_in_parts(model, src, tgt_in, [T]), by_tokens)


def test_an_ablation_is_named_by_its_settings() -> None:
    assert ModelConfig(positions="rotary", norm_position="pre").ablations() == []
    ablations = ModelConfig(relevance="shared", positions="none").ablations()
    assert ablations == ["model.relevance=shared", "model.positions=none"]
