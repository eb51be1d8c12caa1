"""Attention with a part removed, for the lab's experiments (docs/lab.md)."""

import math

from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq.model.attention import KeysValues, MultiHeadAttention


class AblatedAttention(MultiHeadAttention):
    """Attention whose relevance lacks a part.

    "shared" has one projection for queries and keys, so relevance becomes symmetric: score(a, b) = score(b, a).
    "uniform" has queries of zero, so all scores are equal. "unscaled" has queries √c times as long, which cancels the
    1/√c.
    """

    def __init__(
        self, d_model: int, num_heads: int, *, dropout: float = 0.0, bias: bool = True, relevance: str
    ) -> None:
        super().__init__(d_model, num_heads, dropout=dropout, bias=bias)
        self.factor = {"uniform": 0.0, "unscaled": math.sqrt(d_model // num_heads)}.get(relevance, 1.0)
        if relevance == "shared":
            self.k_proj = self.q_proj

    def queries(
        self, x: Float[Tensor, "n t d"], rotation: Float[Tensor, "2 t 1 c"] | None = None
    ) -> Float[Tensor, "n h t c"]:
        """Return the queries of all positions, times a constant factor."""
        return super().queries(x, rotation) * self.factor


class NoAttention(MultiHeadAttention):
    """Attention whose values are all zero, so that it tells nothing of its memory.

    The mask, by which no key may be attended to, is not given to the kernel: kernels differ in what they return for a
    row without keys.
    """

    def keys_values(self, x: Float[Tensor, "n s d"], rotation: Float[Tensor, "2 s 1 c"] | None = None) -> KeysValues:
        """Return the keys, and zero for each value."""
        keys, values = super().keys_values(x, rotation)
        return KeysValues(keys, values * 0.0)  # with gradients of zero, which data-parallel training needs

    def forward(
        self,
        x: Float[Tensor, "n t d"],
        memory: KeysValues,
        mask: Bool[Tensor, "#b 1 #t s"] | None = None,
        rotation: Float[Tensor, "2 t 1 c"] | None = None,
    ) -> Float[Tensor, "n t d"]:
        """Return the projection of zeros, whatever x and the memory are."""
        return super().forward(x, memory, None, rotation)
