"""Muon for the matrices of the layers, with AdamW for everything else (Jordan et al. 2024; Liu et al. 2025)."""

# pyright: reportPrivateImportUsage=false
# (torch does not export its _foreach functions, which its own optimizers use)

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

# Quintic polynomials a·x + b·x³ + c·x⁵ that bring singular values from [0.001, 1] nearer to 1, one after the other: the
# first three of Amsel et al. 2025, "The Polar Express", with its safety factor of 1.01 for bf16.
POLYNOMIALS = ((8.2051, -22.9019, 16.4607), (4.0664, -2.8612, 0.5184), (3.9096, -2.8234, 0.5250))
EVERY = 2  # the matrices change in every second update, by twice the length; their momentum takes every gradient
MOMENTUM = 0.95  # share of the momentum that each gradient keeps
RMS = 0.08  # root mean square of a matrix's mean change in an update, at a learning rate of 1


class MuonAdamW(torch.optim.AdamW):
    """Changes each matrix by its momentum with all singular values near 1, and other parameters as AdamW does.

    A parameter group with muon=True has matrices, whose mean change in an update has a root mean square of about
    RMS · lr, some third of AdamW's. eps and betas are AdamW's alone. Tried with pre-norm Transformers only
    (docs/speedrun.md).
    """

    def __init__(self, groups: Sequence[dict[str, Any]], dtype: torch.dtype, **settings: Any) -> None:
        """Optimise parameter groups; dtype: type of the products, the settings are those of AdamW."""
        self.dtype = dtype
        super().__init__(groups, **settings)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change all parameters once; return the closure's loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()  # computes gradients anew: it needs to see all groups
        groups = self.param_groups
        try:
            self.param_groups = [group for group in groups if not group["muon"]]
            super().step()
        finally:
            self.param_groups = groups
        for group in groups:
            if group["muon"]:
                self._change_matrices(group)
        return loss

    def _change_matrices(self, group: dict[str, Any]) -> None:
        matrices = sorted((p for p in group["params"] if p.grad is not None), key=attrgetter("shape"))
        for shape, of_shape in groupby(matrices, key=attrgetter("shape")):
            parameters = list(of_shape)
            gradients, states = [p.grad for p in parameters], [self._state(p) for p in parameters]
            steps, momenta = ([state[name] for state in states] for name in ("step", "exp_avg"))
            torch._foreach_add_(steps, 1)
            torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
            if int(steps[0]) % EVERY:
                continue
            ahead = torch._foreach_lerp(gradients, momenta, MOMENTUM)
            directions = orthogonalised(torch.stack(ahead), self.dtype)  # of Nesterov's momentum
            length = EVERY * group["lr"]
            torch._foreach_mul_(parameters, 1 - length * group["weight_decay"])
            torch._foreach_sub_(parameters, directions.unbind(), alpha=length * RMS * math.sqrt(max(shape)))

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        state = self.state[parameter]
        if not state:
            state["step"], state["exp_avg"] = torch.tensor(0.0), torch.zeros_like(parameter)
        return state


def orthogonalised(matrices: Float[Tensor, "k m n"], dtype: torch.dtype) -> Float[Tensor, "k m n"]:
    """Return U S′ Vᵀ of each matrix U S Vᵀ, with S′ between 0.1 and 2 where S is above a thousandth of S's norm."""
    x = matrices.to(dtype)
    is_tall = x.shape[-2] > x.shape[-1]
    x = x.mT if is_tall else x
    x = x / (1.01 * x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for a, b, c in POLYNOMIALS:
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x.mT if is_tall else x).to(matrices.dtype)
