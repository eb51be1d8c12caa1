"""The state of the Transformer's decoder between calls."""

from dataclasses import dataclass, replace

from jaxtyping import Bool, Float, Int
from torch import Tensor

from seq2seq.model.attention import KeysValues


@dataclass(frozen=True)
class DecoderState:
    """The b encoded sentences, and the targets so far of w rows for each; calls return a new state.

    With w = 3, rows 0 to 2 continue sentence 0, and rows 3 to 5 sentence 1. They share its keys and values.

    Attributes:
        memory: keys and values of the encoded sentences, one pair per decoder layer.
        memory_mask: True where the source has a real token.
        past: keys and values of the target tokens so far, one pair per decoder layer; empty before the first token.
    """

    memory: tuple[KeysValues, ...]
    memory_mask: Bool[Tensor, "b 1 1 s"]
    past: tuple[KeysValues, ...] = ()

    @property
    def length(self) -> int:
        """Target positions decoded so far (tokens)."""
        return self.past[0].keys.shape[2] if self.past else 0

    def reorder(self, rows: Int[Tensor, "b w"]) -> "DecoderState":
        """Return the state of the given rows: a line for each sentence that goes on, in order, with its w rows."""
        past = tuple(layer.select(rows.flatten()) for layer in self.past)
        if len(rows) == len(self.memory_mask):
            return replace(self, past=past)
        sentences = sentences_of(rows, self.past[0].keys, self.memory_mask)
        memory = tuple(layer.select(sentences) for layer in self.memory)
        return DecoderState(memory, self.memory_mask.index_select(0, sentences), past)


def sentences_of(
    rows: Int[Tensor, "b w"], by_row: Float[Tensor, "n ..."], by_sentence: Bool[Tensor, "z ..."]
) -> Int[Tensor, " b"]:
    """Return the sentence of each line of rows, in a state of n rows for z sentences."""
    return rows[:, 0] // (len(by_row) // len(by_sentence))
