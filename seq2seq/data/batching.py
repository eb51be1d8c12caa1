"""Batches of pairs of similar lengths within a token budget, in a seeded order that can resume at any batch."""

import contextlib
import hashlib
import logging
import pickle
import shutil
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from filelock import FileLock
from jaxtyping import Int, Int32, Int64, Integer, UInt
from torch import Tensor

from seq2seq.data.dataset import Ids, Pairs
from seq2seq.data.epochs import Block, BlockId, BlockSource, all_indices
from seq2seq.errors import UserError
from seq2seq.text.tokenizer import BOS, EOS, PAD

logger = logging.getLogger(__name__)
ENDLESS = 1 << 40  # batches: to Lightning, training is one epoch that does not end
LADDER_TOKENS = 16_384  # positions a batch: from here on, batches have few shapes, which a GPU can record
_RUNGS = 8  # widths from one power of two to the next
_ROWS = 8  # a full batch on the ladder has a multiple of so many rows
_AHEAD = 4  # batches that a thread prepares in advance
_FULL = 0.9  # share of the token budget that batches should fill on average

Item = TypeVar("Item")
State = dict[str, int]


class Batch(NamedTuple):
    """Padded sentence pairs; tgt_in and tgt_out are the same targets, shifted by one."""

    src: Int[Tensor, "b s"]  # tokens, EOS, padding
    tgt_in: Int[Tensor, "b t"]  # start (BOS), tokens, padding
    tgt_out: Int[Tensor, "b t"]  # tokens, EOS, padding


class Shape(NamedTuple):
    """A size of both sides of a batch."""

    rows: int
    width: int


def gather(pairs: Pairs, indices: Integer[np.ndarray, " b"], start: int = BOS, shape: Shape | None = None) -> Batch:
    """Make a batch of some of the pairs; start is the decoder's start id.

    shape is the batch's shape; None: as large as the pairs need. Rows without a pair have an empty source, so that
    there is something to attend to, and a target of padding.
    """
    rows, lengths, starts = np.arange(len(indices)), pairs.lengths[indices], pairs.starts[indices]
    shapes = [shape or Shape(len(rows), int(longest) + 1) for longest in lengths.max(axis=0)]
    src = _gather_side(pairs.ids, starts, lengths[:, 0], shapes[0])
    tgt_out = _gather_side(pairs.ids, starts + lengths[:, 0], lengths[:, 1], shapes[1])
    tgt_in = np.roll(tgt_out, 1, axis=1)
    tgt_in[:, 0] = start
    src[rows, lengths[:, 0]] = tgt_out[rows, lengths[:, 1]] = src[len(rows) :, 0] = EOS
    return Batch(*map(torch.as_tensor, (src, tgt_in, tgt_out)))


def _gather_side(
    ids: Integer[np.ndarray, " ids"], starts: Int64[np.ndarray, " b"], lengths: Int32[np.ndarray, " b"], shape: Shape
) -> Int64[np.ndarray, "rows width"]:
    """Return the tokens of one side of each pair in a row, and padding."""
    columns = np.arange(shape.width)
    is_token = columns < lengths[:, None]
    side = np.full(shape, PAD, np.int64)
    side[: len(lengths)][is_token] = ids[(starts[:, None] + columns)[is_token]]
    return side


def collate(pairs: Sequence[tuple[Ids, Ids]], start: int = BOS) -> Batch:
    """Make a batch of (source, target) ids."""
    src, tgt = zip(*pairs, strict=True)
    return gather(Pairs.of(src, tgt), all_indices(len(pairs)), start)


