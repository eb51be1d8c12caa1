"""Linear maps with a memory layout that is fast for the few rows of a search on the CPU.

In float32 the product of a few rows is fastest with a weight stored as input by output, through `F.linear`. The many
outputs of a vocabulary, and all maps in bf16, are faster with oneDNN's blocked layout (docs/performance.md). oneDNN
compiles a kernel for every number of rows, which costs more than a small product, so rows are padded to one of few
numbers. Products of other shapes (encoding, forced decoding) use `F.linear`.
"""

from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

FEW, SMALL_STEP, STEP = 16, 4, 16  # up to FEW rows are padded to a multiple of 4, more to one of 16


def missing_rows(rows: int) -> int:
    """Return how many rows padding adds."""
    return -rows % (SMALL_STEP if rows <= FEW else STEP)


class PackedLinear(nn.Module):
    """x Wᵀ + b for single positions, with a copy of the weight in oneDNN's layout."""

    def __init__(self, weight: Float[Tensor, "o i"], bias: Float[Tensor, " o"] | None, dtype: torch.dtype) -> None:
        super().__init__()
        self._weight, self._bias, self._dtype = weight.detach(), None if bias is None else bias.detach(), dtype
        self._packed = torch.ops.mkldnn._reorder_linear_weight(self._weight.to(dtype))
        self._packed_bias = None if self._bias is None else self._bias.to(dtype)

    def forward(self, x: Float[Tensor, "n t i"]) -> Float[Tensor, "n t o"]:
        """Map every row."""
        if x.shape[1] > 1:
            return F.linear(x, self._weight, self._bias)
        rows, missing = x.shape[0], missing_rows(x.shape[0])
        padded = F.pad(x, (0, 0, 0, 0, 0, missing)) if missing else x
        padded = padded.to(self._dtype)
        return torch.ops.mkldnn._linear_pointwise(padded, self._packed, self._packed_bias, "none", [], "")[:rows]


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Return whether this PyTorch has the undocumented operators, and this processor the instructions."""
    try:
        PackedLinear(torch.zeros(16, 16), None, dtype)(torch.zeros(4, 1, 16))
    except (AttributeError, RuntimeError):
        return False
    return True


def pack(maps: list[nn.Linear], dtype: torch.dtype) -> nn.Module:
    """Join maps of the same input into one map with their outputs side by side."""
    weight = torch.cat([one.weight.detach() for one in maps])
    biases: list[Tensor] = [one.bias.detach() for one in maps if one.bias is not None]
    bias = torch.cat(biases) if biases else None
    if dtype != torch.float32:
        return PackedLinear(weight, bias, dtype)
    joined = nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0], bias=bias is not None)
    joined.weight = nn.Parameter(weight.t().contiguous().t(), requires_grad=False)
    if bias is not None:
        joined.bias = nn.Parameter(bias, requires_grad=False)
    return joined
