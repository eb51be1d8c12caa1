import pytest
import torch
from torch.testing import assert_close

from seq2seq.model.attention import KeysValues, MultiHeadAttention, attend, attention_weights
from seq2seq.model.kernels import UNFUSED_MAX_KEYS, uses_fused_kernel
from seq2seq.model.masks import causal_mask, padding_mask

N, H, T, S, C = 2, 3, 5, 7, 4


def random_inputs(dtype: torch.dtype = torch.float32, s: int = S) -> tuple[torch.Tensor, KeysValues]:
    return torch.randn(N, H, T, C, dtype=dtype), KeysValues(
        torch.randn(N, H, s, C, dtype=dtype), torch.randn(N, H, s, C, dtype=dtype)
    )


def some_mask(s: int = S) -> torch.Tensor:
    mask = torch.rand(N, 1, T, s) > 0.4
    mask[..., 0] = True
    return mask


def bfloat16_with_gradients(queries: torch.Tensor, memory: KeysValues) -> tuple[torch.Tensor, KeysValues]:
    return queries.bfloat16().requires_grad_(), KeysValues(*(x.bfloat16() for x in memory))


@pytest.mark.parametrize("masked", [False, True])
def test_attention_equals_a_float64_reference(masked: bool) -> None:
    queries, memory = random_inputs()
    mask = some_mask() if masked else None
    context = attend(queries, memory, mask)
    assert_close(context, attention_weights(queries, memory.keys, mask) @ memory.values)

    q, k, v = queries.double(), memory.keys.double(), memory.values.double()
    relevance = torch.einsum("nhtc,nhsc->nhts", q, k) / C**0.5
    if mask is not None:
        relevance = torch.where(mask, relevance, -torch.inf)
    exponentials = (relevance - relevance.amax(-1, keepdim=True)).exp()
    reference = torch.einsum("nhts,nhsc->nhtc", exponentials / exponentials.sum(-1, keepdim=True), v)
    assert_close(context, reference.float())


@pytest.mark.parametrize("s", [S, UNFUSED_MAX_KEYS, UNFUSED_MAX_KEYS + 1])
def test_training_in_bfloat16_stays_close_to_float32_with_both_kernels(s: int) -> None:
    torch.manual_seed(0)
    queries, memory = random_inputs(s=s)
    mask = some_mask(s)
    low_queries, low_memory = bfloat16_with_gradients(queries, memory)
    assert uses_fused_kernel(low_queries, low_memory.keys) == (s > UNFUSED_MAX_KEYS)
    low, exact = attend(low_queries, low_memory, mask), attend(queries.requires_grad_(), memory, mask)
    assert_close(low.float(), exact, atol=0.05, rtol=0.05)
    for context in (low, exact):
        context.sum().backward()
    assert low_queries.grad is not None
    assert queries.grad is not None
    assert_close(low_queries.grad.float(), queries.grad, atol=0.05, rtol=0.05)


def test_weights_of_a_query_sum_to_one_and_ignore_what_is_masked() -> None:
    queries, memory = random_inputs()
    mask = some_mask()
    weights = attention_weights(queries, memory.keys, mask)
    assert_close(weights.sum(-1), torch.ones(N, H, T))
    assert (weights.masked_select(~mask.expand_as(weights)) == 0).all()


@pytest.mark.parametrize("is_fused", [False, True])
def test_a_query_that_may_attend_to_nothing_gives_zeros_and_finite_gradients(is_fused: bool) -> None:
    queries, memory = random_inputs()
    queries, memory = (queries.requires_grad_(), memory) if is_fused else bfloat16_with_gradients(queries, memory)
    assert uses_fused_kernel(queries, memory.keys) == is_fused
    mask = some_mask()
    mask[1] = False
    context = attend(queries, memory, mask)
    assert (context[1] == 0).all()
    context.sum().backward()
    assert queries.grad is not None
    assert queries.grad.isfinite().all()


@pytest.mark.parametrize("bias", [True, False])
def test_multi_head_attention_equals_pytorchs_with_copied_weights(bias: bool) -> None:
    d = H * C
    ours = MultiHeadAttention(d, H, bias=bias)
    theirs = torch.nn.MultiheadAttention(d, H, bias=bias, batch_first=True)
    projections = (ours.q_proj, ours.k_proj, ours.v_proj)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([projection.weight for projection in projections]))
        theirs.out_proj.weight.copy_(ours.out_proj.weight)
        if bias:
            theirs.in_proj_bias.copy_(torch.cat([projection.bias for projection in projections]))
            theirs.out_proj.bias.copy_(ours.out_proj.bias)
    x, memory = torch.randn(N, T, d), torch.randn(N, S, d)
    padding = torch.tensor([[True] * S, [True] * (S - 3) + [False] * 3])
    expected, expected_weights = theirs(x, memory, memory, key_padding_mask=~padding, average_attn_weights=False)
    mask = padding[:, None, None, :]
    assert_close(ours(x, ours.keys_values(memory), mask), expected)
    assert_close(attention_weights(ours.queries(x), ours.keys_values(memory).keys, mask), expected_weights)


def test_rows_of_one_sentence_may_share_its_memory() -> None:
    attention, x, source = MultiHeadAttention(H * C, H), torch.randn(3 * N, 1, H * C), torch.randn(N, S, H * C)
    memory, mask = attention.keys_values(source), some_mask()[:, :, :1]
    of_row = torch.arange(N).repeat_interleave(3)
    assert_close(attention(x, memory, mask), attention(x, memory.select(of_row), mask[of_row]))


def test_attention_knows_no_order_of_its_memory() -> None:
    queries, memory = random_inputs()
    order = torch.randperm(S)
    shuffled = KeysValues(memory.keys[:, :, order], memory.values[:, :, order])
    assert_close(attend(queries, shuffled), attend(queries, memory))


def test_attention_dropout_keeps_the_expected_value() -> None:
    queries, memory = random_inputs()
    mean = torch.stack([attend(queries, memory, None, 0.3) for _ in range(4000)]).mean(0)
    assert_close(mean, attend(queries, memory), atol=0.15, rtol=0)
    assert not torch.equal(attend(queries, memory, None, 0.3), attend(queries, memory))


def test_causal_mask_lets_a_position_attend_to_itself_and_earlier_positions() -> None:
    device = torch.device("cpu")
    assert causal_mask(3, 0, device)[0, 0].tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert causal_mask(2, 2, device)[0, 0].tolist() == [[True, True, True, False], [True, True, True, True]]


def test_padding_mask_hides_padding_from_every_query() -> None:
    mask = padding_mask(torch.tensor([[5, 3, 0, 0], [5, 6, 7, 3]]), 0)
    assert mask.shape == (2, 1, 1, 4)
    assert mask[:, 0, 0].tolist() == [[True, True, False, False], [True, True, True, True]]
