"""The state of decoding with a recurrent network: the encoded sentences, and each hypothesis' LSTM states."""

from dataclasses import dataclass, replace

from jaxtyping import Bool, Float, Int
from torch import Tensor

from seq2seq.model.state import sentences_of


@dataclass(frozen=True)
class Annotations:
    """The source states of the b encoded sentences, to which the decoder attends, and their keys."""

    keys: Float[Tensor, "b s a"]
    values: Float[Tensor, "b s m"]

    def select(self, sentences: Int[Tensor, " i"]) -> "Annotations":
        """Return the annotations of some sentences."""
        return Annotations(self.keys.index_select(0, sentences), self.values.index_select(0, sentences))


@dataclass(frozen=True)
class RecurrentState:
    """The b encoded sentences, and the LSTM states of w rows for each; calls return a new state.

    With w = 3, rows 0 to 2 continue sentence 0, and rows 3 to 5 sentence 1. They share its annotations.

    Attributes:
        memory: annotations of the encoded sentences; None: the network has no attention.
        memory_mask: True where the source has a real token.
        past: each row's hidden and cell state, (n, layers, 2, d).
        attention: weights of the last call's target positions over source positions; None: no attention, or no call.
    """

    memory: Annotations | None
    memory_mask: Bool[Tensor, "b 1 s"]
    past: Float[Tensor, "n l 2 d"]
    attention: Float[Tensor, "n t s"] | None = None

    def reorder(self, rows: Int[Tensor, "b w"]) -> "RecurrentState":
        """Return the state of the given rows: a line for each sentence that goes on, in order, with its w rows."""
        past = self.past.index_select(0, rows.flatten())
        if len(rows) == len(self.memory_mask):
            return replace(self, past=past, attention=None)
        sentences = sentences_of(rows, self.past, self.memory_mask)
        memory = None if self.memory is None else self.memory.select(sentences)
        return RecurrentState(memory, self.memory_mask.index_select(0, sentences), past)
