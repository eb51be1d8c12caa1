from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seq2seq.errors import UserError
from seq2seq.model import transformer
from seq2seq.model.layers import Dropout, GatedFeedForward
from seq2seq.model.transformer import Transformer
from seq2seq.settings.model import ModelConfig
from seq2seq.text.tokenizer import PAD

V = 31
STYLES: dict[str, dict[str, Any]] = {
    "vaswani": {},
    "modern": {
        "norm": "rmsnorm",
        "norm_position": "pre",
        "activation": "swiglu",
        "positions": "rotary",
        "bias": False,
    },
}


def token_ids(rows: int, length: int) -> Tensor:
    return torch.randint(4, V, (rows, length))


def other_ids(ids: Tensor) -> Tensor:
    return (ids - 4 + 1) % (V - 4) + 4


def sizes(**changes: Any) -> ModelConfig:
    values: dict[str, Any] = {
        "d_model": 12,
        "num_heads": 3,
        "d_ff": 20,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
    }
    return ModelConfig(**{**values, **changes})


@pytest.fixture(params=STYLES)
def model(request: pytest.FixtureRequest) -> Transformer:
    torch.manual_seed(0)
    return Transformer(sizes(**STYLES[request.param]), V).eval()


def test_a_future_target_token_never_changes_an_earlier_prediction(model: Transformer) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    edited = tgt_in.clone()
    edited[:, 3:] = other_ids(edited[:, 3:])
    before, after = model(src, tgt_in), model(src, edited)
    assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


def test_the_source_changes_every_prediction(model: Transformer) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    edited = src.clone()
    edited[:, 6] = other_ids(edited[:, 6])
    difference = (model(src, tgt_in) - model(edited, tgt_in)).abs().amax(-1)
    assert (difference > 1e-5).all()


def test_padding_of_the_source_changes_nothing(model: Transformer) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    padded = torch.cat((src, torch.full((2, 4), PAD)), 1)
    assert_close(model(padded, tgt_in), model(src, tgt_in))


def test_a_sentence_alone_equals_the_same_sentence_in_a_padded_batch(model: Transformer) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    src[1, 4:], tgt_in[1, 3:] = PAD, PAD
    batch = model(src, tgt_in)
    assert_close(model(src[1:, :4], tgt_in[1:, :3])[0], batch[1, :3])


def test_a_source_of_padding_alone_gives_finite_states_and_gradients(model: Transformer) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    src[1] = PAD
    hidden = model(src, tgt_in)
    assert hidden.isfinite().all()
    hidden.square().sum().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("steps", [[1, 1, 1, 1, 1], [2, 3], [1, 4]])
def test_token_by_token_equals_all_at_once(model: Transformer, steps: list[int]) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    src[1, 5:] = PAD
    whole, _ = model.decode(tgt_in, model.encode(src))
    state, parts = model.encode(src), []
    for part in tgt_in.split(steps, dim=1):
        logits, state = model.decode(part, state)
        parts.append(logits)
    assert_close(torch.cat(parts, 1), whole)
    assert state.length == 5


def test_rows_go_on_from_the_rows_they_continue_whatever_their_number(model: Transformer) -> None:
    src, prefixes = token_ids(4, 7), token_ids(4, 1)
    src[1, 5:], src[3, 2:] = PAD, PAD
    owners, state = [0, 1, 2, 3], model.encode(src)
    _, state = model.decode(prefixes, state)
    for rows, counts, length in (
        ([0, 0, 0, 1, 1, 2, 2, 2, 3], [3, 2, 3, 1], 1),
        ([2, 0, 4, 3, 3, 7, 5, 8, 8], [2, 3, 2, 2], 2),  # crosswise, twice the same
        ([1, 4, 7, 7, 7], [1, 1, 0, 3], 1),  # a sentence leaves
        ([0, 2, 4], [1, 0, 2], 1),
        ([2, 1, 1], [0, 3], 1),
        ([2], [1], 3),
    ):
        owners = [owners[row] for row in rows]
        state = state.reorder(torch.tensor(rows), counts)
        last = token_ids(len(rows), length)
        prefixes = torch.cat((prefixes[rows], last), 1)
        logits, state = model.decode(last, state)
        whole, _ = model.decode(prefixes, model.encode(src[owners]))
        assert_close(logits, whole[:, -length:])


def test_a_state_stays_as_it_was_when_others_go_on_from_it(model: Transformer) -> None:
    src, prefix = token_ids(2, 7), token_ids(2, 3)
    _, state = model.decode(prefix, model.encode(src))
    for _ in range(2):
        next_tokens, after_next = token_ids(2, 1), token_ids(2, 1)
        _, later = model.decode(next_tokens, state)
        model.decode(token_ids(2, 1), state)
        logits, _ = model.decode(after_next, later)
        whole, _ = model.decode(torch.cat((prefix, next_tokens, after_next), 1), model.encode(src))
        assert_close(logits[:, 0], whole[:, -1])


def test_gradients_flow_through_decoding_in_parts(model: Transformer) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    gradients = []
    for steps in ([5], [1, 2, 1, 1]):
        state, parts = model.encode(src), []
        for part in tgt_in.split(steps, 1):
            logits, state = model.decode(part, state)
            parts.append(logits)
        (gradient,) = torch.autograd.grad(torch.cat(parts, 1).square().sum(), [model.embedding.weight])
        gradients.append(gradient)
    assert_close(gradients[0], gradients[1])


