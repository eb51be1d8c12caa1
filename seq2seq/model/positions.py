"""Positions: attention ignores order, so positions are added to vectors or rotate them."""

from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor


def angles(start: int, length: int, channels: int, device: torch.device) -> Float[Tensor, "t half"]:
    """Return the angle of each position (radians) at channels/2 frequencies, 1 down to 1/10000 radians per token."""
    exponents = torch.arange(0, channels, 2, device=device, dtype=torch.float32) / channels
    positions = torch.arange(start, start + length, device=device, dtype=torch.float32)
    return positions[:, None] * (10_000.0**-exponents)[None, :]


@cache  # without a limit: a recorded update (training/replay.py) reads its table again
@torch.inference_mode(False)  # training must be able to use a table made in translation
def sinusoidal(start: int, length: int, d_model: int, device: torch.device) -> Float[Tensor, "t d"]:
    """Return the vectors to add to embeddings (Vaswani et al. 2017, §3.5): sin on even channels, cos on odd."""
    angle = angles(start, length, d_model, device)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)  # (t, d)


@cache
@torch.inference_mode(False)
def rotations(start: int, length: int, channels: int, device: torch.device) -> Float[Tensor, "2 t 1 c"]:
    """Return cosines and sines for `rotate`, for positions start … start + length - 1."""
    angle = angles(start, length, channels, device)
    angle = torch.cat((angle, angle), dim=-1)
    return torch.stack((angle.cos(), angle.sin()))[:, :, None]


def rotate(x: Float[Tensor, "n t h c"], rotation: Float[Tensor, "2 t 1 c"]) -> Float[Tensor, "n t h c"]:
    """Rotate pairs of channels by their position's angles (RoFormer, Su et al. 2021, eq. 34).

    The product of a rotated query and a rotated key depends on their distance only. Channel i is paired with channel
    i + c/2, which is the paper's pairing up to a fixed permutation of channels.
    """
    cos, sin = rotation.to(x.dtype)
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin
