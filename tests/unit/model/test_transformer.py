from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from seq2seq.errors import UserError
from seq2seq.model import transformer
from seq2seq.model.layers import Dropout, GatedFeedForward
from seq2seq.model.transformer import Transformer
from seq2seq.text.tokenizer import PAD
from tests.unit.model.models import STYLES, V, make_transformer, other_ids, sizes, token_ids


@pytest.fixture(params=STYLES)
def model(request: pytest.FixtureRequest) -> Transformer:
    return make_transformer(**STYLES[request.param])


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
    ours = make_transformer(num_encoder_layers=1).encoder_layers[0]
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
    published, modern = (make_transformer(d_model=48, d_ff=192, **style) for style in STYLES.values())
    count, other = (sum(p.numel() for p in model.parameters()) for model in (published, modern))
    assert abs(count - other) < 0.05 * count
    assert isinstance(modern.encoder_layers[0].feed_forward, GatedFeedForward)


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


def test_wrapped_layers_compute_what_they_computed_before(model: Transformer) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):  # jaxtyping's checks cannot be compiled
        expected, trace = model.predict(src, tgt_in), model.traced(src, tgt_in)
        for layers in (model.encoder_layers, model.decoder_layers):
            for index, layer in enumerate(layers):
                layers[index] = cast("nn.Module", torch.compile(layer, backend="eager"))
        assert torch.equal(model.predict(src, tgt_in), expected)
        _, state = model.decode(tgt_in[:, :3], model.encode(src))
        assert_close(model.decode(tgt_in[:, 3:], state)[0], expected[:, 3:])
        again = model.traced(src, tgt_in)
    assert_close([*again.encoder, *again.decoder, *again.cross], [*trace.encoder, *trace.decoder, *trace.cross])


def test_logits_are_computed_in_float32_in_every_precision() -> None:
    model, src, tgt_in = make_transformer(output_bias=True), token_ids(2, 7), token_ids(2, 5)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        hidden = model(src, tgt_in).bfloat16()
        logits, predicted = model.logits(hidden), model.predict(src, tgt_in)
    assert (logits.dtype, predicted.dtype) == (torch.float32, torch.float32)
    assert torch.equal(logits, F.linear(hidden.float(), model.embedding.weight, model.output_bias))


@pytest.mark.parametrize("layers", [1, 3])
def test_predictions_come_with_the_attention_of_the_aligning_layer(layers: int) -> None:
    model, src, tgt_in = make_transformer(scale=4, num_decoder_layers=layers), token_ids(2, 7), token_ids(2, 5)
    src[1, 5:] = PAD
    with torch.no_grad():
        logits, attention = model.predict_and_align(src, tgt_in)
        assert torch.equal(logits, model.predict(src, tgt_in))
    assert_close(attention, model.traced(src, tgt_in).cross[max(0, layers - 2)].mean(1))
    assert_close(attention.sum(-1), torch.ones(2, 5))
    assert (attention[1, :, 5:] == 0).all()


def test_attention_is_the_mean_of_the_heads_that_pytorch_gives() -> None:
    ours = make_transformer(num_encoder_layers=1, num_decoder_layers=1)
    src, tgt_in = token_ids(2, 7), token_ids(2, 1)
    layer, encoder_layer = next(iter(ours._decoder())), ours.encoder_layers[0]
    theirs = nn.MultiheadAttention(12, 3, batch_first=True).eval()
    with torch.no_grad():
        for part in ("weight", "bias"):
            joined = [getattr(getattr(layer.cross_attention, f"{which}_proj"), part) for which in "qkv"]
            getattr(theirs, f"in_proj_{part}").copy_(torch.cat(joined))
        x, memory = ours._embed(tgt_in, "target", 0)[0], ours._embed(src, "source", 0)[0]
        own = layer.self_attention.v_proj(x)  # the mean over the one target token
        x = layer.self_residual(x, lambda _: layer.self_attention.out_proj(own))
        memory = encoder_layer(memory, (src != PAD)[:, None, None], None)
        assert_close(ours.predict_and_align(src, tgt_in)[1], theirs(x, memory, memory)[1])
