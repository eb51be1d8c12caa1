"""Our multi-head attention is the layer that everyone uses: PyTorch's, BERT's, a vision Transformer's."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from seq2seq.model.attention import MultiHeadAttention, attend, attention_weights
from seq2seq.model.masks import padding_mask

TOLERANCE = 1e-5
HIDDEN, HEADS = 768, 12  # of BERT base and ViT base


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def require_equal(found: Tensor, expected: Tensor) -> None:
    assert_close(found, expected, atol=TOLERANCE, rtol=TOLERANCE)


def copy(theirs: Any, ours: MultiHeadAttention) -> None:
    """Give our projections the weights of query, key and value of Hugging Face."""
    with torch.no_grad():
        for projection, names in (
            (ours.q_proj, ("query", "q_proj")),
            (ours.k_proj, ("key", "k_proj")),
            (ours.v_proj, ("value", "v_proj")),
        ):
            (source,) = (getattr(theirs, name) for name in names if hasattr(theirs, name))
            projection.weight.copy_(source.weight)
            projection.bias.copy_(source.bias)


def make_config(name: str) -> Any:
    """Hugging Face's own default, computed without a fused kernel."""
    config = getattr(pytest.importorskip("transformers"), name)()
    config._attn_implementation = "eager"
    return config


def spread(module: nn.Module) -> None:
    """Random weights from a config are so small that all attention is nearly even; make it choose."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.06)


def mixed_and_weights(ours: MultiHeadAttention, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Heads side by side before the output projection, which BERT and ViT have in another module; and the weights."""
    with torch.no_grad():
        queries, memory = ours.queries(x), ours.keys_values(x)
        context = attend(queries, memory, mask).transpose(1, 2).flatten(2)
        return context, attention_weights(queries, memory.keys, mask)


@pytest.mark.parametrize("is_cross", [False, True])
def test_it_is_pytorchs(is_cross: bool) -> None:
    ours, theirs = MultiHeadAttention(HIDDEN, HEADS), nn.MultiheadAttention(HIDDEN, HEADS, batch_first=True)
    spread(ours)
    with torch.no_grad():
        for part in ("weight", "bias"):
            joined = torch.cat([getattr(one, part) for one in (ours.q_proj, ours.k_proj, ours.v_proj)])
            getattr(theirs, f"in_proj_{part}").copy_(joined)
            getattr(theirs.out_proj, part).copy_(getattr(ours.out_proj, part))
    x = torch.randn(2, 11, HIDDEN)
    memory = torch.randn(2, 17, HIDDEN) if is_cross else x
    mask = torch.ones(2, 1, 1, memory.shape[1], dtype=torch.bool)
    mask[1, ..., -4:] = False
    with torch.no_grad():
        expected, weights = theirs(x, memory, memory, key_padding_mask=~mask[:, 0, 0], average_attn_weights=False)
        require_equal(ours(x, ours.keys_values(memory), mask), expected)
        require_equal(attention_weights(ours.queries(x), ours.keys_values(memory).keys, mask), weights)
    assert weights.amax() > 0.2


def test_it_is_berts_with_padding() -> None:
    models = pytest.importorskip("transformers.models.bert.modeling_bert", reason="transformers is not installed")
    config = make_config("BertConfig")
    assert (config.hidden_size, config.num_attention_heads) == (HIDDEN, HEADS)
    theirs, ours = models.BertSelfAttention(config).eval(), MultiHeadAttention(HIDDEN, HEADS).eval()
    spread(theirs)
    copy(theirs, ours)
    x = torch.randn(2, 13, HIDDEN)
    ids = torch.full((2, 13), 7)
    ids[1, 9:] = 0
    mask = padding_mask(ids, 0)
    additive = torch.zeros(mask.shape).masked_fill_(~mask, torch.finfo(torch.float32).min)
    with torch.no_grad():
        expected, expected_weights = theirs(x, attention_mask=additive)[:2]
    mixed, weights = mixed_and_weights(ours, x, mask)
    require_equal(mixed, expected)
    require_equal(weights, expected_weights)
    assert (weights[1, ..., 9:] == 0).all()
    assert weights.amax() > 0.2


def test_it_is_a_vision_transformers_over_a_class_token_and_patches() -> None:
    """A picture of 224 × 224 in patches of 16 × 16: 196 of them, and before them the class token; no mask."""
    models = pytest.importorskip("transformers.models.vit.modeling_vit", reason="transformers is not installed")
    config = make_config("ViTConfig")
    assert (config.hidden_size, config.num_attention_heads) == (HIDDEN, HEADS)
    embeddings = models.ViTEmbeddings(config).eval()
    with torch.no_grad():
        x = embeddings(torch.randn(1, 3, config.image_size, config.image_size))
    assert x.shape == (1, 197, HIDDEN)
    attention = getattr(models, "ViTSelfAttention", None) or models.ViTAttention  # the newer one projects, too
    theirs, ours = attention(config).eval(), MultiHeadAttention(HIDDEN, HEADS).eval()
    spread(theirs)
    copy(theirs, ours)
    mixed, weights = mixed_and_weights(ours, x, None)
    with torch.no_grad():
        expected, found = theirs(x)[0], mixed
        if projection := getattr(theirs, "o_proj", None):
            ours.out_proj.load_state_dict(projection.state_dict())
            found = ours(x, ours.keys_values(x))
    require_equal(found, expected)
    assert weights.shape == (1, HEADS, 197, 197)
    assert_close(weights.sum(-1), torch.ones(1, HEADS, 197))


def test_a_layer_of_other_weights_is_another() -> None:
    """The comparison can fail: one projection not copied is noticed."""
    models = pytest.importorskip("transformers.models.bert.modeling_bert", reason="transformers is not installed")
    theirs, ours = models.BertSelfAttention(make_config("BertConfig")).eval(), MultiHeadAttention(HIDDEN, HEADS)
    copy(theirs, ours)
    with torch.no_grad():
        ours.v_proj.weight.mul_(1.01)
    x = torch.randn(1, 5, HIDDEN)
    with torch.no_grad():
        assert not torch.allclose(mixed_and_weights(ours, x, None)[0], theirs(x)[0], atol=TOLERANCE, rtol=TOLERANCE)
