from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from seq2seq.errors import UserError
from seq2seq.model.transformer import Transformer
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.batching import Batch
from seq2seq.training import loss as loss_module
from seq2seq.training.loss import cross_entropy, r_drop_loss
from seq2seq.training.module import TranslationModule

N, T, D, V, PAD = 3, 5, 8, 21, 0


@pytest.fixture
def targets() -> Tensor:
    torch.manual_seed(0)
    targets = torch.randint(1, V, (N, T))
    targets[1, 3:] = PAD
    return targets


@pytest.fixture(params=[4, 256])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(loss_module, "CHUNK", request.param)
    return request.param


@pytest.fixture(params=["left out", "counted as nothing"])
def padding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "counted as nothing":  # as on a GPU
        monkeypatch.setattr(loss_module, "LEAVES_OUT_PADDING", ())


@pytest.mark.usefixtures("padding")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("alpha", [0.0, 5.0])
def test_loss_and_gradients_are_those_of_the_papers_formula(
    chunk: int, targets: Tensor, smoothing: float, alpha: float
) -> None:
    hidden = torch.randn(2 * N, T, D, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(V, D, dtype=torch.float64, requires_grad=True)
    loss, nll, divergence, tokens = r_drop_loss(hidden, weight, targets, pad=PAD, alpha=alpha, smoothing=smoothing)
    (3 * loss).backward()
    grads = hidden.grad, weight.grad
    hidden.grad, weight.grad = None, None

    one, two = ((hidden[half] @ weight.T).log_softmax(-1).flatten(0, 1) for half in (slice(N), slice(N, None)))
    flat = targets.flatten()
    real = flat != PAD
    entropies = [F.cross_entropy(x[real], flat[real], reduction="sum", label_smoothing=smoothing) for x in (one, two)]
    kls = [F.kl_div(b[real], a[real], reduction="sum", log_target=True) for a, b in ((one, two), (two, one))]
    expected = 0.5 * (
        torch.stack(entropies).sum() + alpha * 0.5 * torch.stack(kls).sum()
    )  # half of Liang et al. 2021, eq. 4
    (3 * expected).backward()
    assert tokens == N * T - 2
    assert_close(loss, expected)
    assert_close(divergence, torch.stack(kls).mean())
    assert_close(nll, torch.stack([F.nll_loss(x[real], flat[real], reduction="sum") for x in (one, two)]).mean())
    assert_close(grads, (hidden.grad, weight.grad))


@pytest.mark.parametrize("bias", [None, torch.linspace(-1, 2, V)])
def test_equal_passes_give_the_single_passes_loss_and_gradient(targets: Tensor, bias: Tensor | None) -> None:
    single = torch.randn(N, T, D, requires_grad=True)
    weight = torch.randn(V, D, requires_grad=True)
    cross_entropy(single, weight, targets, pad=PAD, smoothing=0.1, bias=bias)[0].backward()
    expected = single.grad, weight.grad
    single.grad, weight.grad = None, None
    twice = single.repeat(2, 1, 1)
    loss, _, divergence, _ = r_drop_loss(twice, weight, targets, pad=PAD, alpha=5.0, smoothing=0.1, bias=bias)
    loss.backward()
    assert divergence == 0
    assert_close((single.grad, weight.grad), expected)


def test_bfloat16_autocast_stays_close_and_padding_alone_costs_nothing(targets: Tensor) -> None:
    hidden, weight = torch.randn(2 * N, T, D, requires_grad=True), torch.randn(V, D)
    with torch.autocast("cpu", torch.bfloat16):
        low = r_drop_loss(hidden, weight, targets, pad=PAD, alpha=5.0)[0]
    high = r_drop_loss(hidden, weight, targets, pad=PAD, alpha=5.0)[0]
    assert low.dtype == torch.float32
    assert_close(low, high, rtol=0.03, atol=0)
    nothing = r_drop_loss(hidden, weight, torch.zeros_like(targets), pad=PAD, alpha=5.0)[0]
    nothing.backward()
    assert nothing.item() == 0


def learner(alpha: float, dropout: float = 0.3) -> TranslationModule:
    torch.manual_seed(1)
    config = ModelConfig(d_model=16, num_heads=2, d_ff=32, num_encoder_layers=1, num_decoder_layers=1, dropout=dropout)
    return TranslationModule(
        Transformer(config, V), TrainingConfig(r_drop=alpha, label_smoothing=0.0, max_tokens=4096, learning_rate=7e-4)
    )


def a_batch() -> Batch:
    torch.manual_seed(2)
    tgt = torch.randint(4, V, (16, 6))
    src = torch.cat((tgt, torch.full((16, 1), 3)), 1)
    return Batch(src, torch.cat((torch.full((16, 1), 2), tgt), 1), torch.cat((tgt, torch.full((16, 1), 3)), 1))


def test_training_draws_two_dropouts_predictions_together() -> None:
    divergences, losses = {}, {}
    for alpha in (0.0, 5.0):
        module, batch = learner(alpha), a_batch()
        optimizer = torch.optim.Adam(module.parameters(), lr=5e-3)
        for step in range(80):
            torch.manual_seed(step)
            optimizer.zero_grad()
            module.training_step(batch, step).backward()
            optimizer.step()
        assert module.last_nll is not None
        losses[alpha] = module.last_nll.item()
        hidden = module.model(batch.src.repeat(2, 1), batch.tgt_in.repeat(2, 1))
        of_both = r_drop_loss(hidden, module.model.embedding.weight, batch.tgt_out, pad=PAD, alpha=1.0)
        divergences[alpha] = of_both[2].item()
    assert divergences[5.0] < divergences[0.0] / 2
    assert losses[5.0] < 16 * 7 * 3.0  # and it learns: ln 21 = 3.04 nats a token at the beginning


def test_tokens_count_once_and_validation_is_plain() -> None:
    module, batch = learner(5.0), a_batch()
    module.training_step(batch, 0)
    assert module.last_tokens == 16 * 7
    plain = learner(0.0)
    module.eval()
    plain.eval()
    assert_close(module.loss(batch, 0.0), plain.loss(batch, 0.0))


def test_without_dropout_there_is_nothing_to_draw_together(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"training.r_drop=5.0 compares two dropouts, but model.dropout"):
        learner(5.0, dropout=0.0)
