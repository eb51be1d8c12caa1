"""Each ablation removes its part and nothing else; all ways of computing still agree."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from seq2seq.errors import UserError
from seq2seq.model.ablations import AblatedAttention
from seq2seq.model.attention import MultiHeadAttention, attend, attention_weights
from seq2seq.model.transformer import Transformer
from seq2seq.settings.config import Config
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.tokenizer import PAD
from tests.unit.model.models import make_transformer, other_ids, token_ids

N, T, S, D, H = 2, 5, 7, 12, 3
ABLATIONS: dict[str, dict[str, Any]] = {
    "no positions": {"positions": "none"},
    "shared": {"relevance": "shared"},
    "shared, modern": {
        "relevance": "shared", "positions": "rotary", "norm": "rmsnorm", "norm_position": "pre", "bias": False
    },
    "uniform": {"relevance": "uniform"},
    "unscaled": {"relevance": "unscaled"},
    "no causal mask": {"decoder_mask": "none"},
    "no cross-attention": {"cross_attention": "none"},
}  # fmt: skip


def make(**changes: Any) -> Transformer:
    """A model whose weights are so large that each of them matters."""
    model = make_transformer(**changes)
    for parameter in model.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.fixture(params=ABLATIONS)
def model(request: pytest.FixtureRequest) -> Transformer:
    return make(**ABLATIONS[request.param])


def attention(relevance: str) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(D, H) if relevance == "query_key" else AblatedAttention(D, H, relevance=relevance)


def scores(attention: MultiHeadAttention, x: Tensor, rotation: Tensor | None = None) -> Tensor:
    return attention.queries(x, rotation) @ attention.keys_values(x, rotation).keys.transpose(-2, -1)


def test_without_queries_every_permitted_position_weighs_the_same() -> None:
    uniform, x = attention("uniform"), torch.randn(N, S, D)
    mask = torch.rand(N, 1, S, S) > 0.5
    mask[..., 0] = True
    queries, memory = uniform.queries(x), uniform.keys_values(x)
    weights = attention_weights(queries, memory.keys, mask)
    assert_close(weights, (mask / mask.sum(-1, keepdim=True)).expand_as(weights))
    assert_close(attend(queries, memory), memory.values.mean(2, keepdim=True).expand_as(queries))
    assert not torch.allclose(scores(attention("query_key"), x), torch.zeros(()))


def test_with_one_projection_relevance_is_symmetric() -> None:
    x = torch.randn(N, S, D)
    symmetric = scores(attention("shared"), x)
    assert_close(symmetric, symmetric.transpose(-2, -1))
    directed = scores(attention("query_key"), x)
    assert not torch.allclose(directed, directed.transpose(-2, -1))


def test_rotary_positions_leave_symmetric_relevance_symmetric() -> None:
    model = make(relevance="shared", positions="rotary")
    x, rotation = model._embed(token_ids(N, S), "source", 0)
    relevance = scores(next(iter(model._encoder())).self_attention, x, rotation)
    assert_close(relevance, relevance.transpose(-2, -1))


def test_unscaled_scores_are_not_divided() -> None:
    plain, unscaled, x = attention("query_key"), attention("unscaled"), torch.randn(N, S, D)
    unscaled.load_state_dict(plain.state_dict())
    expected, memory = scores(plain, x).softmax(-1), unscaled.keys_values(x)
    assert_close(attention_weights(unscaled.queries(x), memory.keys), expected)
    assert_close(attend(unscaled.queries(x), memory), expected @ memory.values)
    assert not torch.allclose(expected, (scores(plain, x) / 2).softmax(-1))


def test_one_projection_has_a_quarter_fewer_weights_and_the_others_as_many() -> None:
    counts = {name: sum(p.numel() for p in attention(name).parameters()) for name in ("query_key", "shared")}
    assert counts["shared"] * 4 == counts["query_key"] * 3
    for name in ("uniform", "unscaled"):
        assert sum(p.numel() for p in attention(name).parameters()) == counts["query_key"]


def test_without_positions_the_encoder_is_permutation_equivariant() -> None:
    src, order = token_ids(N, S), torch.randperm(S)
    for positions, is_blind in (("none", True), ("sinusoidal", False), ("rotary", False)):
        model = make(positions=positions)
        one, other = (model.encode(ids).memory[-1].keys for ids in (src[:, order], src))
        assert torch.allclose(one, other[:, :, order], atol=1e-5) == is_blind


def test_without_causal_mask_training_sees_the_future_and_decoding_by_tokens_cannot() -> None:
    model, src, tgt_in = make(decoder_mask="none"), token_ids(N, S), token_ids(N, T)
    edited = tgt_in.clone()
    edited[:, 3:] = other_ids(edited[:, 3:])
    assert not torch.allclose(model(src, tgt_in)[:, 0], model(src, edited)[:, 0])
    predictions = []
    for target in (tgt_in, edited):
        state, parts = model.encode(src), []
        for token in target.split(1, dim=1):
            logits, state = model.decode(token, state)
            parts.append(logits)
        predictions.append(torch.cat(parts, 1))
    assert torch.equal(predictions[0][:, :3], predictions[1][:, :3])
    assert not torch.allclose(predictions[0][:, 3:], predictions[1][:, 3:])
    assert not torch.allclose(predictions[0], model.decode(tgt_in, model.encode(src))[0])


def test_without_causal_mask_targets_see_neither_padding_nor_each_other() -> None:
    model, src, tgt_in = make(decoder_mask="none"), token_ids(N, S), token_ids(N, T)
    tgt_in[1, 3:] = PAD
    whole = model.decode(tgt_in, model.encode(src))[0]
    alone = model.decode(tgt_in[1:2, :3], model.encode(src[1:2]))[0]
    assert_close(whole[1, :3], alone[0])
    edited = tgt_in.clone()
    edited[0] = other_ids(edited[0])
    again = model.decode(edited, model.encode(src))[0]
    assert_close(again[1:], whole[1:])


def test_without_cross_attention_no_source_changes_anything_and_all_attention_is_zero() -> None:
    model, src, tgt_in = make(cross_attention="none"), token_ids(N, S), token_ids(N, T)
    assert not model.can_align
    hidden = model(src, tgt_in)
    assert torch.equal(hidden, model(other_ids(src), tgt_in))
    hidden.square().sum().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)
    with torch.no_grad():
        assert not model.predict_and_align(src, tgt_in)[1].any()


def test_no_kernel_is_asked_for_attention_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels for GPUs differ in what they return for a row without keys."""
    fused, masks = F.scaled_dot_product_attention, []
    monkeypatch.setattr(
        F,
        "scaled_dot_product_attention",
        lambda q, k, v, mask, **more: masks.append(mask) or fused(q, k, v, mask, **more),
    )
    make(cross_attention="none")(token_ids(N, S), token_ids(N, T))
    assert len(masks) > 3
    assert all(mask is None or mask.any(-1).all() for mask in masks)


