"""What decoding remembers: the encoded sentences, and each hypothesis' own past. Knows no layers and no search.

The k hypotheses of a sentence are k queries over one set of keys and values: the sentence's in cross-attention, and in
self-attention those of everything that any of them ever was. A mask tells each hypothesis which of these *slots* are
its own past, so that keys and values are written once, in place, and never copied from hypothesis to hypothesis.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from seq2seq.device import tensor_on
from seq2seq.model.attention import KeysValues
from seq2seq.model.masks import causal_mask, own_past_mask

SPARE_SLOTS = 64  # at least so many are allotted at once, and written before forgotten ones are cleared
SHARE_TO_KEEP = 0.75  # sentences' memories are packed anew when so few of them are still searched


def aligning_layer(num_layers: int) -> int:
    """Which decoder layer's cross-attention aligns words best: the last but one, or the only (Garg et al. 2019, §3)."""
    return max(0, num_layers - 2)


@dataclass(frozen=True)
class Places:
    """Where n rows stand among b sentences with up to w rows each; the rows of a sentence stand together.

    of_row: each row's place, from 0 to b * w; None: every place is taken, in order.
    row_at: each place's row, and any row where there is none.
    """

    sentences: int
    device: torch.device
    width: int = 1
    of_row: Int[Tensor, " n"] | None = None
    row_at: Int[Tensor, " bw"] | None = None

    @classmethod
    def of(cls, numbers: Sequence[int], counts: Sequence[int], sentences: int, device: torch.device) -> "Places":
        """Give sentence numbers[i] its counts[i] rows."""
        width = max(counts, default=1)
        if sentences * width == sum(counts):
            return cls(sentences, device, width)
        of_row = [number * width + row for number, count in zip(numbers, counts, strict=True) for row in range(count)]
        row_at = [0] * (sentences * width)
        for row, place in enumerate(of_row):
            row_at[place] = row
        return cls(sentences, device, width, tensor_on(device, of_row), tensor_on(device, row_at))

    @property
    def rows(self) -> int:
        """How many places are taken (n)."""
        return self.sentences * self.width if self.of_row is None else len(self.of_row)

    def for_rows(self, rows: int, length: int) -> "Places":
        """These places, or before the first token (length 0) those of a multiple of as many rows.

        Raises:
            ValueError: so many rows cannot go on from these.
        """
        if rows == self.rows:
            return self
        width, rest = divmod(rows, max(1, self.sentences))
        if rest or length:
            raise ValueError(f"{rows} rows cannot go on from a state of {self.rows}")
        return Places(self.sentences, self.device, width)

    def spread(self, rows: Shaped[Tensor, "n t *rest"]) -> Shaped[Tensor, "b wt *rest"]:
        """Lay rows side by side by sentence; a place that no row takes repeats one, for nobody to look at."""
        if self.row_at is not None:
            rows = rows.index_select(0, self.row_at)
        return rows if self.width == 1 else rows.reshape(self.sentences, -1, *rows.shape[2:])

    def collect(self, places: Shaped[Tensor, "b wt *rest"]) -> Shaped[Tensor, "n t *rest"]:
        """Undo `spread`."""
        if self.width > 1:
            places = places.reshape(self.sentences * self.width, -1, *places.shape[2:])
        return places if self.of_row is None else places.index_select(0, self.of_row)


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

    def pick(self, index: Int[Tensor, "b z"]) -> "Slots":
        """Some slots of every sentence."""
        _, heads, _, channels = self._memory.keys.shape
        index = index[:, None, :, None].expand(-1, heads, -1, channels)
        return Slots(KeysValues(*(x.gather(2, index) for x in self._memory)))


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
    cleared: how many slots there were after the last clearing.
    numbers: of the sentences still searched, their place in `memory`; None: all are.
    watched: the decoder layer whose cross-attention is kept; None: of none.
    attention: how much the last tokens' positions took of each source position there, mean of the heads.
    """

    memory: tuple[KeysValues, ...]
    memory_mask: Bool[Tensor, "b 1 1 s"]
    places: Places
    past: tuple[Slots, ...] = ()
    length: int = 0
    slots: int = 0
    own: Bool[Tensor, "b w z"] | None = None
    cleared: int = 0
    numbers: Sequence[int] | None = None
    watched: int | None = None
    attention: Float[Tensor, "n t s"] | None = None

    @classmethod
    def start(cls, memory: tuple[KeysValues, ...], memory_mask: Bool[Tensor, "b 1 1 s"]) -> "DecoderState":
        """The state before the first target token: one row a sentence."""
        return cls(memory, memory_mask, Places(memory_mask.shape[0], memory_mask.device))

    def for_rows(self, rows: int) -> "DecoderState":
        """This state, or before the first token the same for a multiple of as many rows.

        Raises:
            ValueError: so many rows cannot go on from it.
        """
        places = self.places.for_rows(rows, self.length)
        return self if places is self.places else replace(self, places=places)

    def watching(self, layer: int | None = None) -> "DecoderState":
        """The same state, from now on with the `attention` of a decoder layer; None is the one that aligns best."""
        return replace(self, watched=aligning_layer(len(self.memory)) if layer is None else layer)

    @property
    def is_fresh(self) -> bool:
        """Whether nothing is decoded yet, by one row a sentence: a mask of the next tokens is then the causal one."""
        return self.length == 0 and self.places.width == 1 and self.own is None

    def mask(self, length: int) -> Bool[Tensor, "#b 1 wt slots_and_wt"] | None:
        """Which keys the next `length` tokens of every row may attend to; None: all."""
        device, places = self.memory_mask.device, self.places
        if self.own is None and places.width == 1:
            return causal_mask(length, self.length, device) if length > 1 else None
        nothing = self.memory_mask.new_zeros(places.sentences, places.width, 0)
        return own_past_mask(length, nothing if self.own is None else self.own)

    def advanced(
        self,
        length: int,
        past: tuple[Slots, ...],
        mask: Bool[Tensor, "#b 1 wt z"] | None,
        attention: Float[Tensor, "n t s"] | None,
    ) -> "DecoderState":
        """The state after `length` more tokens of every row, which attended by this mask."""
        width = self.places.width
        has_forked = self.own is not None or width > 1
        own = mask[:, 0, length - 1 :: length] if has_forked and mask is not None else None
        length, slots = self.length + length, self.slots + width * length
        return replace(self, past=past, length=length, slots=slots, own=own, attention=attention)

    def reorder(self, rows: Int[Tensor, " n"], counts: Sequence[int]) -> "DecoderState":
        """The state in which new row i continues old row rows[i]; no key and no value is moved for it.

        Args:
            rows: of every sentence in turn, the old rows that its new rows continue.
            counts: new rows of each sentence that is still here; a sentence without any leaves.
        """
        before = range(self.places.sentences) if self.numbers is None else self.numbers
        kept = [(number, count) for number, count in zip(before, counts, strict=True) if count]
        numbers, counts = [number for number, _ in kept], [count for _, count in kept]
        state = self
        if len(kept) <= SHARE_TO_KEEP * self.places.sentences:
            state, numbers = self._only(numbers), range(len(kept))
        places = Places.of(numbers, counts, len(state.memory_mask), rows.device)
        own = self.own
        if places.width > 1 and own is None:  # so far one row a sentence, to which all slots belonged
            own = self.memory_mask.new_ones(1, 1, 1).expand(self.places.sentences, 1, self.slots)
        if own is not None:
            old_places = rows if self.places.of_row is None else self.places.of_row.index_select(0, rows)
            past_of_rows = own.flatten(0, 1).index_select(0, old_places)
            own = places.spread(past_of_rows[:, None])
        state = replace(state, places=places, numbers=numbers, own=own)
        return state._clear() if self.slots > 2 * self.cleared + SPARE_SLOTS else state

    def _only(self, numbers: Sequence[int]) -> "DecoderState":
        """The same without the memories of all sentences but these, and for now without rows."""
        index = tensor_on(self.memory_mask.device, numbers)
        return replace(
            self,
            memory=tuple(memory.select(index) for memory in self.memory),
            memory_mask=self.memory_mask.index_select(0, index),
            past=tuple(past.select(self.slots, index) for past in self.past),
            own=None,
            attention=None,
        )

    def _clear(self) -> "DecoderState":
        """The same without slots of hypotheses that nothing living descends from."""
        if self.own is None:
            return replace(self, cleared=self.slots)
        is_alive = self.own.any(1)  # (b, slots)
        count = int(is_alive.sum(1).max())
        index = is_alive.byte().sort(dim=1, descending=True, stable=True).indices[:, :count]  # the living ones first
        past = tuple(one.pick(index) for one in self.past)
        own = self.own.gather(2, index[:, None].expand(-1, self.own.shape[1], -1))
        return replace(self, past=past, own=own, slots=count, cleared=count)
