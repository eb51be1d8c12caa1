"""Linear maps whose weights lie in memory as a search's few rows want them, on the CPU.

In float32 the matrix product of a few rows is quickest with a weight that lies input by output, through the usual
`F.linear`; but the many outputs of a vocabulary, and all maps in bf16, gain from oneDNN's own blocked layout
(docs/performance.md). oneDNN makes a kernel for every number of rows, which costs more than a small product, so rows
are padded to one of few numbers there; products of other shapes (encoding, forced decoding) go the usual way.
"""

from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

FEW, SMALL_STEP, STEP = 16, 4, 16  # up to so many rows a multiple of 4, else of 16


def missing_rows(rows: int) -> int:
    """How many rows padding adds."""
    return -rows % (SMALL_STEP if rows <= FEW else STEP)


class PackedLinear(nn.Module):
    """x Wᵀ + b for single positions, with a copy of the weight that oneDNN laid out once and for all."""

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
    """Whether this PyTorch has the operators, which no documentation promises, and this processor the instructions."""
    try:
        PackedLinear(torch.zeros(16, 16), None, dtype)(torch.zeros(4, 1, 16))
    except (AttributeError, RuntimeError):
        return False
    return True


def pack(maps: list[nn.Linear], dtype: torch.dtype) -> nn.Module:
    """Several maps of the same input as one, their outputs side by side."""
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
