"""What decoding remembers: the encoded sentences, and each hypothesis' own past. Knows no layers and no search.

The k hypotheses of a sentence are k queries over one set of keys and values: the sentence's in cross-attention, and in
self-attention those of everything that any of them ever was. A mask tells each hypothesis which of these *slots* are
its own past, so that keys and values are written once, in place, and never copied from hypothesis to hypothesis.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from seq2seq.model.attention import KeysValues
from seq2seq.model.masks import causal_mask, own_past_mask

SPARE_SLOTS = 64  # at least so many are allotted at once
SHARE_TO_KEEP = 0.75  # sentences' memories are packed anew when so few of them are still searched


@dataclass(frozen=True)
class Places:
    """Where n rows stand among b sentences with up to w rows each: row i at place index[i] of b * w.

    The rows of a sentence stand together. index None means that every place is taken, in order.
    """

    sentences: int
    width: int = 1
    index: Int[Tensor, " n"] | None = None

    @property
    def rows(self) -> int:
        """How many places are taken (n)."""
        return self.sentences * self.width if self.index is None else len(self.index)

    @classmethod
    def of(cls, numbers: Sequence[int], counts: Sequence[int], sentences: int, device: torch.device) -> "Places":
        """Give sentence numbers[i] its counts[i] rows."""
        width = max(counts, default=1)
        if sentences * width == sum(counts):
            return cls(sentences, width)
        taken = [number * width + row for number, count in zip(numbers, counts, strict=True) for row in range(count)]
        return cls(sentences, width, torch.tensor(taken, device=device))

    def spread(self, rows: Shaped[Tensor, "n h t c"]) -> Shaped[Tensor, "b h wt c"]:
        """Lay rows side by side by sentence; what no row takes is zero."""
        if self.index is not None:
            places = rows.new_zeros(self.sentences * self.width, *rows.shape[1:])
            rows = places.index_copy_(0, self.index, rows)
        elif self.width == 1:
            return rows
        return rows.unflatten(0, (self.sentences, self.width)).transpose(1, 2).flatten(2, 3)

    def collect(self, places: Shaped[Tensor, "b h wt c"]) -> Shaped[Tensor, "n h t c"]:
        """Undo `spread`."""
        if self.index is None and self.width == 1:
            return places
        rows = places.unflatten(2, (self.width, -1)).transpose(1, 2).flatten(0, 1)
        return rows if self.index is None else rows.index_select(0, self.index)

    def of_rows(self, rows: Int[Tensor, " m"]) -> Int[Tensor, " m"]:
        """The places at which these rows stand."""
        return rows if self.index is None else self.index.index_select(0, rows)


class Slots:
    """A growing memory of keys and values, of which every state sees the beginning it knows.

    Writing behind the newest state's slots happens in place; behind those of an older state, on a copy.
    """

    def __init__(self, content: KeysValues) -> None:
        self._memory = content
        self._used = content.keys.shape[2]

    def write(self, start: int, new: KeysValues) -> "Slots":
        """Put keys and values behind the first `start` slots; the result holds them, as may self."""
        end = start + new.keys.shape[2]
        slots = self
        if self._used != start or end > self._memory.keys.shape[2] or new.keys.requires_grad:
            slots = Slots(KeysValues(*(_with_room(x[:, :, :start], max(2 * end, SPARE_SLOTS)) for x in self._memory)))
        for memory, values in zip(slots._memory, new, strict=True):
            memory[:, :, start:end] = values
        slots._used = end
        return slots

    def first(self, count: int) -> KeysValues:
        """The keys and values of the first `count` slots, as views."""
        return KeysValues(*(x[:, :, :count] for x in self._memory))

    def select(self, count: int, sentences: Int[Tensor, " i"]) -> "Slots":
        """The first `count` slots of some sentences only."""
        return Slots(self.first(count).select(sentences))


def _with_room(x: Shaped[Tensor, "b h s c"], capacity: int) -> Shaped[Tensor, "b h z c"]:
    wider = x.new_zeros(*x.shape[:2], capacity, x.shape[3])  # zeros: even a weight of 0 would spread a NaN
    wider[:, :, : x.shape[2]] = x
    return wider


@dataclass(frozen=True)
class DecoderState:
    """All that decoding carries from token to token; every call gives a new one, and the old one stays valid.

    memory: keys and values of the b encoded sentences, one pair a decoder layer.
    memory_mask: True where the source has a real token, (b, 1, 1, s).
    places: where the n rows stand among the sentences.
    past: keys and values of the rows' own tokens so far, one memory a decoder layer; empty before the first.
    length: target positions decoded so far (tokens).
    slots: how many of `past` are in use.
    own: which of them are each place's own past, (b, w, slots); None: all are.
    numbers: of the sentences still searched, their place in `memory`.
    """

    memory: tuple[KeysValues, ...]
    memory_mask: Bool[Tensor, "b 1 1 s"]
    places: Places
    past: tuple[Slots, ...] = ()
    length: int = 0
    slots: int = 0
    own: Bool[Tensor, "b w z"] | None = None
    numbers: Sequence[int] = ()

    @classmethod
    def start(cls, memory: tuple[KeysValues, ...], memory_mask: Bool[Tensor, "b 1 1 s"]) -> "DecoderState":
        """The state before the first target token: one row a sentence."""
        sentences = memory_mask.shape[0]
        return cls(memory, memory_mask, Places(sentences), numbers=range(sentences))

    def for_rows(self, rows: int) -> "DecoderState":
        """This state, or before the first token the same for a multiple of as many rows.

        Raises:
            ValueError: so many rows cannot go on from it.
        """
        if rows == self.places.rows:
            return self
        width, rest = divmod(rows, max(1, self.places.sentences))
        if rest or self.length:
            raise ValueError(f"{rows} rows cannot go on from a state of {self.places.rows}")
        return replace(self, places=Places(self.places.sentences, width))

    def mask(self, length: int) -> Bool[Tensor, "#b 1 wt slots_and_wt"] | None:
        """Which keys the next `length` tokens of every row may attend to; None: all."""
        device, places = self.memory_mask.device, self.places
        if self.own is None and places.width == 1:
            return causal_mask(length, self.length, device) if length > 1 else None
        nothing = self.memory_mask.new_zeros(places.sentences, places.width, 0)
        return own_past_mask(length, nothing if self.own is None else self.own)

    def advanced(self, length: int, past: tuple[Slots, ...], mask: Bool[Tensor, "#b 1 wt z"] | None) -> "DecoderState":
        """The state after `length` more tokens of every row, which attended by this mask."""
        width = self.places.width
        has_forked = self.own is not None or width > 1
        own = mask[:, 0, length - 1 :: length] if has_forked and mask is not None else None
        return replace(self, past=past, length=self.length + length, slots=self.slots + width * length, own=own)

    def reorder(self, rows: Int[Tensor, " n"], counts: Sequence[int]) -> "DecoderState":
        """The state in which new row i continues old row rows[i]; no key and no value is moved for it.

        Args:
            rows: of every sentence in turn, the old rows that its new rows continue.
            counts: new rows of each sentence that is still here; a sentence without any leaves.
        """
        kept = [(number, count) for number, count in zip(self.numbers, counts, strict=True) if count]
        numbers, counts = [number for number, _ in kept], [count for _, count in kept]
        packed: dict[str, Any] = {}
        if len(kept) <= SHARE_TO_KEEP * self.places.sentences:
            packed, numbers = self._only(numbers), range(len(kept))
        sentences = len(kept) if packed else self.places.sentences
        places = Places.of(numbers, counts, sentences, rows.device)
        own = self.own
        if places.width > 1 and own is None:  # so far one row a sentence, to which all slots belonged
            own = self.memory_mask.new_ones(1, 1, 1).expand(self.places.sentences, 1, self.slots)
        if own is not None:
            past_of_rows = own.flatten(0, 1).index_select(0, self.places.of_rows(rows))
            own = places.spread(past_of_rows[:, None, None])[:, 0]
        return replace(self, places=places, numbers=numbers, own=own, **packed)

    def _only(self, numbers: Sequence[int]) -> dict[str, Any]:
        """What changes when the memories of all sentences but these are forgotten."""
        index = torch.tensor(numbers, dtype=torch.long, device=self.memory_mask.device)
        return {
            "memory": tuple(memory.select(index) for memory in self.memory),
            "memory_mask": self.memory_mask.index_select(0, index),
            "past": tuple(past.select(self.slots, index) for past in self.past),
        }
