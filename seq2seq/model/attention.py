"""Multi-head attention: softmax(Q Kᵀ / √c) V in several heads."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seq2seq.model.kernels import Weights, uses_fused_kernel
from seq2seq.model.positions import rotate


class KeysValues(NamedTuple):
    """The keys and values that queries attend to: one key and one value for each position and head."""

    keys: Float[Tensor, "n h s c"]
    values: Float[Tensor, "n h s c"]

    def select(self, rows: Int[Tensor, " m"]) -> "KeysValues":
        """Return the keys and values of the given rows, in their order."""
        return KeysValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))

    def after(self, past: "KeysValues | None") -> "KeysValues":
        """Return these keys and values appended to those of the past positions; without a past, return self."""
        if past is None:
            return self
        return KeysValues(torch.cat((past.keys, self.keys), 2), torch.cat((past.values, self.values), 2))


def attention_weights(
    queries: Float[Tensor, "n h t c"], keys: Float[Tensor, "n h s c"], mask: Bool[Tensor, "#n 1 #t s"] | None = None
) -> Float[Tensor, "n h t s"]:
    """Return softmax(Q Kᵀ / √c), the weight of each key for each query; every row sums to 1.

    A query that may attend to nothing gets a row of zeros instead of NaN.
    """
    relevance = (queries / math.sqrt(queries.shape[-1])) @ keys.transpose(-2, -1)
    if mask is None:
        return relevance.softmax(-1)
    lowest = torch.finfo(relevance.dtype).min
    return relevance.masked_fill(~mask, lowest).softmax(-1) * mask.any(-1, keepdim=True)


def attend(
    queries: Float[Tensor, "n h t c"],
    memory: KeysValues,
    mask: Bool[Tensor, "#n 1 #t s"] | None = None,
    dropout: float = 0.0,
    weights_of: Weights | None = None,
) -> Float[Tensor, "n h t c"]:
    """Return each query's weighted sum of the values: softmax(Q Kᵀ / √c) V (Vaswani et al. 2017, eq. 1).

    dropout is the share of weights dropped; weights_of computes others than `attention_weights`. Both branches compute
    the same; `uses_fused_kernel` names the faster one, and the second one for other weights than softmax.
    """
    if weights_of is None and uses_fused_kernel(queries, memory.keys, attention_weights):
        return F.scaled_dot_product_attention(queries, *memory, mask, dropout_p=dropout)
    weights = (weights_of or attention_weights)(queries, memory.keys, mask)
    return F.dropout(weights, dropout) @ memory.values


class MultiHeadAttention(nn.Module):
    """Attends in h subspaces of c = d / h channels each (Vaswani et al. 2017, §3.2.2)."""

    def __init__(self, d_model: int, num_heads: int, *, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj = nn.Linear(d_model, d_model, bias=bias)
        self.v_proj = nn.Linear(d_model, d_model, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)

    def queries(
        self, x: Float[Tensor, "n t d"], rotation: Float[Tensor, "2 t 1 c"] | None = None
    ) -> Float[Tensor, "n h t c"]:
        """Return the queries of all positions; with rotary positions, rotated."""
        return self._by_head(self.q_proj(x), rotation)

    def keys_values(self, x: Float[Tensor, "n s d"], rotation: Float[Tensor, "2 s 1 c"] | None = None) -> KeysValues:
        """Return the keys and values of all positions; with rotary positions, the keys are rotated."""
        return KeysValues(self._by_head(self.k_proj(x), rotation), self._by_head(self.v_proj(x)))

    def forward(
        self,
        x: Float[Tensor, "n t d"],
        memory: KeysValues,
        mask: Bool[Tensor, "#b 1 #t s"] | None = None,
        rotation: Float[Tensor, "2 t 1 c"] | None = None,
    ) -> Float[Tensor, "n t d"]:
        """Mix the memory's values by relevance to each position of x, join the heads and project.

        In a search, the w hypotheses of a sentence share its keys and values: x has w rows for each row of the memory,
        and their queries are computed as w positions of one row: (b·w, 1, d) becomes (b, w, d). mask: which keys each
        query may attend to; None: all.
        """
        queries = self.queries(x.reshape(len(memory.keys), -1, x.shape[-1]), rotation)
        own = None if type(self).weights_of is MultiHeadAttention.weights_of else self.weights_of
        context = attend(queries, memory, mask, self.dropout if self.training else 0.0, own)
        return self.out_proj(context.transpose(1, 2).reshape(x.shape))

    def weights_of(
        self, queries: Float[Tensor, "n h t c"], keys: Float[Tensor, "n h s c"], mask: Bool[Tensor, "#n 1 #t s"] | None
    ) -> Float[Tensor, "n h t s"]:
        """Return `attention_weights`; a subclass may have other weights."""
        return attention_weights(queries, keys, mask)

    def _by_head(
        self, x: Float[Tensor, "n t d"], rotation: Float[Tensor, "2 t 1 c"] | None = None
    ) -> Float[Tensor, "n h t c"]:
        by_head = x.reshape(*x.shape[:-1], self.num_heads, -1)  # (n, t, h, c)
        return (by_head if rotation is None else rotate(by_head, rotation)).transpose(1, 2)
