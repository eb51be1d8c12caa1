"""The decoder for search on a GPU, recorded: a step is a few copies and one CUDA graph, without Python between kernels.

A CUDA graph repeats kernels on the same memory with the same shapes. So a search's state is rounded up to one of a few
sizes: sentences, slots and source positions to powers of two, rows of a sentence to the most that it has had. The first
step of a new size is recorded, and later steps and searches of this size replay it. What is added by rounding is masked
or belongs to no row. `FlatDecoder.logits` is the recorded computation; tests compare both decoders on the CPU, where
`benchmarks/recording.py` takes the place of a graph.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.device import tensor_on
from seq2seq.model.attention import KeysValues
from seq2seq.model.decoding import FlatDecoder
from seq2seq.model.flat_state import FlatState
from seq2seq.model.places import Places

FEWEST_POSITIONS = 16  # of a source
MOST_STEPS = 64  # recorded steps that are kept, each with the keys and values of its sentences
Compute = Callable[[], None]
Recorder = Callable[[Compute], Compute]  # returns what repeats a computation


def rounded(number: int) -> int:
    """Return the smallest power of two that is at least this number."""
    return 1 << max(0, number - 1).bit_length()


class CudaGraphs:
    """Records computations on one GPU; they share the memory for what they compute in between."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.pool = device, torch.cuda.graph_pool_handle()
        # Streams of its own, so that the libraries' memory for these streams lives as long as these graphs.
        self.trying, self.recording = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def __call__(self, compute: Compute) -> Compute:
        """Run `compute` twice, record it, and return the function that repeats it."""
        with torch.cuda.device(self.device):
            current = torch.cuda.current_stream()
            self.trying.wait_stream(current)
            try:
                with torch.cuda.stream(self.trying):  # kernels are loaded and chosen before the recording
                    compute()
                    compute()
            finally:
                current.wait_stream(self.trying)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, self.pool, self.recording, capture_error_mode="thread_local"):
                compute()
        return graph.replay


class Size(NamedTuple):
    """What a recorded step has a fixed number of."""

    sentences: int
    width: int  # rows of a sentence
    slots: int
    positions: int  # of the source
    watched: int | None  # layer whose attention is kept


class GraphedState(FlatState):
    """The state of a `GraphedDecoder` during one search; its sizes are rounded up.

    Attributes:
        step: the recorded step whose memory holds this state; None before the first step.
        positions: positions of the source before rounding.
    """

    def __init__(self, memory: list[KeysValues], memory_mask: Float[Tensor, "b 1 1 s"]) -> None:
        sentences, self.positions = len(memory_mask), memory_mask.shape[3]
        device = memory_mask.device
        missing = max(FEWEST_POSITIONS, rounded(self.positions)) - self.positions
        index = tensor_on(device, self.kept(range(sentences)))
        padded = [
            KeysValues(*(F.pad(one.index_select(0, index), (0, 0, 0, missing)) for one in layer)) for layer in memory
        ]
        super().__init__(padded, F.pad(memory_mask.index_select(0, index), (0, missing), value=-torch.inf))
        self.numbers = list(range(sentences))
        self.places = Places.of(self.numbers, [1] * sentences, len(index), device, 1)
        self.step: RecordedStep | None = None

    def capacity(self, slots: int) -> int:
        """Return a power of two."""
        return rounded(slots)

    def width(self, rows: int) -> int:
        """Return the most rows that a sentence has had."""
        return max(rows, self.places.width)

    def kept(self, numbers: Sequence[int]) -> list[int]:
        """Return these sentences, and the first of them again until there is a power of two of them."""
        return [*numbers, *[numbers[0]] * (rounded(len(numbers)) - len(numbers))]

    @property
    def size(self) -> Size:
        """The size of the recorded step that can continue this state."""
        sentences, positions = self.memory_mask.shape[0], self.memory_mask.shape[3]
        return Size(sentences, self.places.width, self.slots.shape[4], positions, self.watched)

    def move_into(self, step: "RecordedStep") -> None:
        """Copy what is not yet there into a recorded step's memory, and keep it there."""
        if self.memory is not step.memory:
            for own, fixed in zip(self.memory, step.memory, strict=True):
                fixed.keys.copy_(own.keys)
                fixed.values.copy_(own.values)
            step.memory_mask.copy_(self.memory_mask)
            self.memory, self.memory_mask = step.memory, step.memory_mask
        if self.slots is not step.slots:
            step.slots.zero_()
            step.slots[:, :, :, :, : self.used] = self.slots[:, :, :, :, : self.used]
            step.wide_mask.fill_(-torch.inf)
            self.slots = step.slots
        self.step, step.owner = step, weakref.ref(self)


