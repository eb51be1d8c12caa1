"""Linear maps whose weights lie in memory as oneDNN wants them: on the CPU, a quarter faster for few rows."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class PackedLinear(nn.Module):
    """x Wᵀ + b with a weight that was laid out once; it can neither be trained, saved nor moved to another device."""

    def __init__(self, weight: Float[Tensor, "o i"], bias: Float[Tensor, " o"] | None, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(dtype))
        self._bias = None if bias is None else bias.detach().to(dtype)

    def forward(self, x: Float[Tensor, "*rows i"]) -> Float[Tensor, "*rows o"]:
        """Map every row."""
        return torch.ops.mkldnn._linear_pointwise(x.to(self._dtype), self._weight, self._bias, "none", [], "")


def can_pack() -> bool:
    """Whether this PyTorch has the operators, which its own compiler uses and no documentation promises."""
    return torch.backends.mkldnn.is_available() and all(
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )


def pack(model: nn.Module, dtype: torch.dtype) -> None:
    """Replace every linear map of a model that is to translate on the CPU, and to do nothing else."""
    for name, child in list(model.named_children()):
        if isinstance(child, nn.Linear):
            setattr(model, name, PackedLinear(child.weight, child.bias, dtype))
        else:
            pack(child, dtype)
