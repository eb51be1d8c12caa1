"""All attention masks of the project: boolean, True = may attend."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def padding_mask(ids: Int[Tensor, "b s"], pad: int) -> Bool[Tensor, "b 1 1 s"]:
    """Return the mask that lets every query attend to tokens and not to padding."""
    return (ids != pad)[:, None, None, :]


def target_mask(tgt_in: Int[Tensor, "n t"], past: int) -> Bool[Tensor, "1 1 t s"] | None:
    """Return the causal mask of t target tokens that follow `past` cached ones; None: each may attend to all."""
    length = tgt_in.shape[1]
    if length == 1 and causal_mask(1, past, torch.device("cpu")).all():  # a GPU's answer would take longer
        return None
    return causal_mask(length, past, tgt_in.device)


def causal_mask(length: int, past: int, device: torch.device) -> Bool[Tensor, "1 1 t s"]:
    """Return the mask that lets position i attend to positions 0…i: the decoder may not look ahead.

    The queries are `length` new positions that follow `past` cached ones (both in tokens), so the mask has `length`
    rows and `past + length` columns.
    """
    keys = torch.arange(past + length, device=device)
    queries = torch.arange(past, past + length, device=device)
    return (keys[None, :] <= queries[:, None])[None, None]
