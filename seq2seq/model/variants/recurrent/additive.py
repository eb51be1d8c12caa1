"""Additive attention, by which a recurrent decoder attends to the source."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


class AdditiveAttention(nn.Module):
    """Score keys by a small network, e = vᵀ tanh(W s + U h), then softmax (Bahdanau et al. 2015, eq. 6 and A.1.2).

    The query s is a decoder state, the keys are the source states h, projected by U once per sentence; the values are
    the source states themselves.
    """

    def __init__(self, d_query: int, d_memory: int, d_attention: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(d_query, d_attention)
        self.k_proj = nn.Linear(d_memory, d_attention, bias=False)
        self.score_proj = nn.Linear(d_attention, 1, bias=False)

    def keys(self, memory: Float[Tensor, "b s m"]) -> Float[Tensor, "b s a"]:
        """Return the key of each source position."""
        return self.k_proj(memory)

    def forward(
        self, queries: Float[Tensor, "b w q"], keys: Float[Tensor, "b s a"], mask: Bool[Tensor, "b 1 s"]
    ) -> Float[Tensor, "b w s"]:
        """Return each source position's weight for each query; rows sum to 1, or are 0 if every position is masked.

        mask: True = may attend.
        """
        relevance = self.score_proj(torch.tanh(self.q_proj(queries)[:, :, None] + keys[:, None])).squeeze(-1)
        lowest = torch.finfo(relevance.dtype).min
        return relevance.masked_fill(~mask, lowest).softmax(-1) * mask.any(-1, keepdim=True)