def test_encoder_layer_equals_pytorchs_with_copied_weights() -> None:
    ours = Transformer(sizes(num_encoder_layers=1), V).eval().encoder_layers[0]
    theirs = torch.nn.TransformerEncoderLayer(12, 3, 20, batch_first=True).eval()
    weights = dict(ours.named_parameters())
    attention = "self_attention."
    with torch.no_grad():
        for part in ("weight", "bias"):
            joined = torch.cat([weights[f"{attention}{which}_proj.{part}"] for which in "qkv"])
            getattr(theirs.self_attn, f"in_proj_{part}").copy_(joined)
            getattr(theirs.self_attn.out_proj, part).copy_(weights[f"{attention}out_proj.{part}"])
            getattr(theirs.linear1, part).copy_(weights[f"feed_forward.up.{part}"])
            getattr(theirs.linear2, part).copy_(weights[f"feed_forward.down.{part}"])
    x = torch.randn(2, 7, 12)
    mask = torch.tensor([[True] * 7, [True] * 5 + [False] * 2])
    expected = theirs(x, src_key_padding_mask=~mask)
    result = ours(x, mask[:, None, None], None)
    assert_close(result[0], expected[0])
    assert_close(result[1, :5], expected[1, :5])


def test_one_matrix_serves_source_target_and_output(model: Transformer) -> None:
    names = [name for name, p in model.named_parameters() if p.shape[0] == V]
    assert names == ["embedding.weight"]
    hidden = torch.randn(2, 5, 12)
    assert_close(model.logits(hidden), hidden @ model.embedding.weight.T)


def test_padding_id_is_the_tokenizers() -> None:
    assert transformer.PAD == PAD


def test_both_styles_cost_about_the_same() -> None:
    published = sum(p.numel() for p in Transformer(sizes(d_model=48, d_ff=192), V).parameters())
    modern = sum(p.numel() for p in Transformer(sizes(d_model=48, d_ff=192, **STYLES["modern"]), V).parameters())
    assert abs(published - modern) < 0.05 * published
    assert isinstance(Transformer(sizes(activation="swiglu"), V).encoder_layers[0].feed_forward, GatedFeedForward)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_drops_its_rate_and_keeps_the_mean(rate: float) -> None:
    dropout = Dropout(rate)
    out = dropout(torch.ones(300, 401))
    assert abs((out == 0).float().mean().item() - rate) < 0.01
    assert abs(out.mean().item() - 1) < 0.01
    assert out.unique().numel() == 2
    assert torch.equal(dropout.eval()(torch.ones(3, 5)), torch.ones(3, 5))


def test_dropout_is_decided_by_the_seed() -> None:
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(Dropout(0.3)(torch.ones(7, 5)))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_gradients_flow_through_what_dropout_kept_only() -> None:
    x = torch.ones(50, 7, requires_grad=True)
    out = Dropout(0.5)(x)
    out.sum().backward()
    assert x.grad is not None
    assert_close(x.grad, out.detach())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": 10}, "model.d_model=10 must be a multiple of model.num_heads=3"),
        ({"dropout": 1.0}, r"model.dropout=1.0 must be in \[0, 1\)"),
        ({"norm": "batch"}, "model.norm=batch is not known: choose one of layernorm, rmsnorm"),
        ({"num_decoder_layers": 0}, "model.num_decoder_layers=0 must be at least 1"),
        ({"d_model": 6, "num_heads": 2, "positions": "rotary"}, "must be even for rotary positions"),
    ],
)
def test_impossible_sizes_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        sizes(**change)


def test_a_watched_layer_tells_what_the_rows_attend_to(model: Transformer) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    src[1, 5:] = PAD
    _, whole = model.decode(tgt_in, model.encode(src).watching())
    assert whole.attention is not None
    assert_close(whole.attention.sum(-1), torch.ones(2, 5))
    assert (whole.attention[1, :, 5:] == 0).all()
    _, state = model.decode(tgt_in[:, :4], model.encode(src).watching())
    _, state = model.decode(tgt_in[[0, 1, 1], 4:], state.reorder(torch.tensor([0, 1, 1]), [1, 2]))
    assert_close(state.attention, whole.attention[[0, 1, 1], 4:])
    _, last = model.decode(tgt_in, model.encode(src).watching(1))
    assert last.attention is not None
    assert not torch.allclose(last.attention, whole.attention)


def test_watched_attention_is_the_mean_of_the_heads_that_pytorch_gives() -> None:
    torch.manual_seed(0)
    ours = Transformer(sizes(num_encoder_layers=1, num_decoder_layers=1), V).eval()
    src, tgt_in = token_ids(2, 7), token_ids(2, 1)
    _, state = ours.decode(tgt_in, ours.encode(src).watching())
    layer, encoder_layer = ours._decoder_layers()[0], ours.encoder_layers[0]
    theirs = torch.nn.MultiheadAttention(12, 3, batch_first=True).eval()
    with torch.no_grad():
        for part in ("weight", "bias"):
            joined = [getattr(getattr(layer.cross_attention, f"{which}_proj"), part) for which in "qkv"]
            getattr(theirs, f"in_proj_{part}").copy_(torch.cat(joined))
    x, _ = ours._embed(tgt_in, "target", 0)
    # With one target token, self-attention gives its own value.
    y = layer.self_attention.out_proj(layer.self_attention.v_proj(x))
    memory, _ = ours._embed(src, "source", 0)
    memory = encoder_layer(memory, (src != PAD)[:, None, None], None)
    _, expected = theirs(layer.self_residual.leave(x, y), memory, memory)
    assert_close(state.attention, expected)
