"""Records the attention of an ordinary forward pass, by PyTorch's forward hooks."""

import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seq2seq.model.attention import KeysValues, MultiHeadAttention


def aligning_layer(num_layers: int) -> int:
    """Return the decoder layer whose cross-attention aligns words best: the last but one (Garg et al. 2019, §3).

    In a decoder of one layer, return this layer.
    """
    return max(0, num_layers - 2)


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
class AttentionCall:
    """The inputs of one call of an attention: input of the queries, keys and values, mask, and rotation if any."""

    attention: MultiHeadAttention
    x: Float[Tensor, "n t d"]
    memory: KeysValues
    mask: Bool[Tensor, "#n 1 #t s"] | None = None
    rotation: Float[Tensor, "2 t 1 c"] | None = None

    def queries(self) -> Float[Tensor, "n h t c"]:
        """Return the queries; with rotary positions, rotated."""
        return self.attention.queries(self.x, self.rotation)

    def weights(self) -> Float[Tensor, "n h t s"]:
        """Return the weight of each key for each query, in float32 and without dropout."""
        queries = self.queries()
        with torch.autocast(queries.device.type, enabled=False):
            return self.attention.weights_of(queries.float(), self.memory.keys.float(), self.mask)


@contextmanager
def record_attention(modules: Iterable[nn.Module]) -> Generator[dict[nn.Module, AttentionCall]]:
    """Yield a dictionary that records the last call, within the block, of each attention among the modules.

    Only calls in this thread are recorded; other threads may use the same modules.
    """
    calls: dict[nn.Module, AttentionCall] = {}
    thread = threading.get_ident()

    def record(attention: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        if threading.get_ident() == thread and isinstance(attention, MultiHeadAttention):
            calls[attention] = AttentionCall(attention, *inputs)

    handles = [module.register_forward_hook(record) for module in modules if isinstance(module, MultiHeadAttention)]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
