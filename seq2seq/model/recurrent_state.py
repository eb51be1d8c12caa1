"""What a recurrent network's decoding remembers: the encoded sentences, and each hypothesis' LSTM states."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxtyping import Bool, Float, Int
from torch import Tensor

from seq2seq.device import tensor_on
from seq2seq.errors import UserError
from seq2seq.model.places import SHARE_TO_KEEP, Places, still_searched


@dataclass(frozen=True)
class Annotations:
    """What the decoder can look at: the source states of the b encoded sentences, and the keys that find them."""

    keys: Float[Tensor, "b s a"]
    values: Float[Tensor, "b s m"]

    def select(self, sentences: Int[Tensor, " i"]) -> "Annotations":
        """Those of some sentences."""
        return Annotations(self.keys.index_select(0, sentences), self.values.index_select(0, sentences))


@dataclass(frozen=True)
class RecurrentState:
    """All that decoding carries from token to token; every call gives a new one, and the old one stays valid.

    memory: of the encoded sentences, shared by their rows; None: the network does not look at them.
    memory_mask: True where the source has a real token.
    places: where the n rows stand among the sentences.
    past: each row's hidden and cell state, (n, layers, 2, d).
    length: target positions decoded so far (tokens).
    numbers: of the sentences still searched, their place in `memory`; None: all are.
    is_watched: whether attention is kept.
    attention: how much the last tokens' positions took of each source position.
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
        """The same state, from now on with `attention`.

        Raises:
            UserError: the network has none.
        """
        if self.memory is None:
            raise UserError(
                "this model has no attention (model.attention=none): leave out what needs it, such as alignments and "
                "the coverage penalty, or train one with model.attention=additive"
            )
        return replace(self, is_watched=True)

    def reorder(self, rows: Int[Tensor, " n"], counts: Sequence[int]) -> "RecurrentState":
        """The state in which new row i continues old row rows[i].

        Args:
            rows: of every sentence in turn, the old rows that its new rows continue.
            counts: new rows of each sentence that is still here; a sentence without any leaves.
        """
        before = range(self.places.sentences) if self.numbers is None else self.numbers
        numbers, counts = still_searched(before, counts)
        memory, memory_mask = self.memory, self.memory_mask
        if len(numbers) <= SHARE_TO_KEEP * self.places.sentences:
            index = tensor_on(rows.device, numbers)
            memory = None if memory is None else memory.select(index)
            memory_mask, numbers = memory_mask.index_select(0, index), list(range(len(numbers)))
        return replace(
            self,
            memory=memory,
            memory_mask=memory_mask,
            places=Places.of(numbers, counts, len(memory_mask), rows.device),
            past=self.past.index_select(0, rows),
            numbers=numbers,
            attention=None,
        )
