"""All attention masks of the project: boolean, True = may attend."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def padding_mask(ids: Int[Tensor, "b s"], pad: int) -> Bool[Tensor, "b 1 1 s"]:
    """Let every query attend to tokens, not to padding."""
    return (ids != pad)[:, None, None, :]


def causal_mask(length: int, past: int, device: torch.device) -> Bool[Tensor, "1 1 t s"]:
    """Let position i attend to positions 0…i: the decoder may not look ahead.

    The queries are `length` new positions that follow `past` cached ones (both in tokens), so the mask has `length`
    rows and `past + length` columns.
    """
    keys = torch.arange(past + length, device=device)
    queries = torch.arange(past, past + length, device=device)
    return (keys[None, :] <= queries[:, None])[None, None]


def own_past_mask(length: int, own: Bool[Tensor, "b w z"]) -> Bool[Tensor, "b 1 wt z_and_wt"]:
    """Let the w hypotheses of a sentence, t = `length` new positions each, attend to their own past and themselves.

    The keys are z slots written before, where `own` marks each hypothesis' past, then all hypotheses' new positions.
    """
    sentences, width, _ = own.shape
    apart = torch.eye(width, dtype=torch.bool, device=own.device)
    if length > 1:
        apart = torch.kron(apart, causal_mask(length, 0, own.device)[0, 0])
        own = own.repeat_interleave(length, 1)
    return torch.cat((own, apart.expand(sentences, -1, -1)), 2)[:, None]


def whole_target_mask(real: Bool[Tensor, "b wt"], width: int) -> Bool[Tensor, "b 1 wt wt"]:
    """Let every position attend to all of its own target, future positions included; a sentence has w targets.

    real is True for tokens, False for padding. Only the ablation of the causal mask uses this mask.
    """
    length = real.shape[1] // width
    one = torch.ones(length, length, dtype=torch.bool, device=real.device)
    apart = torch.kron(torch.eye(width, dtype=torch.bool, device=real.device), one)
    return apart & real[:, None, None, :]


def additive(mask: Bool[Tensor, "#b 1 #t s"], dtype: torch.dtype) -> Float[Tensor, "#b 1 #t s"]:
    """Return a boolean mask as the numbers that fused attention adds to its scores, made once for all layers."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)
