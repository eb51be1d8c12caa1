"""The state of the textbook decoder between calls. Search uses `flat_state.FlatState` instead."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxtyping import Bool, Float, Int
from torch import Tensor

from seq2seq.model.attention import KeysValues


def aligning_layer(num_layers: int) -> int:
    """Return the decoder layer whose cross-attention aligns words best: the last but one (Garg et al. 2019, §3).

    In a decoder of one layer, return this layer.
    """
    return max(0, num_layers - 2)


@dataclass(frozen=True)
class DecoderState:
    """The encoded sentence and the target so far of every row; calls return a new state and leave the old one valid.

    memory: keys and values of the encoded sentences, one pair per decoder layer.
    memory_mask: True where the source has a real token.
    past: keys and values of the target tokens so far, one pair per decoder layer; empty before the first token.
    length: target positions decoded so far (tokens).
    watched: the decoder layer whose cross-attention is kept; None: no layer.
    attention: weights of the watched layer from the last call's positions to source positions, mean of the heads.
    """

    memory: tuple[KeysValues, ...]
    memory_mask: Bool[Tensor, "n 1 1 s"]
    past: tuple[KeysValues, ...] = ()
    length: int = 0
    watched: int | None = None
    attention: Float[Tensor, "n t s"] | None = None

    def watching(self, layer: int | None = None) -> "DecoderState":
        """Return the state that keeps the `attention` of a decoder layer; None: of the layer that aligns best."""
        return replace(self, watched=aligning_layer(len(self.memory)) if layer is None else layer)

    def reorder(self, rows: Int[Tensor, " m"], counts: Sequence[int] = ()) -> "DecoderState":
        """Return the state in which new row i continues old row rows[i]; counts are not used."""
        return replace(
            self,
            memory=tuple(memory.select(rows) for memory in self.memory),
            memory_mask=self.memory_mask.index_select(0, rows),
            past=tuple(past.select(rows) for past in self.past),
            attention=None,
        )
