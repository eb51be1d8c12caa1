import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from seq2seq.training import loss as loss_module
from seq2seq.training.loss import cross_entropy

N, T, D, V, PAD = 3, 5, 8, 21, 0


@pytest.fixture(params=[4, 256])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(loss_module, "CHUNK", request.param)
    return request.param


@pytest.fixture(params=["left out", "counted as nothing"])
def padding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "counted as nothing":  # as on a GPU
        monkeypatch.setattr(loss_module, "LEAVES_OUT_PADDING", ())


@pytest.mark.usefixtures("padding")
@pytest.mark.parametrize("bias", [None, torch.linspace(-1, 2, V)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients_equal_pytorchs_over_real_tokens(
    chunk: int, smoothing: float, bias: torch.Tensor | None
) -> None:
    hidden = torch.randn(N, T, D, requires_grad=True)
    weight = torch.randn(V, D, requires_grad=True)
    targets = torch.randint(1, V, (N, T))
    targets[1, 3:] = PAD
    loss, nll, tokens = cross_entropy(hidden, weight, targets, pad=PAD, smoothing=smoothing, bias=bias)
    (3 * loss).backward()
    grads = hidden.grad, weight.grad
    hidden.grad, weight.grad = None, None

    logits = F.linear(hidden, weight, bias).flatten(0, 1)
    options = {"ignore_index": PAD, "reduction": "sum"}
    expected = F.cross_entropy(logits, targets.flatten(), label_smoothing=smoothing, **options)
    (3 * expected).backward()
    assert tokens == N * T - 2
    assert_close(loss, expected)
    assert_close(nll, F.cross_entropy(logits, targets.flatten(), **options))
    assert_close(grads, (hidden.grad, weight.grad))


@pytest.mark.usefixtures("padding")
def test_padding_rows_get_no_gradient() -> None:
    hidden = torch.randn(N, T, D, requires_grad=True)
    targets = torch.randint(1, V, (N, T))
    targets[2, 1:] = PAD
    cross_entropy(hidden, torch.randn(V, D), targets, pad=PAD)[0].backward()
    assert hidden.grad is not None
    assert (hidden.grad[2, 1:] == 0).all()
    assert (hidden.grad[2, 0] != 0).any()


def test_bfloat16_autocast_stays_close_to_float32() -> None:
    hidden, weight, targets = torch.randn(N, T, D), torch.randn(V, D), torch.randint(1, V, (N, T))
    with torch.autocast("cpu", torch.bfloat16):
        low, _, _ = cross_entropy(hidden, weight, targets, pad=PAD, smoothing=0.1)
    high, _, _ = cross_entropy(hidden, weight, targets, pad=PAD, smoothing=0.1)
    assert low.dtype == torch.float32
    assert_close(low, high, rtol=0.02, atol=0)


@pytest.mark.usefixtures("padding")
def test_a_batch_of_padding_alone_costs_nothing() -> None:
    hidden = torch.randn(N, T, D, requires_grad=True)
    loss, nll, tokens = cross_entropy(hidden, torch.randn(V, D), torch.zeros(N, T, dtype=torch.long), pad=PAD)
    loss.backward()
    assert (loss.item(), nll.item(), tokens.item()) == (0, 0, 0)


def test_a_factor_of_the_loss_is_not_rounded_to_bf16():
    torch.manual_seed(0)
    hidden = torch.randn(N, T, D, requires_grad=True)
    weight = torch.randn(V, D, requires_grad=True)
    targets = torch.randint(1, V, (N, T))
    gradients = []
    for divisor in (512, 768):  # a power of two has no error
        with torch.autocast("cpu", torch.bfloat16):
            loss, *_ = cross_entropy(hidden, weight, targets, pad=PAD)
        (gradient,) = torch.autograd.grad(loss / divisor, hidden)
        gradients.append((gradient * divisor).double())
    ratio = (gradients[0] * gradients[1]).sum() / gradients[0].square().sum()
    assert abs(ratio - 1) < 1e-3  # 1/768 in bf16 is 0.2 % more
