"""Products of a search's few rows with weights, which are laid out once for these products.

On the CPU in float32, products of few rows are fastest with a weight stored as (in, out). Products with the many
outputs of a vocabulary, and all products in bf16, are faster with oneDNN's own blocked layout (docs/performance.md).
oneDNN makes a kernel for every number of rows, which takes longer than a small product. So rows are padded to one of a
few numbers for oneDNN.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

FEW, SMALL_STEP, STEP = 16, 4, 16  # rows are padded to a multiple of 4 up to 16 rows, else of 16
MANY_OUTPUTS = 4096  # with at least this many outputs, float32 products, too, are faster with oneDNN's layout

Product = Callable[[Float[Tensor, "n i"]], Float[Tensor, "n o"]]


def product(maps: Sequence[nn.Module], dtype: torch.dtype, stretches: Sequence[float] = (1.0,)) -> Product:
    """Return one product in dtype for several maps of one input: their outputs side by side, each times a stretch."""
    return product_with(*joined_weights(maps, stretches), dtype)


def joined_weights(
    maps: Sequence[nn.Module], stretches: Sequence[float] = (1.0,)
) -> tuple[Float[Tensor, "o i"], Float[Tensor, " o"] | None]:
    """Return W and b for several maps of one input: their outputs side by side, each times a stretch."""
    matrices = [weight_and_bias(one) for one in maps]
    scaled = list(zip(matrices, stretches, strict=True))
    weight = torch.cat([weight * stretch for (weight, _), stretch in scaled])
    biases = [weight.new_zeros(len(weight)) if bias is None else bias * stretch for (weight, bias), stretch in scaled]
    has_bias = any(bias is not None for _, bias in matrices)
    return weight, torch.cat(biases) if has_bias else None


@torch.no_grad()
def weight_and_bias(linear: nn.Module) -> tuple[Float[Tensor, "o i"], Float[Tensor, " o"] | None]:
    """Return W and b of a linear map x Wᵀ + b.

    If the map is no `nn.Linear`, such as a map with adapters, W and b are computed from the map's outputs.
    """
    if isinstance(linear, nn.Linear):
        return linear.weight.detach(), None if linear.bias is None else linear.bias.detach()
    width, device = linear.in_features, next(linear.parameters()).device
    assert isinstance(width, int)
    bias = linear(torch.zeros(1, width, device=device))
    return (linear(torch.eye(width, device=device)) - bias).t(), bias[0]


def product_with(weight: Float[Tensor, "o i"], bias: Float[Tensor, " o"] | None, dtype: torch.dtype) -> Product:
    """Return the function of x that computes x Wᵀ + b in dtype, with a copy of the present weight."""
    weight, bias = weight.detach().to(dtype, copy=True), None if bias is None else bias.to(dtype)
    if weight.device.type != "cpu":
        return lambda x: F.linear(x.to(dtype), weight, bias)
    if (dtype != torch.float32 or len(weight) >= MANY_OUTPUTS) and has_packed_products(dtype):
        return partial(_packed_product, torch.ops.mkldnn._reorder_linear_weight(weight), bias, dtype)
    turned = weight.t().contiguous()
    if bias is None:
        return lambda x: torch.mm(x.to(dtype), turned)
    return lambda x: torch.addmm(bias, x.to(dtype), turned)


def missing_rows(rows: int) -> int:
    """Return how many rows padding adds."""
    return -rows % (SMALL_STEP if rows <= FEW else STEP)


def _packed_product(
    weight: Tensor, bias: Float[Tensor, " o"] | None, dtype: torch.dtype, x: Float[Tensor, "n i"]
) -> Float[Tensor, "n o"]:
    rows, missing = len(x), missing_rows(len(x))
    padded = F.pad(x, (0, 0, 0, missing)) if missing else x
    return torch.ops.mkldnn._linear_pointwise(padded.to(dtype), weight, bias, "none", [], "")[:rows]


@cache
def has_packed_products(dtype: torch.dtype) -> bool:
    """Return whether this PyTorch has oneDNN's undocumented operators, and the processor supports them in dtype."""
    try:
        weight = torch.ops.mkldnn._reorder_linear_weight(torch.zeros(16, 16, dtype=dtype))
        _packed_product(weight, None, dtype, torch.zeros(4, 16))
    except (AttributeError, RuntimeError):
        return False
    return True
