"""What attention does in one ordinary forward pass, seen from outside; knows no architecture, and is no second path.

Every `MultiHeadAttention` shows what it mixes to whoever watches it. Nobody does in training and in translation, which
then pay for one comparison with None.
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
    """The weights of all attentions, one tensor a layer: row = asking position; rows sum to 1 (float32).

    Rows that may attend to nothing, as all do without cross-attention, are 0. Padding that is attended to has weight 0;
    rows of padding that asks mean nothing. Lists are empty where the architecture has no such attention.
    """

    encoder: list[Float[Tensor, "b h s s"]]
    decoder: list[Float[Tensor, "b h t t"]]
    cross: list[Float[Tensor, "b h t s"]]


@dataclass(frozen=True)
class Mixed:
    """What one attention mixed: queries and keys as compared (turned, where positions are rotary), and the result."""

    attention: MultiHeadAttention
    queries: Float[Tensor, "n t h c"]
    memory: KeysValues
    mask: Tensor | None  # boolean or additive, (#n, 1, #t, s)
    context: Float[Tensor, "n h t c"]

    @property
    def allowed(self) -> Bool[Tensor, "#n 1 #t s"] | None:
        """The mask, True = may attend; None: everything may be attended to."""
        return self.mask if self.mask is None or self.mask.dtype == torch.bool else self.mask == 0

    def weights(self) -> Float[Tensor, "n h t s"]:
        """How much each query took of each key, in float32 whatever the layer's own precision."""
        memory = KeysValues(self.memory.keys.float(), self.memory.values.float())
        with torch.autocast(self.queries.device.type, enabled=False):
            return self.attention.weights(self.queries.float(), memory, self.allowed)


@contextmanager
def watch(modules: Iterable[nn.Module]) -> Iterator[dict[nn.Module, Mixed]]:
    """Collect what each attention among the modules mixes last within the block, in this thread.

    Other threads may use the same modules meanwhile and are not seen; those that want to watch wait for each other.
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
