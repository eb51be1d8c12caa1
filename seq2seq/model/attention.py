"""Multi-head attention: softmax(Q Kᵀ / √c) V in several heads."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seq2seq.model.positions import rotate

OPEN_UP_TO = 256  # in training on the CPU, attention over at most this many keys is computed without the fused kernel
OPEN_ON = ("cpu",)  # on other devices, the fused kernel is always faster


class KeysValues(NamedTuple):
    """The keys and values that queries attend to: one key and one value for each position and head."""

    keys: Float[Tensor, "n h s c"]
    values: Float[Tensor, "n h s c"]

    def select(self, rows: Int[Tensor, " m"]) -> "KeysValues":
        """Return the memory of the given rows, in their order."""
        return KeysValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))

    def followed_by(self, other: "KeysValues") -> "KeysValues":
        """Return this memory with another one's positions after it."""
        return KeysValues(torch.cat((self.keys, other.keys), 2), torch.cat((self.values, other.values), 2))


def by_head(keys: Float[Tensor, "n s h c"], values: Float[Tensor, "n s h c"]) -> KeysValues:
    """Return keys and values in the layout that attention reads: heads before positions."""
    return KeysValues(keys.transpose(1, 2), values.transpose(1, 2))


def attention_weights(
    queries: Float[Tensor, "n h t c"], keys: Float[Tensor, "n h s c"], mask: Bool[Tensor, "#n 1 #t s"] | None
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
    mask: Bool[Tensor, "#n 1 #t s"] | Float[Tensor, "#n 1 #t s"] | None = None,
    dropout: float = 0.0,
    *,
    is_causal: bool = False,
) -> Float[Tensor, "n h t c"]:
    """Return each query's weighted sum of the values: softmax(Q Kᵀ / √c) V (Vaswani et al. 2017, eq. 1).

    PyTorch's fused kernel computes the sum. The exception is a computation with gradients over short memories on the
    CPU: there, `attention_weights` is up to six times faster (docs/performance.md). dropout is the share of weights
    dropped. For the fused kernel, the mask may be additive. is_causal says that the mask is the causal mask: devices
    other than the CPU then use the kernel's own causal mask instead.
    """
    if queries.device.type not in OPEN_ON:
        mask = None if is_causal else mask
        return F.scaled_dot_product_attention(queries, *memory, mask, dropout_p=dropout, is_causal=is_causal)
    if not queries.requires_grad or memory.keys.shape[2] > OPEN_UP_TO:
        return F.scaled_dot_product_attention(queries, *memory, attn_mask=mask, dropout_p=dropout)
    weights = attention_weights(queries, memory.keys, mask)
    return F.dropout(weights, dropout) @ memory.values


class MultiHeadAttention(nn.Module):
    """Attends in h subspaces of c = d / h channels each (Vaswani et al. 2017, §3.2.2).

    `mix` uses `attend`; `weights` returns the weights that `mix` uses for the same queries and keys.

    For ablations, `relevance` removes a part of attention: "shared" has one projection for queries and keys, so
    relevance becomes symmetric: score(a, b) = score(b, a); "uniform" has queries of zero, so all scores are equal;
    "unscaled" has queries √c times as long, which cancels the 1/√c.
    """

    def __init__(
        self, d_model: int, num_heads: int, *, dropout: float = 0.0, bias: bool = True, relevance: str = "query_key"
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.stretch = {"uniform": 0.0, "unscaled": math.sqrt(d_model // num_heads)}.get(relevance, 1.0)  # of queries
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj = self.q_proj if relevance == "shared" else nn.Linear(d_model, d_model, bias=bias)
        self.v_proj = nn.Linear(d_model, d_model, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)
        self.watcher: Callable[..., object] | None = None  # gets inputs and result of every call (`trace.watch`)

    def queries_keys_values(
        self, x: Float[Tensor, "n t d"], rotation: Float[Tensor, "2 t 1 c"] | None = None
    ) -> tuple[Float[Tensor, "n t h c"], Float[Tensor, "n t h c"], Float[Tensor, "n t h c"]]:
        """Return the queries, keys and values of all positions, for self-attention."""
        queries, keys, values = self.queries(x), self._split(self.k_proj(x)), self._split(self.v_proj(x))
        if rotation is not None:
            queries, keys = rotate(queries, rotation), rotate(keys, rotation)
        return queries, keys, values

    def queries(self, x: Float[Tensor, "n t d"]) -> Float[Tensor, "n t h c"]:
        """Return the queries of all positions."""
        queries = self._split(self.q_proj(x))
        return queries if self.stretch == 1 else queries * self.stretch

    def keys_values(self, memory: Float[Tensor, "n s d"]) -> KeysValues:
        """Return the keys and values of all positions of the memory."""
        return by_head(self._split(self.k_proj(memory)), self._split(self.v_proj(memory)))

    def forward(
        self,
        queries: Float[Tensor, "n t h c"],
        memory: KeysValues,
        mask: Bool[Tensor, "#n 1 #t s"] | Float[Tensor, "#n 1 #t s"] | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Tensor, "n t d"]:
        """Mix the memory's values by relevance to each query, join the heads and project; see `attend`."""
        return self.out_proj(self.mix(queries, memory, mask, is_causal=is_causal))

    def mix(
        self,
        queries: Float[Tensor, "n t h c"],
        memory: KeysValues,
        mask: Bool[Tensor, "#n 1 #t s"] | Float[Tensor, "#n 1 #t s"] | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Tensor, "n t d"]:
        """Return each head's weighted sum of its values, side by side; is_causal is as in `attend`."""
        dropout = self.dropout if self.training else 0.0
        context = attend(queries.transpose(1, 2), memory, mask, dropout, is_causal=is_causal)
        if self.watcher is not None:
            self.watcher(self, queries, memory, mask, context)
        return context.transpose(1, 2).flatten(2)  # (n, t, h*c)

    def weights(
        self, queries: Float[Tensor, "n t h c"], memory: KeysValues, mask: Bool[Tensor, "#n 1 #t s"] | None = None
    ) -> Float[Tensor, "n h t s"]:
        """Return the weight of each position for each query, as `mix` uses it but without dropout."""
        return attention_weights(queries.transpose(1, 2), memory.keys, mask)

    def _split(self, x: Float[Tensor, "n t d"]) -> Float[Tensor, "n t h c"]:
        return x.unflatten(-1, (self.num_heads, -1))