def full_shape(width: int, max_tokens: int) -> Shape:
    """Return the shape of a full batch whose longest side has `width` tokens."""
    if max_tokens < LADDER_TOKENS:
        return Shape(max_tokens // width, width)
    width = int(_rungs(np.array([width]), max_tokens)[0])
    rows = max_tokens // width
    return Shape(rows // _ROWS * _ROWS or rows, width)


def _rungs(widths: Int64[np.ndarray, " n"], max_tokens: int) -> Int64[np.ndarray, " n"]:
    """Return the next widths of the ladder: 2, 4, …, 32, then 36, 40, …, 64, then 72, 80, …, 128, and so on."""
    power = 1 << np.frexp(widths - 1)[1].astype(np.int64) >> 1  # the largest power of two below the width
    steps = np.maximum(2, power // _RUNGS)
    rungs = -(-widths // steps) * steps
    return np.where(rungs > max_tokens, widths, rungs)


@dataclass(frozen=True)
class BatchPlan:
    """The pairs of each batch: batch i holds the pairs `order[start:end]`, where (start, end) is row i of `spans`."""

    order: Integer[np.ndarray, " pairs"]  # numbers of the pairs, sorted by length
    spans: Int64[np.ndarray, "batches 2"]

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, part: slice) -> "BatchPlan":
        """Return the plan of some of the batches."""
        return BatchPlan(self.order, self.spans[part])

    def __iter__(self) -> Iterator[Integer[np.ndarray, " b"]]:
        """Yield the numbers of each batch's pairs."""
        return (self.order[start:end] for start, end in self.spans)


def plan_batches(
    pairs: Pairs, order: Integer[np.ndarray, " pairs"], max_tokens: int, rng: np.random.Generator | None = None
) -> BatchPlan:
    """Sort pairs by length, and cut them into batches of at most max_tokens positions a side, padding included.

    From LADDER_TOKENS positions on, pairs have equal lengths if their longer sides have the same rung of the ladder.
    Pairs of equal lengths stay in the given order. rng, if given, shuffles the batches.
    """
    if not len(order):
        raise UserError("no sentence pair is left to make batches of: look at the table of dropped pairs")
    keys, base = _sort_keys(pairs.lengths, max_tokens)
    keys = keys[order]
    ends = _cut(keys, base, max_tokens)
    spans = np.stack([np.append(0, ends[:-1]), ends], axis=1)
    digits = [(keys >> bits).astype(np.uint16) for bits in range(0, 8 * keys.itemsize, 16)]  # NumPy sorts these fast
    return BatchPlan(order[np.lexsort(digits)], spans if rng is None else spans[rng.permutation(len(spans))])


def plan_block(block: Block, max_tokens: int) -> BatchPlan:
    """Plan the batches of a block: its seed shuffles the pairs, before they are sorted by length, and the batches."""
    rng = np.random.default_rng(block.seed)
    order = all_indices(len(block.pairs)) if block.draws is None else block.draws()
    rng.shuffle(order)
    return plan_batches(block.pairs, order, max_tokens, rng)


def share_plan(folder: Path, decides: object, make: Callable[[], BatchPlan]) -> BatchPlan:
    """Return the plan that one of several processes makes; the others wait for it, and map its file.

    The file's name is a hash of all that decides the plan; older plans but the last one are removed. If the folder
    cannot be used, its disk is full, or its lock is not free in time, each process makes the plan.
    """
    key = hashlib.blake2b(pickle.dumps(decides), digest_size=10).hexdigest()
    plan, (order, spans, draft) = None, (folder / name for name in (f"{key}.npy", f"{key}.spans.npy", "draft"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock", timeout=300):  # seconds; of a killed process it is free
            if not order.exists():
                for path in sorted(folder.glob("*.npy"), key=lambda path: path.stat().st_mtime_ns)[:-2]:
                    path.unlink()  # but the last plan's two files, which another process may not have mapped yet
                plan = make()
                np.save(spans, plan.spans)
                with draft.open("wb") as file:
                    np.save(file, plan.order)
                np.load(draft, mmap_mode="r")  # NumPy does not notice that a disk is full
                draft.rename(order)
            return BatchPlan(np.asarray(np.load(order, mmap_mode="r")), np.load(spans))
    except (OSError, NotImplementedError, ValueError) as error:
        logger.info("%s cannot be used (%s): each process plans its batches", folder, error)
        return plan or make()


def count_batches(pairs: Pairs, max_tokens: int, draws: Integer[np.ndarray, " draws"] | None = None) -> int:
    """Return the exact number of batches of `plan_batches` for these draws, or for all pairs."""
    keys, base = _sort_keys(pairs.lengths, max_tokens)
    return len(_cut(keys if draws is None else keys[draws], base, max_tokens))


def _sort_keys(lengths: Int32[np.ndarray, "n 2"], max_tokens: int) -> tuple[UInt[np.ndarray, " n"], int]:
    """Return each pair's key in the order of lengths, target · base + source, and base; in 2 bytes a pair if possible.

    On the ladder, the key is the longer side's rung, and base is 1.
    """
    src, tgt = lengths.T
    if max_tokens >= LADDER_TOKENS:
        longer = np.maximum(src, tgt)
        rungs = _rungs(np.arange(1, longer.max() + 2, dtype=np.int64), max_tokens) - 1
        return rungs.astype(np.promote_types(np.min_scalar_type(rungs[-1]), np.uint16))[longer], 1
    base = int(src.max()) + 1
    dtype = np.promote_types(np.min_scalar_type((int(tgt.max()) + 1) * base), np.uint16)
    keys = np.multiply(tgt, base, dtype=dtype, casting="unsafe")
    return np.add(keys, src, out=keys, casting="unsafe"), base


def _cut(keys: UInt[np.ndarray, " n"], base: int, max_tokens: int) -> Int64[np.ndarray, " batches"]:
    """Return the ends of the batches of pairs with these keys, sorted; runs of equal keys are cut as a whole."""
    kinds, counts = np.unique(keys, return_counts=True)
    widths = np.maximum(kinds // base, kinds % base).astype(np.int64) + 1  # with BOS or EOS
    ends, start, end, widest = list[int](), 0, 0, 0
    for run, width in zip(np.cumsum(counts).tolist(), widths.tolist(), strict=True):
        require_budget(max_tokens, width)
        while end < run:
            widest = max(widest, width)
            full = start + full_shape(widest, max_tokens).rows
            if full <= end:
                ends.append(end)
                start, widest = end, 0
            else:
                end = min(run, full)
    return np.array([*ends, end], np.int64)


def require_budget(max_tokens: int, width: int) -> None:
    """Check that a batch of max_tokens positions can hold a pair of this width (tokens, special ids included)."""
    if width > max_tokens:
        raise UserError(
            f"training.max_tokens={max_tokens} is less than one sentence pair of {width} tokens: "
            "raise it, or lower data.max_length"
        )


def pad_to_multiple(plan: BatchPlan, multiple: int) -> BatchPlan:
    """Halve batches, the last ones first, until the number of batches is a multiple of `multiple`; keep their order.

    Only the end of an epoch depends on `multiple`, that is, on the number of ranks. The n batches become m, the next
    multiple, and hold n / m as many pairs on average.
    """
    spans = plan.spans
    while missing := -len(spans) % multiple:
        halved = np.flatnonzero(spans[:, 1] - spans[:, 0] > 1)[-missing:]
        if not len(halved):
            raise UserError(f"too few sentence pairs: {len(spans)} single ones for updates of {multiple} batches")
        middles = (spans[halved].sum(axis=1) + 1) // 2
        spans = np.insert(spans, halved, spans[halved], axis=0)
        halved += np.arange(len(halved))  # the first of the two copies
        spans[halved, 1] = spans[halved + 1, 0] = middles
    return BatchPlan(plan.order, spans)


class FixedBatches:
    """Gives the same batches in every iteration, in the order of the plan."""

    def __init__(self, pairs: Pairs, plan: BatchPlan, start: int = BOS) -> None:
        self.pairs, self.plan, self.start = pairs, plan, start

    def __len__(self) -> int:
        return len(self.plan)

    def __iter__(self) -> Iterator[Batch]:
        return (gather(self.pairs, indices, self.start) for indices in self.plan)


class BatchLoader:
    """Gives one rank's training batches, block after block without end; its state is the same for every rank.

    The block's seed shuffles the block's pairs. The pairs are then sorted by length, so that a batch needs little
    padding (pairs of equal lengths stay in the shuffled order), and cut into batches; the batches are shuffled. A block
    is a whole number of updates of `accumulate` batches on every rank. Another number of ranks can resume from a state
    if an update has the same number of batches.

    In the folder plans, processes of the same source share their plans. With pin, a thread prepares batches in
    page-locked memory, from which a GPU copies them while it computes. The state is that of the last batch given out,
    regardless of the batches that are prepared.
    """

    def __init__(
        self,
        source: BlockSource,
        *,
        max_tokens: int,
        start: int = BOS,
        rank: int = 0,
        world_size: int = 1,
        accumulate: int = 1,
        pin: bool = False,
        warn_of_small_blocks: bool = False,
        plans: Path | None = None,
    ) -> None:
        self.source, self.max_tokens, self.start, self.pin = source, max_tokens, start, pin
        self._rank, self._world_size, self._multiple = rank, world_size, world_size * accumulate
        self._is_to_warn, self._plans = warn_of_small_blocks and rank == 0, plans
        self._state: State = {"epoch": 0, "block": 0, "batches": 0}
        self._reader: Generator[Batch, None, None] | None = None

    def __len__(self) -> int:
        """Return `ENDLESS`: the batches do not end."""
        return ENDLESS

    def __iter__(self) -> Iterator[Batch]:
        """Return an iterator over the batches that follow the state, for one reader at a time."""
        self._reader = self._read()
        return self._reader

    def close(self) -> None:
        """End the process that reads ahead, if there is one; remove the plans."""
        if self._reader is not None:
            self._reader.close()
        if self._plans is not None:
            shutil.rmtree(self._plans, ignore_errors=True)

    def _read(self) -> Generator[Batch, None, None]:
        batches = self._batches(**self._state)
        with contextlib.closing(_ahead(self._pinned(batches)) if self.pin else batches) as with_states:
            for batch, state in with_states:
                self._state = state  # before the yield: a checkpoint that is saved during this batch counts the batch
                yield batch

    def _batches(self, epoch: int, block: int, batches: int) -> Generator[tuple[Batch, State], None, None]:
        """Yield batches, each with the state after it, from a block on, after the batches that all ranks have used."""
        with contextlib.closing(self.source(BlockId(epoch, block))) as blocks:
            for current in blocks:
                for indices in self._plan(current)[batches + self._rank :: self._world_size]:
                    batches += self._world_size
                    batch = gather(current.pairs, indices, self.start, self._shape(current.pairs.lengths[indices]))
                    yield batch, {"epoch": current.id.epoch, "block": current.id.number, "batches": batches}
                batches = 0

    def _shape(self, lengths: Int32[np.ndarray, "b 2"]) -> Shape | None:
        """Return the shape of a batch of pairs with these lengths; None: as large as the pairs need."""
        return full_shape(int(lengths.max()) + 1, self.max_tokens) if self.max_tokens >= LADDER_TOKENS else None

    def _plan(self, block: Block) -> BatchPlan:
        """Plan the batches of all ranks for a block."""
        make = partial(plan_block, block, self.max_tokens)
        decides = (self.source, block.id, self.max_tokens)
        plan = make() if self._plans is None else share_plan(self._plans, decides, make)
        self._warn_of_small_block(len(plan), len(plan.order))
        return pad_to_multiple(plan, self._multiple)

    @staticmethod
    def _pinned(batches: Generator[tuple[Batch, State], None, None]) -> Generator[tuple[Batch, State], None, None]:
        with contextlib.closing(batches):
            for batch, state in batches:
                yield Batch(*(side.pin_memory() for side in batch)), state

    def _warn_of_small_block(self, batches: int, pairs: int) -> None:
        """Warn at the first block if `pad_to_multiple` makes its batches too small: the block has few batches."""
        full = batches / (batches + -batches % self._multiple)
        if self._is_to_warn and full < _FULL:
            logger.warning(
                "a block of %s pairs makes %d batches of training.max_tokens=%d, and every update takes %d: they are "
                "cut to %.0f %% of that on average; data.block=%d, if there is as much text, makes it at least 90 %%",
                *(f"{pairs:,}", batches, self.max_tokens, self._multiple, 100 * full),
                10 * self._multiple * pairs // batches,
            )
        self._is_to_warn = False

    def state_dict(self) -> State:
        """Return the state of all ranks together: an epoch, a block in it, and the used batches of the block."""
        return self._state

    def load_state_dict(self, state: State) -> None:
        """Resume from a state."""
        self._state = state


def _ahead(items: Generator[Item, None, None]) -> Generator[Item, None, None]:
    """Yield endless items, which a thread takes from the generator a few items ahead of the caller."""
    pool = ThreadPoolExecutor(1, "batches")
    waiting = deque(pool.submit(next, items) for _ in range(_AHEAD))
    try:
        while True:
            item = waiting.popleft().result()
            waiting.append(pool.submit(next, items))
            yield item
    finally:
        pool.shutdown(cancel_futures=True)
        items.close()
