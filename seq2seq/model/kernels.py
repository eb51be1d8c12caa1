"""Which kernel computes attention, by device and precision, as measured (docs/performance.md). Knows no layer."""

import torch
from torch import Tensor

UNFUSED_MAX_KEYS = 256  # the weights of more keys no longer fit into the processor's cache


def uses_fused_kernel(queries: Tensor, keys: Tensor) -> bool:
    """Return whether PyTorch's fused kernel is the fastest way to attend with these queries (…, c) to keys (…, s, c).

    It is, except on the CPU with gradients in bfloat16 and few keys.
    """
    is_slow = queries.device.type == "cpu" and queries.dtype == torch.bfloat16 and queries.requires_grad
    return not is_slow or keys.shape[-2] > UNFUSED_MAX_KEYS
