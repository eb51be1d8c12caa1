import math
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from seq2seq.model.attention import KeysValues, MultiHeadAttention, attend, attention_weights
from seq2seq.model.kernels import UNFUSED_MAX_KEYS, uses_fused_kernel
from seq2seq.model.masks import padding_mask
from seq2seq.model.positions import rotate, rotations, sinusoidal
from seq2seq.model.transformer import Transformer
from seq2seq.model.variants.trace import record_attention
from tests.unit.model.models import STYLES, make_transformer, pair

N, H, T, S, C = 2, 3, 5, 7, 4
CPU = torch.device("cpu")


def random_inputs(s: int = S) -> tuple[Tensor, KeysValues]:
    return torch.randn(N, H, T, C), KeysValues(torch.randn(N, H, s, C), torch.randn(N, H, s, C))


def random_mask(s: int = S) -> Tensor:
    mask = torch.rand(N, 1, T, s) > 0.4
    mask[..., 0] = True
    return mask


def bfloat16_with_gradients(queries: Tensor, memory: KeysValues) -> tuple[Tensor, KeysValues]:
    return queries.bfloat16().requires_grad_(), KeysValues(*(x.bfloat16() for x in memory))


@pytest.mark.parametrize("masked", [False, True])
def test_attention_equals_a_float64_reference(masked: bool) -> None:
    queries, memory = random_inputs()
    mask = random_mask() if masked else None
    context, weights = attend(queries, memory, mask), attention_weights(queries, memory.keys, mask)
    q, k, v = queries.double(), memory.keys.double(), memory.values.double()
    relevance = torch.einsum("nhtc,nhsc->nhts", q, k) / C**0.5
    if mask is not None:
        relevance = torch.where(mask, relevance, -torch.inf)
    exponentials = (relevance - relevance.amax(-1, keepdim=True)).exp()
    reference = exponentials / exponentials.sum(-1, keepdim=True)
    assert_close(weights, reference.float())
    assert_close(context, torch.einsum("nhts,nhsc->nhtc", reference, v).float())


