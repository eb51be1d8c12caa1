"""The state of the decoder for search: keys and values of sources and hypotheses, and who attends to which of them.

The k hypotheses of a sentence are k queries over one set of keys and values. In cross-attention, this set belongs to
the source. In self-attention, it has a *slot* for every token of any of the hypotheses, written once. A mask selects
the slots of each hypothesis' own past. Slots are copied only to free memory or to get more.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.device import tensor_on
from seq2seq.model.attention import KeysValues
from seq2seq.model.places import PACK_BELOW, Places, still_searched
from seq2seq.model.state import aligning_layer

SPARE_SLOTS = 64  # free slots at first and after every clearing; a clearing makes the host wait for a GPU


class FlatState:
    """The state of a `FlatDecoder` during one search; steps and `reorder` change the state in place.

    Once a sentence has had several rows, `reorder` must be called between any two steps.

    Attributes:
        memory: keys and values of the b encoded sentences, one pair per layer.
        memory_mask: additive mask of the source's padding, (b, 1, 1, s).
        slots: keys and values of the target tokens, (layers, 2, b, h, capacity, c); the first `used` are written.
        mask: additive mask by which each place attends only to its own past and its next slot, (b, 1, w, used + w);
            None: every slot belongs to the sentence's only row.
        places: the places of the rows among the sentences.
        numbers: indices in `memory` of the sentences that are still searched.
        length: target tokens so far.
        watched: the layer whose cross-attention is kept; None: no layer.
        attention: weights of each row's cross-attention to source positions in the last step, mean of the heads.
    """

    def __init__(self, memory: list[KeysValues], memory_mask: Float[Tensor, "b 1 1 s"]) -> None:
        keys = memory[0].keys
        sentences, heads, _, channels = keys.shape
        self.memory: list[KeysValues] = memory
        self.memory_mask = memory_mask
        # Zeros, because uninitialised memory may hold NaN, and NaN passes a mask.
        self.slots = keys.new_zeros(len(memory), 2, sentences, heads, self.capacity(SPARE_SLOTS), channels)
        self.mask: Float[Tensor, "b w z"] | None = None
        self.places, self.numbers = Places(sentences), list(range(sentences))
        self.length = self.used = 0
        self.watched: int | None = None
        self.attention: Float[Tensor, "n 1 s"] | None = None

    def watching(self) -> "FlatState":
        """Keep the attention of the layer that aligns best from now on; return this state."""
        self.watched = aligning_layer(len(self.memory))
        return self

    def reorder(self, rows: Int[Tensor, " n"], counts: Sequence[int]) -> "FlatState":
        """Let new row i continue old row rows[i], by the mask; keys and values move only when memory is freed.

        Args:
            rows: the old rows that the new rows continue, sentence by sentence.
            counts: new rows of each sentence that is still searched; a sentence without new rows is dropped.
        """
        width = self.width(max(counts))
        own_past = self._own_past(rows, width)
        numbers, counts = still_searched(self.numbers, counts)
        if len(kept := self.kept(numbers)) <= PACK_BELOW * self.places.sentences:
            self._keep_sentences(tensor_on(rows.device, kept))
            numbers = list(range(len(numbers)))
        self.numbers, self.mask = numbers, None
        self.places = Places.of(numbers, counts, len(self.memory_mask), rows.device, width)
        if own_past is not None:
            past = self.places.spread(own_past)  # (b, w, used)
            past = past if self._has_room() else self._clear_dead_slots(past)
            next_slots = past.new_full((width, width), -torch.inf).fill_diagonal_(0)
            self.mask = torch.cat((past, next_slots.expand(len(past), -1, -1)), 2)[:, None]
        return self

    def make_room(self) -> None:
        """Add slots if there are too few for the next token of every place."""
        if not self._has_room():
            self._set_slots(self._used_slots(), 2 * (self.used + self.places.width))

    def write(self, layer: int, rows: Float[Tensor, "2 b h w c"]) -> KeysValues:
        """Write every place's key and value of the new token; return those of all used slots and the new ones."""
        end = self.used + self.places.width
        slots = self.slots[layer]
        slots[:, :, :, self.used : end] = rows
        return KeysValues(*slots[:, :, :, :end].unbind(0))

    def advance(self) -> None:
        """Count the token that a step has written for every place."""
        self.length, self.used = self.length + 1, self.used + self.places.width

    def capacity(self, slots: int) -> int:
        """Return the number of slots to allot, at least as many as are needed."""
        return slots

    def width(self, rows: int) -> int:
        """Return the number of places of each sentence, at least as many as its rows."""
        return rows

    def kept(self, numbers: Sequence[int]) -> Sequence[int]:
        """Return the sentences to keep if only those with these numbers are still searched."""
        return numbers

    def _has_room(self) -> bool:
        return self.used + self.places.width <= self.slots.shape[4]

    def _set_slots(self, slots: Float[Tensor, "l 2 b h z c"], needed: int) -> None:
        self.slots = F.pad(slots, (0, 0, 0, self.capacity(needed) - slots.shape[4]))

    def _used_slots(self) -> Float[Tensor, "l 2 b h z c"]:
        return self.slots[:, :, :, :, : self.used]

    def _own_past(self, rows: Int[Tensor, " n"], width: int) -> Float[Tensor, "n z"] | None:
        """Return an additive mask of each new row's past; None: no sentence has ever had two rows."""
        if self.mask is None:
            return None if width == 1 else self.memory_mask.new_zeros(1, 1).expand(len(rows), self.used)
        places = rows if self.places.of_row is None else self.places.of_row.index_select(0, rows)
        return self.mask.flatten(0, 2).index_select(0, places)

    def _keep_sentences(self, index: Int[Tensor, " i"]) -> None:
        self.memory = [memory.select(index) for memory in self.memory]
        self.memory_mask = self.memory_mask.index_select(0, index)
        self._set_slots(self._used_slots().index_select(2, index), self.used + SPARE_SLOTS)

    def _clear_dead_slots(self, past: Float[Tensor, "b w z"]) -> Float[Tensor, "b w y"]:
        """Remove the slots that are in no row's past; return the mask of the other slots."""
        is_alive = (past == 0).any(1)  # (b, used)
        self.used = count = int(is_alive.sum(1).max())
        index = is_alive.byte().sort(dim=1, descending=True, stable=True).indices[:, :count]  # living slots first
        layers, _, _, heads, _, channels = self.slots.shape
        living = self.slots.gather(4, index[:, None, :, None].expand(layers, 2, -1, heads, -1, channels))
        self._set_slots(living, 2 * count + SPARE_SLOTS + self.places.width)
        return past.gather(2, index[:, None].expand(-1, past.shape[1], -1))
