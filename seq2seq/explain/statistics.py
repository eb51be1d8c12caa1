"""Three numbers of a head: how widely, how far and how straight it looks."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class HeadStatistics:
    """Means over the queries of one head; aᵢⱼ is the weight of key j for query i.

    dᵢ is the key position that corresponds to query i: i itself in self-attention; in cross-attention
    i · (s - 1) / (t - 1), from the first piece to the last (0 where t = 1).

    Attributes:
        entropy: -Σⱼ aᵢⱼ ln aᵢⱼ (nats): 0 where all weight is on one position, ln s where it is spread evenly (Clark et
            al. 2019, §3.3).
        distance: Σⱼ aᵢⱼ |j - dᵢ| (positions; as Vig & Belinkov 2019 have it for a decoder, whose dᵢ is i).
        diagonal: aᵢⱼ of the j nearest to dᵢ, the later one of two (share, 0 to 1).
    """

    entropy: float
    distance: float
    diagonal: float


def head_statistics(weights: Float[Tensor, "h t s"]) -> list[HeadStatistics]:
    """Describe each head of one attention of one sentence."""
    weights = weights.double()
    _, length, width = weights.shape
    diagonal = torch.arange(length, dtype=torch.float64, device=weights.device) * (width - 1) / max(1, length - 1)
    keys = torch.arange(width, dtype=torch.float64, device=weights.device)
    entropy = torch.special.entr(weights).sum(-1).mean(-1)
    distance = (weights * (keys - diagonal[:, None]).abs()).sum(-1).mean(-1)
    nearest = (diagonal + 0.5).floor().long()
    share = weights[:, torch.arange(length), nearest].mean(-1)
    rows = zip(entropy.tolist(), distance.tolist(), share.tolist(), strict=True)
    return [HeadStatistics(*row) for row in rows]