def test_every_other_ablation_still_reads_the_source(model: Transformer) -> None:
    src, tgt_in = token_ids(N, S), token_ids(N, T)
    difference = (model(src, tgt_in) - model(other_ids(src), tgt_in)).abs().amax(-1)
    assert (difference > 1e-5).all() == (model.config.cross_attention == "source")


@pytest.mark.parametrize("name", [name for name in ABLATIONS if name != "no causal mask"])
@pytest.mark.parametrize("steps", [[1, 1, 1, 1, 1], [1, 4]])
def test_token_by_token_equals_all_at_once_where_there_is_a_causal_mask(name: str, steps: list[int]) -> None:
    model = make(**ABLATIONS[name])
    src, tgt_in = token_ids(N, S), token_ids(N, T)
    src[1, 5:] = PAD
    whole, _ = model.decode(tgt_in, model.encode(src))
    state, parts = model.encode(src), []
    for part in tgt_in.split(steps, dim=1):
        logits, state = model.decode(part, state)
        parts.append(logits)
    assert_close(torch.cat(parts, 1), whole)
    assert state.length == T


def test_an_ablation_is_named_by_its_settings() -> None:
    assert ModelConfig().ablations() == []
    assert ModelConfig(positions="rotary", norm_position="pre").ablations() == []
    assert ModelConfig(relevance="shared", positions="none").ablations() == [
        "model.relevance=shared",
        "model.positions=none",
    ]
    with pytest.raises(UserError, match=r"model\.relevance=key_key is not known: choose one of query_key, shared"):
        ModelConfig(relevance="key_key")
    with pytest.raises(UserError, match=r"model\.decoder_mask=off is not known: choose one of causal, none"):
        ModelConfig(decoder_mask="off")
    with pytest.raises(UserError, match=r"model\.cross_attention=off is not known: choose one of source, none"):
        ModelConfig(cross_attention="off")


def test_adapters_refuse_a_shared_projection() -> None:
    with pytest.raises(UserError, match=r"model\.relevance=shared has one projection"):
        Config(model=ModelConfig(relevance="shared"), training=TrainingConfig(lora_rank=2))
