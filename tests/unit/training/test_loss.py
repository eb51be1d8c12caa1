"""The loss and its gradients are those of PyTorch's operations and of R-Drop's paper, chunk by chunk."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from seq2seq.data.batching import Batch, Shape, gather
from seq2seq.data.dataset import Pairs
from seq2seq.model import attention
from seq2seq.model.build import build_model
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.training import loss as loss_file
from seq2seq.training import loss as loss_module
from seq2seq.training.loss import cross_entropy, r_drop_loss
from seq2seq.training.module import TranslationModule
from tests.refusing import refuses

N, T, D, V, PAD = 3, 5, 8, 21, 0


@pytest.fixture(params=[4, 256])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(loss_module, "CHUNK", request.param)
    return request.param


@pytest.fixture(params=["left out", "counted as nothing"])
def padding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "counted as nothing":  # as on a GPU
        monkeypatch.setattr(loss_module, "LEAVES_OUT_PADDING", ())


@pytest.fixture
def targets() -> Tensor:
    torch.manual_seed(0)
    targets = torch.randint(1, V, (N, T))
    targets[1, 3:] = PAD
    return targets


@pytest.mark.usefixtures("padding", "chunk")
@pytest.mark.parametrize("bias", [None, torch.linspace(-1, 2, V)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients_equal_pytorchs_over_real_tokens(targets, smoothing, bias):
    hidden, weight = torch.randn(N, T, D, requires_grad=True), torch.randn(V, D, requires_grad=True)
    loss, nll, tokens = cross_entropy(hidden, weight, targets, pad=PAD, smoothing=smoothing, bias=bias)
    gradients = torch.autograd.grad(3 * loss, (hidden, weight))

    logits = F.linear(hidden, weight, bias).flatten(0, 1)
    options = {"ignore_index": PAD, "reduction": "sum"}
    expected = F.cross_entropy(logits, targets.flatten(), label_smoothing=smoothing, **options)
    assert tokens == N * T - 2
    assert_close(loss, expected)
    assert_close(nll, F.cross_entropy(logits, targets.flatten(), **options))
    assert_close(gradients, torch.autograd.grad(3 * expected, (hidden, weight)))
    assert (gradients[0][1, 3:] == 0).all(), "padding gets no gradient"


@pytest.mark.usefixtures("padding", "chunk")
@pytest.mark.parametrize("bias", [None, torch.linspace(-1, 2, V, dtype=torch.float64)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("alpha", [0.0, 5.0])
def test_r_drops_loss_and_gradients_are_those_of_the_papers_formula(targets, smoothing, alpha, bias):
    hidden = torch.randn(2 * N, T, D, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(V, D, dtype=torch.float64, requires_grad=True)
    options = {"pad": PAD, "alpha": alpha, "smoothing": smoothing, "bias": bias}
    loss, nll, divergence, tokens = r_drop_loss(hidden, weight, targets, **options)
    gradients = torch.autograd.grad(3 * loss, (hidden, weight))

    real = targets.flatten() != PAD
    ids = targets.flatten()[real]
    p, q = (F.linear(half, weight, bias).log_softmax(-1).flatten(0, 1)[real] for half in hidden.chunk(2))
    both = torch.cat((p, q))
    entropies = F.cross_entropy(both, ids.repeat(2), reduction="sum", label_smoothing=smoothing)
    kls = F.kl_div(torch.cat((q, p)), both, reduction="sum", log_target=True)
    expected = 0.5 * (entropies + alpha * 0.5 * kls)  # half of Liang et al. 2021, eq. 4
    assert tokens == N * T - 2
    assert_close(loss, expected)
    assert_close(divergence, kls / 2)
    assert_close(nll, F.nll_loss(both, ids.repeat(2), reduction="sum") / 2)
    assert_close(gradients, torch.autograd.grad(3 * expected, (hidden, weight)))


@pytest.mark.parametrize("alpha", [None, 5.0])
def test_bfloat16_autocast_stays_close_to_float32(targets: Tensor, alpha: float | None) -> None:
    hidden, weight = torch.randn(2 * N, T, D), torch.randn(V, D)

    def loss() -> Tensor:
        if alpha is None:
            return cross_entropy(hidden[:N], weight, targets, pad=PAD, smoothing=0.1)[0]
        return r_drop_loss(hidden, weight, targets, pad=PAD, alpha=alpha)[0]

    with torch.autocast("cpu", torch.bfloat16):
        low = loss()
    assert low.dtype == torch.float32
    assert_close(low, loss(), rtol=0.03, atol=0)


@pytest.mark.usefixtures("padding")
def test_a_batch_of_padding_alone_costs_nothing(targets: Tensor) -> None:
    hidden, weight = torch.randn(2 * N, T, D, requires_grad=True), torch.randn(V, D)
    nothing = torch.zeros_like(targets)
    for loss, *_ in (
        cross_entropy(hidden[:N], weight, nothing, pad=PAD),
        r_drop_loss(hidden, weight, nothing, pad=PAD, alpha=5.0),
    ):
        loss.backward()
        assert loss.item() == 0


def test_a_factor_of_the_loss_is_not_rounded_to_bf16(targets: Tensor) -> None:
    hidden = torch.randn(N, T, D, requires_grad=True)
    weight = torch.randn(V, D, requires_grad=True)
    gradients = []
    for divisor in (512, 768):  # a power of two has no error
        with torch.autocast("cpu", torch.bfloat16):
            loss, *_ = cross_entropy(hidden, weight, targets, pad=PAD)
        (gradient,) = torch.autograd.grad(loss / divisor, hidden)
        gradients.append((gradient * divisor).double())
    ratio = (gradients[0] * gradients[1]).sum() / gradients[0].square().sum()
    assert abs(ratio - 1) < 1e-3  # 1/768 in bf16 is 0.2 % more


def learner(alpha: float, dropout: float = 0.3) -> TranslationModule:
    torch.manual_seed(1)
    config = ModelConfig(d_model=16, num_heads=2, d_ff=32, num_encoder_layers=1, num_decoder_layers=1, dropout=dropout)
    return TranslationModule(
        build_model(config, V), TrainingConfig(r_drop=alpha, label_smoothing=0.0, max_tokens=4096, learning_rate=7e-4)
    )


def a_batch() -> Batch:
    torch.manual_seed(2)
    tgt = torch.randint(4, V, (16, 6))
    src = torch.cat((tgt, torch.full((16, 1), 3)), 1)
    return Batch(src, torch.cat((torch.full((16, 1), 2), tgt), 1), torch.cat((tgt, torch.full((16, 1), 3)), 1))


@pytest.mark.slow
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


def test_without_dropout_there_is_nothing_to_draw_together() -> None:
    refuses(r"training.r_drop=5.0 compares two dropouts, but model.dropout", learner, 5.0, dropout=0.0)


VOCABULARY = 40
LENGTHS = ((5, 9), (13, 4), (1, 1), (8, 17))  # tokens of each source and target


def make_module(r_drop: float = 0.0, **changes: Any) -> TranslationModule:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "num_heads": 4, "d_ff": 24, "num_encoder_layers": 2, "num_decoder_layers": 2}
    config = ModelConfig(**sizes, dropout=0.0, attention_dropout=0.0, ffn_dropout=0.0, **changes)
    training = TrainingConfig(max_tokens=128, learning_rate=1e-3, label_smoothing=0.1)
    module = TranslationModule(build_model(config, VOCABULARY), training).double()
    module.config.r_drop = r_drop  # which its settings refuse without dropout
    return module.train()


def make_batch(shape: Shape | None = None) -> Batch:
    rng = np.random.default_rng(0)
    src, tgt = zip(*((rng.integers(4, VOCABULARY, s), rng.integers(4, VOCABULARY, t)) for s, t in LENGTHS), strict=True)
    return gather(Pairs.of(src, tgt), np.arange(len(LENGTHS)), shape=shape)


def loss_and_gradients(module: TranslationModule, batch: Batch) -> list[Tensor]:
    module.zero_grad()
    loss = module.training_step(batch, 0)
    loss.backward()
    assert module.last_nll is not None
    gradients = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    return [loss.detach(), module.last_nll, *gradients]


STYLES: dict[str, dict[str, Any]] = {
    "vaswani": {},
    "modern": {"norm_position": "pre", "norm": "rmsnorm", "activation": "swiglu", "positions": "rotary"},
    "no causal mask": {"decoder_mask": "none"},
    "no source": {"cross_attention": "none"},
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("r_drop", [0.0, 5.0])
def test_a_gpus_way_of_training_changes_no_loss_and_no_gradient(style, r_drop, monkeypatch):
    module, fused, keys = make_module(r_drop, **STYLES[style]), F.scaled_dot_product_attention, list[Tensor]()
    with monkeypatch.context() as textbook:
        textbook.setattr(attention, "uses_fused_kernel", lambda *_: False)
        expected = loss_and_gradients(module, make_batch())
    assert len(expected) > 20
    monkeypatch.setattr(loss_file, "LEAVES_OUT_PADDING", ())

    def recorded(query: Tensor, key: Tensor, value: Tensor, *arguments: Any, **options: Any) -> Tensor:
        keys.append(key)
        return fused(query, key, value, *arguments, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", recorded)
    for batch in (make_batch(), make_batch(Shape(8, 20))):  # on the ladder, with rows that no pair needs
        assert_close(loss_and_gradients(module, batch), expected, atol=1e-6, rtol=1e-6)
    assert {key.shape[2] for key in keys} == {14, 18, 20}
