"""Records the attention of an ordinary forward pass.

Every `MultiHeadAttention` calls its watcher, if it has one, with its queries, keys, values, mask and result. Without a
watcher, the only cost is one comparison with None.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seq2seq.model.attention import KeysValues, MultiHeadAttention

_ONE_AT_A_TIME = threading.RLock()


@dataclass(frozen=True)
class Trace:
    """The weights of all attention, one float32 tensor per layer: each row belongs to a query and sums to 1.

    A row is 0 if its query may attend to nothing, as in models without cross-attention. Padding as a key has weight 0;
    the rows of padding as a query have no meaning. A list is empty if the architecture has no attention of this kind.
    """

    encoder: list[Float[Tensor, "b h s s"]]
    decoder: list[Float[Tensor, "b h t t"]]
    cross: list[Float[Tensor, "b h t s"]]


@dataclass(frozen=True)
class Mixed:
    """Inputs and result of one attention: queries and keys (rotated if positions are rotary), values, mask, context."""

    attention: MultiHeadAttention
    queries: Float[Tensor, "n t h c"]
    memory: KeysValues
    mask: Tensor | None  # boolean or additive, (#n, 1, #t, s)
    context: Float[Tensor, "n h t c"]

    @property
    def allowed(self) -> Bool[Tensor, "#n 1 #t s"] | None:
        """The mask, True = may attend; None: all keys are allowed."""
        return self.mask if self.mask is None or self.mask.dtype == torch.bool else self.mask == 0

    def weights(self) -> Float[Tensor, "n h t s"]:
        """Return the weight of each key for each query, in float32."""
        memory = KeysValues(self.memory.keys.float(), self.memory.values.float())
        with torch.autocast(self.queries.device.type, enabled=False):
            return self.attention.weights(self.queries.float(), memory, self.allowed)


@contextmanager
def watch(modules: Iterable[nn.Module]) -> Iterator[dict[nn.Module, Mixed]]:
    """Yield a dictionary that records the last call, within the block, of each attention among the modules.

    Only calls in this thread are recorded; other threads may use the same modules. Only one thread at a time can watch.
    """
    seen: dict[nn.Module, Mixed] = {}
    thread = threading.get_ident()

    def look(mixed: Mixed) -> None:
        if threading.get_ident() == thread:
            seen[mixed.attention] = mixed

    attentions = [module for module in modules if isinstance(module, MultiHeadAttention)]
    with _ONE_AT_A_TIME:
        before = [attention.watcher for attention in attentions]
        try:
            for attention in attentions:
                attention.watcher = lambda *parts: look(Mixed(*parts))
            yield seen
        finally:
            for attention, watcher in zip(attentions, before, strict=True):
                attention.watcher = watcher
