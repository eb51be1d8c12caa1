"""Linear maps whose weights lie in memory as oneDNN wants them: on the CPU, a third quicker for a search's few rows.

oneDNN makes a kernel for every number of rows, which costs more than a small product; so the decoder's rows are
padded to one of few numbers, and products of other shapes (encoding, forced decoding) go the usual way.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

FEW, SMALL_STEP, STEP = 16, 4, 16  # up to so many rows a multiple of 4, else of 16


def missing_rows(rows: int) -> int:
    """How many rows padding adds."""
    return -rows % (SMALL_STEP if rows <= FEW else STEP)


class PackedLinear(nn.Module):
    """x Wᵀ + b for single positions, with a copy of the weight that was laid out once and for all."""

    def __init__(self, weight: Float[Tensor, "o i"], bias: Float[Tensor, " o"] | None, dtype: torch.dtype) -> None:
        super().__init__()
        self._weight, self._bias, self._dtype = weight.detach(), None if bias is None else bias.detach(), dtype
        self._packed = torch.ops.mkldnn._reorder_linear_weight(self._weight.to(dtype))
        self._packed_bias = None if self._bias is None else self._bias.to(dtype)

    def forward(self, x: Float[Tensor, "n t i"]) -> Float[Tensor, "n t o"]:
        """Map every row."""
        if x.shape[1] > 1 or missing_rows(x.shape[0]):
            return F.linear(x, self._weight, self._bias)
        return torch.ops.mkldnn._linear_pointwise(x.to(self._dtype), self._packed, self._packed_bias, "none", [], "")


def can_pack() -> bool:
    """Whether this PyTorch has the operators, which its own compiler uses and no documentation promises."""
    return torch.backends.mkldnn.is_available() and all(
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )


def pack(maps: list[nn.Linear], dtype: torch.dtype) -> PackedLinear:
    """Several maps of the same input as one, their outputs side by side."""
    biases: list[Tensor] = [one.bias for one in maps if one.bias is not None]
    weight = torch.cat([one.weight.detach() for one in maps])
    return PackedLinear(weight, torch.cat(biases) if biases else None, dtype)
