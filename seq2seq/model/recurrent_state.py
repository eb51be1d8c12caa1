"""The state of decoding with a recurrent network: the encoded sentences, and each hypothesis' LSTM states."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxtyping import Bool, Float, Int
from torch import Tensor

from seq2seq.device import tensor_on
from seq2seq.errors import UserError
from seq2seq.model.places import PACK_BELOW, Places, still_searched


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
    """The immutable state of decoding between two tokens.

    memory: annotations of the encoded sentences, shared by their rows; None: the network has no attention.
    memory_mask: True where the source has a real token.
    places: which sentence each of the n rows belongs to.
    past: each row's hidden and cell state, (n, layers, 2, d).
    length: target positions decoded so far (tokens).
    numbers: indices in `memory` of the sentences still searched; None: all.
    is_watched: whether attention is kept.
    attention: weights of the last tokens over source positions.
    """

    memory: Annotations | None
    memory_mask: Bool[Tensor, "b 1 s"]
    places: Places
    past: Float[Tensor, "n l 2 d"]
    length: int = 0
    numbers: Sequence[int] | None = None
    is_watched: bool = False
    attention: Float[Tensor, "n t s"] | None = None

    def watching(self) -> "RecurrentState":
        """Return the same state, which keeps `attention` from now on.

        Raises:
            UserError: the network has no attention.
        """
        if self.memory is None:
            raise UserError(
                "this model has no attention (model.attention=none): leave out alignments and the coverage "
                "penalty, or train a model with model.attention=additive"
            )
        return replace(self, is_watched=True)

    def reorder(self, rows: Int[Tensor, " n"], counts: Sequence[int]) -> "RecurrentState":
        """Return the state in which new row i continues old row rows[i].

        Args:
            rows: the old rows that the new rows continue, sentence by sentence.
            counts: new rows of each sentence that is still searched; a sentence without new rows is dropped.
        """
        before = range(self.places.sentences) if self.numbers is None else self.numbers
        numbers, counts = still_searched(before, counts)
        memory, memory_mask = self.memory, self.memory_mask
        if len(numbers) <= PACK_BELOW * self.places.sentences:
            index = tensor_on(rows.device, numbers)
            memory = None if memory is None else memory.select(index)
            memory_mask, numbers = memory_mask.index_select(0, index), list(range(len(numbers)))
        return replace(
            self,
            memory=memory,
            memory_mask=memory_mask,
            places=Places.of(numbers, counts, len(memory_mask), rows.device, max(counts, default=1)),
            past=self.past.index_select(0, rows),
            numbers=numbers,
            attention=None,
        )
