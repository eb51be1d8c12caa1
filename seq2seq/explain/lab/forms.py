"""Attention's two forms, the fused kernel and the open computation, with inputs of any length to run them on."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from seq2seq.model.attention import attention_weights

HEADS, CHANNELS = 4, 64  # of the small model

Form = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]  # queries, keys, values, mask


def fused(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """PyTorch's kernel, which never holds the N × N weights."""
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)


def in_the_open(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(Q Kᵀ / √c) V, step by step."""
    return attention_weights(queries, keys, mask) @ values


FORMS: dict[str, Form] = {"fused": fused, "open": in_the_open}


def draw(length: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, None]:
    """Queries, keys and values of one text of so many positions, nothing masked."""
    queries, keys, values = (torch.randn(1, HEADS, length, CHANNELS, device=device) for _ in range(3))
    return queries, keys, values, None
