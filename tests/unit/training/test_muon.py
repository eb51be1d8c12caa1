"""Muon: singular values near 1, changes of AdamW's size in every second update, and AdamW itself elsewhere."""

import pytest
import torch
from torch import Tensor, nn

from seq2seq.training.muon import EVERY, RMS, MuonAdamW, orthogonalised

RATE = 0.1


@pytest.mark.parametrize("shape", [(3, 16, 40), (3, 40, 16), (2, 24, 24)])
def test_directions_stay_and_their_singular_values_become_alike(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(shape)
    left, before, right = torch.linalg.svd(matrices, full_matrices=False)
    after = left.mT @ orthogonalised(matrices, torch.float32) @ right.mT
    values = after.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(after, torch.diag_embed(values), atol=1e-4, rtol=0)  # the same singular vectors
    large = values[before > 0.01 * before.amax(-1, keepdim=True)]
    assert large.min() > 0.1
    assert large.max() < 2
    half = orthogonalised(matrices, torch.bfloat16)
    assert (half - orthogonalised(matrices, torch.float32)).norm() < 0.05 * half.norm()


def parameters() -> list[nn.Parameter]:
    torch.manual_seed(1)
    return [nn.Parameter(torch.randn(shape)) for shape in ((12, 20), (12, 12), (12, 20), (20,))]


def make(optimised: list[nn.Parameter], weight_decay: float = 0.0) -> MuonAdamW:
    groups = [
        {"params": optimised[:3], "muon": True, "weight_decay": weight_decay},
        {"params": optimised[3:], "muon": False, "weight_decay": 0.0},
    ]
    return MuonAdamW(groups, torch.float32, lr=RATE)


def update(optimizer: torch.optim.Optimizer, optimised: list[nn.Parameter], seed: int) -> list[Tensor]:
    torch.manual_seed(seed)
    for parameter in optimised:
        parameter.grad = torch.randn_like(parameter)
    before = [parameter.detach().clone() for parameter in optimised]
    optimizer.step()
    return [parameter.detach() - old for parameter, old in zip(optimised, before, strict=True)]


def test_matrices_change_in_every_second_update_by_a_given_length_against_all_gradients_so_far() -> None:
    optimised = parameters()
    optimizer, gradients = make(optimised), list[Tensor | None]()
    for number in (1, 2, 3, 4):
        changes = update(optimizer, optimised, number)[:3]
        gradients.append(optimised[0].grad)
        if number % EVERY:
            assert not any(change.any() for change in changes)
            continue
        for change in changes:
            assert change.square().mean().sqrt().item() == pytest.approx(EVERY * RATE * RMS, rel=0.5)
        if number == EVERY:
            assert all(gradient is not None and (changes[0] * gradient).sum() < 0 for gradient in gradients)


def test_other_parameters_change_as_by_adamw() -> None:
    ours, theirs = parameters(), parameters()
    optimizer, adamw = make(ours), torch.optim.AdamW(theirs[3:], lr=RATE, weight_decay=0.0)
    for number in (1, 2, 3):
        assert torch.equal(update(optimizer, ours, number)[3], update(adamw, theirs, number)[3])


def test_weights_decay_by_the_learning_rate() -> None:
    with_decay, without = parameters(), parameters()
    start = with_decay[0].detach().clone()
    optimizers = make(with_decay, 0.5), make(without)
    for number in (1, 2):
        for optimizer, optimised in zip(optimizers, (with_decay, without), strict=True):
            update(optimizer, optimised, number)
    torch.testing.assert_close(with_decay[0], without[0] - start * EVERY * RATE * 0.5)


def test_the_closure_is_called_once_an_update_with_all_groups_and_its_loss_returned() -> None:
    optimised, calls = parameters(), []
    optimizer = make(optimised)

    def closure() -> float:
        calls.append(torch.is_grad_enabled())
        optimizer.zero_grad()
        torch.stack([parameter.sum() for parameter in optimised]).sum().backward()
        return 2.5

    for _ in range(3):
        assert optimizer.step(closure) == 2.5
        assert all(parameter.grad is not None and (parameter.grad == 1).all() for parameter in optimised)
    assert calls == [True] * 3