@pytest.mark.parametrize("s", [S, UNFUSED_MAX_KEYS, UNFUSED_MAX_KEYS + 1])
def test_training_in_bfloat16_stays_close_to_float32_with_both_kernels(s: int) -> None:
    torch.manual_seed(0)
    queries, memory = random_inputs(s)
    mask = random_mask(s)
    low_queries, low_memory = bfloat16_with_gradients(queries, memory)
    assert uses_fused_kernel(low_queries, low_memory.keys, attention_weights) == (s > UNFUSED_MAX_KEYS)
    low, exact = attend(low_queries, low_memory, mask), attend(queries.requires_grad_(), memory, mask)
    assert_close(low.float(), exact, atol=0.05, rtol=0.05)
    (low_gradient,), (gradient,) = (
        torch.autograd.grad(context.sum(), [x]) for context, x in ((low, low_queries), (exact, queries))
    )
    assert_close(low_gradient.float(), gradient, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("is_fused", [False, True])
def test_a_query_that_may_attend_to_nothing_gives_zeros_and_finite_gradients(is_fused: bool) -> None:
    queries, memory = random_inputs()
    queries, memory = (queries.requires_grad_(), memory) if is_fused else bfloat16_with_gradients(queries, memory)
    assert uses_fused_kernel(queries, memory.keys, attention_weights) == is_fused
    mask = random_mask()
    mask[1] = False
    context = attend(queries, memory, mask)
    assert (context[1] == 0).all()
    assert torch.autograd.grad(context.sum(), [queries])[0].isfinite().all()


@pytest.mark.parametrize("is_fused", [False, True])
def test_attention_dropout_keeps_the_expected_value(is_fused: bool) -> None:
    torch.manual_seed(0)
    queries, memory = (torch.ones(1, 1, 400, 2), KeysValues(torch.ones(1, 1, 60, 2), torch.ones(1, 1, 60, 2)))
    queries, memory = (queries, memory) if is_fused else bfloat16_with_gradients(queries, memory)
    context = attend(queries, memory, None, 0.3).float()
    assert context.mean().item() == pytest.approx(1, abs=0.02)
    assert context.std() > 0.05


@pytest.mark.parametrize("bias", [True, False])
def test_multi_head_attention_equals_pytorchs_with_copied_weights(bias: bool) -> None:
    d = H * C
    ours, theirs = MultiHeadAttention(d, H, bias=bias), nn.MultiheadAttention(d, H, bias=bias, batch_first=True)
    with torch.no_grad():
        for part in ("weight", "bias") if bias else ("weight",):
            joined = torch.cat([getattr(linear, part) for linear in (ours.q_proj, ours.k_proj, ours.v_proj)])
            getattr(theirs, f"in_proj_{part}").copy_(joined)
            getattr(theirs.out_proj, part).copy_(getattr(ours.out_proj, part))
    x, memory = torch.randn(N, T, d), torch.randn(N, S, d)
    mask = padding_mask(torch.tensor([[5] * S, [5] * (S - 3) + [0] * 3]), 0)
    expected, expected_weights = theirs(x, memory, memory, key_padding_mask=~mask[:, 0, 0], average_attn_weights=False)
    assert_close(ours(x, ours.keys_values(memory), mask), expected)
    assert_close(attention_weights(ours.queries(x), ours.keys_values(memory).keys, mask), expected_weights)


@pytest.mark.slow
def test_it_is_berts_with_padding() -> None:
    modeling = pytest.importorskip("transformers.models.bert.modeling_bert", reason="transformers is not installed")
    config: Any = modeling.BertConfig(attn_implementation="eager")
    theirs, ours = modeling.BertSelfAttention(config).eval(), MultiHeadAttention(768, 12).eval()
    x, ids = torch.randn(2, 13, 768), torch.full((2, 13), 7)
    ids[1, 9:] = 0
    mask = padding_mask(ids, 0)
    additive = torch.zeros(mask.shape).masked_fill_(~mask, torch.finfo(torch.float32).min)
    with torch.no_grad():
        for linear, source in ((ours.q_proj, theirs.query), (ours.k_proj, theirs.key), (ours.v_proj, theirs.value)):
            linear.weight.normal_(std=0.06)  # BERT's first weights are so small that attention is nearly even
            source.load_state_dict(linear.state_dict())
        expected, expected_weights = theirs(x, attention_mask=additive)[:2]
        queries, memory = ours.queries(x), ours.keys_values(x)
        weights = attention_weights(queries, memory.keys, mask)
        assert_close(attend(queries, memory, mask).transpose(1, 2).flatten(2), expected, atol=1e-5, rtol=1e-5)
    assert_close(weights, expected_weights, atol=1e-5, rtol=1e-5)
    assert weights.amax() > 0.2


@pytest.mark.slow
def test_it_is_a_vision_transformers_over_a_class_token_and_patches() -> None:
    """A picture of 224 × 224 in patches of 16 × 16: 196 patches after the class token, and no mask."""
    modeling = pytest.importorskip("transformers.models.vit.modeling_vit", reason="transformers is not installed")
    config: Any = modeling.ViTConfig(attn_implementation="eager")
    theirs, ours = modeling.ViTAttention(config).eval(), MultiHeadAttention(768, 12).eval()
    with torch.no_grad():
        x = modeling.ViTEmbeddings(config).eval()(torch.randn(1, 3, 224, 224))
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            linear = getattr(ours, name.replace("o_proj", "out_proj"))
            linear.weight.normal_(std=0.06)
            getattr(theirs, name).load_state_dict(linear.state_dict())
        assert x.shape == (1, 197, 768)
        assert_close(ours(x, ours.keys_values(x)), theirs(x)[0], atol=1e-4, rtol=1e-4)


def test_rows_of_a_sentence_may_share_its_memory() -> None:
    attention, x, source = MultiHeadAttention(H * C, H), torch.randn(3 * N, 1, H * C), torch.randn(N, S, H * C)
    memory, mask = attention.keys_values(source), random_mask()[:, :, :1]
    of_row = torch.arange(N).repeat_interleave(3)
    assert_close(attention(x, memory, mask), attention(x, memory.select(of_row), mask[of_row]))


def test_sinusoids_are_the_papers() -> None:
    angles = [[position / 10_000 ** (2 * i / 12) for i in range(6)] for position in range(9)]
    expected = [[wave(angle) for angle in row for wave in (math.sin, math.cos)] for row in angles]
    assert_close(sinusoidal(0, 9, 12, CPU), torch.tensor(expected))


def test_rotation_keeps_lengths_and_makes_products_depend_on_distance_only() -> None:
    query, key = (torch.randn(1, 1, 1, 8).expand(1, 9, 1, 8) for _ in range(2))
    turned_query, turned_key = (rotate(x, rotations(0, 9, 8, CPU)) for x in (query, key))
    assert_close(turned_query.norm(dim=-1), query.norm(dim=-1))
    products = turned_query[0, :, 0] @ turned_key[0, :, 0].T
    for distance in range(-4, 5):
        diagonal = products.diagonal(distance)
        assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    assert not torch.allclose(products.diagonal(1)[0], products.diagonal(2)[0])


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
