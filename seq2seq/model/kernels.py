"""Which kernel computes attention, by device and precision, as measured (docs/performance.md). Knows no layer."""

from collections.abc import Callable, Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

UNFUSED_MAX_KEYS = 256  # the weights of more keys no longer fit into the processor's cache
Weights = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # of queries, keys and a mask


def uses_fused_kernel(queries: Tensor, keys: Tensor, weights: Weights) -> bool:
    """Return whether PyTorch's fused kernel is the fastest way to attend with these queries (…, c) to keys (…, s, c).

    It is, except on the CPU with gradients in bfloat16 and few keys. It is never used instead of changed `weights`.
    """
    is_slow = queries.device.type == "cpu" and queries.dtype == torch.bfloat16 and queries.requires_grad
    return (not is_slow or keys.shape[-2] > UNFUSED_MAX_KEYS) and is_fused_kernels(weights)


@cache
@torch.compiler.assume_constant_result  # pyright: ignore[reportUnknownMemberType]
def is_fused_kernels(weights: Weights) -> bool:
    """Return whether the fused kernel attends as with these weights: to 300 keys, with and without a mask, and back.

    The caller's device, precision and modes make no difference.
    """
    waves = 3 * torch.arange(2 * 2 * 620 * 8, dtype=torch.float32, device="cpu").square().sin()
    mask = torch.ones(2, 1, 20, 300, dtype=torch.bool, device="cpu").tril(5)
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", enabled=False):
        parts: Sequence[Tensor] = torch.split(waves.view(2, 2, -1, 8), [20, 300, 300], 2)
        queries, keys, values = (vectors.clone().requires_grad_() for vectors in parts)

        def with_gradients(context: Tensor) -> list[Tensor]:
            return [context, *torch.autograd.grad(context.sin().sum(), (queries, keys, values))]

        try:
            for one in (None, mask):
                fused = with_gradients(F.scaled_dot_product_attention(queries, keys, values, one))
                assert_close(with_gradients(weights(queries, keys, one) @ values), fused, atol=1e-4, rtol=1e-3)
        except Exception:  # changed weights may be wrong for this example in any way
            return False
    return True