class RecordedStep(FlatState):
    """A step of a fixed size: tensors that stay where they are, and the recorded computation that uses them.

    Attributes:
        wide_mask: the same tensor as `mask`, which is as in `FlatState`, but for all slots: -inf if they are not used.
        last: each place's last token.
        next_slots: the slots that each sentence's places write.
        added, rotation: what tells the position; see `FlatDecoder.position`.
        logits: of each place, after a run.
        seen: attention of each place, after a run that watches.
        owner: the state that the tensors hold; a state that has ended, or has moved on, is no owner.
    """

    logits: Float[Tensor, "n v"]
    seen: Float[Tensor, "n 1 s"] | None = None

    def __init__(self, size: Size, state: GraphedState, decoder: FlatDecoder) -> None:
        """Allot memory for states like this one."""
        self.size, self.decoder = size, decoder
        memory = [KeysValues(*(torch.empty_like(one) for one in layer)) for layer in state.memory]
        super().__init__(memory, torch.empty_like(state.memory_mask))
        device = state.memory_mask.device
        self.places, self.watched = Places(size.sentences, size.width), size.watched
        self.mask = self.wide_mask = self.memory_mask.new_empty(size.sentences, 1, size.width, size.slots)
        self.last = torch.zeros(size.sentences * size.width, dtype=torch.long, device=device)
        self.next_slots = torch.arange(size.width, device=device)
        self.added, self.rotation = (None if one is None else one.clone() for one in decoder.position(0, device))
        self.owner: Callable[[], GraphedState | None] = lambda: None
        self.replay: Compute | None = None

    @property
    def is_free(self) -> bool:
        """Whether no search uses this memory."""
        owner = self.owner()
        return owner is None or owner.step is not self

    def capacity(self, slots: int) -> int:
        """Return the fixed number of slots."""
        return self.size.slots

    def write(self, layer: int, rows: Float[Tensor, "2 b h w c"]) -> KeysValues:
        """Write every place's key and value of the new token; return those of all slots."""
        return KeysValues(*self.slots[layer].index_copy_(3, self.next_slots, rows).unbind(0))

    def run(self, last: Int[Tensor, " n"], state: GraphedState, record: Recorder) -> None:
        """Make the next step of a state that has moved into this memory."""
        self.last.copy_(state.places.spread(last).flatten())
        end = state.used + self.size.width
        if state.mask is None:
            self.wide_mask[..., :end] = 0
        else:
            self.wide_mask[..., :end] = state.mask
        torch.arange(state.used, end, out=self.next_slots)
        for fixed, current in zip(
            (self.added, self.rotation), self.decoder.position(state.length, last.device), strict=True
        ):
            if fixed is not None and current is not None:
                fixed.copy_(current)
        if self.replay is None:
            self.logits = torch.empty_like(self._logits())
            self.seen = None if self.attention is None else torch.empty_like(self.attention)
            self.replay = record(self._compute)
        self.replay()

    def _logits(self) -> Float[Tensor, "n v"]:
        return self.decoder.logits(self.last, self, self.added, self.rotation)

    def _compute(self) -> None:
        self.logits.copy_(self._logits())
        if self.seen is not None and self.attention is not None:
            self.seen.copy_(self.attention)


class GraphedDecoder:
    """A Transformer's decoder for search on a GPU; a `Decoder` (see `decoders.py`)."""

    def __init__(self, flat: FlatDecoder, make_recorder: Callable[[], Recorder]) -> None:
        """Make the steps of a flat decoder by what a recorder returns for them."""
        self.flat, self.make_recorder = flat, make_recorder
        self.record = make_recorder()
        self.steps: list[RecordedStep] = []

    def encode(self, src: Int[Tensor, "b s"]) -> GraphedState:
        """Read the source; return the state before the first target token."""
        return GraphedState(*self.flat.memory(src))

    def step(self, last: Int[Tensor, " n"], state: GraphedState) -> tuple[Float[Tensor, "n v"], GraphedState]:
        """Continue every row by its last token; return the logits of the next tokens, and the same state."""
        state.make_room()
        step = self._step_for(state)
        step.run(last, state, self.record)
        seen = None if step.seen is None else state.places.collect(step.seen.unflatten(0, (-1, step.size.width)))
        state.attention = None if seen is None else seen[:, :, : state.positions]
        logits = state.places.collect(step.logits.unflatten(0, (-1, step.size.width)))
        state.advance()
        return logits, state

    def limited_to(self, ids: Int[Tensor, " u"]) -> FlatDecoder:
        """Return a decoder whose `step` reads and predicts indices into these ids; it is not recorded."""
        return self.flat.limited_to(ids)

    def release(self) -> bool:
        """Free the memory of all steps that no search uses; return whether there were any."""
        before = len(self.steps)
        self.steps = [step for step in self.steps if not step.is_free]
        if not self.steps:
            self.record = self.make_recorder()  # a pool of memory ends with its last graph
        return len(self.steps) < before

    def _step_for(self, state: GraphedState) -> RecordedStep:
        """Return the recorded step of the state's size, whose memory holds the state."""
        size = state.size
        step = state.step if state.step is not None and state.step.size == size else None
        if step is None:
            step = next((one for one in self.steps if one.size == size and one.is_free), None)
        if step is None:
            step = self._new_step(size, state)
            self.steps.append(step)
        state.move_into(step)
        return step

    def _new_step(self, size: Size, state: GraphedState) -> RecordedStep:
        if len(self.steps) >= MOST_STEPS:
            self.release()
        try:
            return RecordedStep(size, state, self.flat)
        except torch.OutOfMemoryError:
            if not self.release():
                raise
        return RecordedStep(size, state, self.flat)  # here, the exception no longer holds what was allotted
