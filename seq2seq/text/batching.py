"""Batches of similar lengths within a token budget, in a seeded order that resumes anywhere."""

import contextlib
import logging
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.text.dataset import Pairs
from seq2seq.text.epochs import BlockSource, Place
from seq2seq.text.tokenizer import BOS, EOS, PAD

logger = logging.getLogger(__name__)
ENDLESS = 1 << 40  # batches: to Lightning, training is one epoch that does not end
_AHEAD = 4  # batches
_FULL = 0.9  # of the token budget, on average

Item = TypeVar("Item")
State = dict[str, Any]  # plain values


class Batch(NamedTuple):
    """Padded sentence pairs; the target twice, shifted by one."""

    src: Int[Tensor, "b s"]  # tokens, EOS, padding
    tgt_in: Int[Tensor, "b t"]  # start (BOS), tokens, padding
    tgt_out: Int[Tensor, "b t"]  # tokens, EOS, padding


def pad(rows: Sequence[np.ndarray], first: int | None, last: int | None) -> Int[Tensor, "b t"]:
    """Pad rows of token ids to one matrix, with a special id before and after each row if given."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    start = int(first is not None)
    out = np.full((len(rows), int(lengths.max()) + start + (last is not None)), PAD, dtype=np.int64)
    columns = np.arange(out.shape[1] - start)
    out[:, start:][columns < lengths[:, None]] = np.concatenate(rows)
    if last is not None:
        out[np.arange(len(rows)), lengths + start] = last
    if first is not None:
        out[:, 0] = first
    return torch.from_numpy(out)


def collate(pairs: Sequence[tuple[np.ndarray, np.ndarray]], start: int = BOS) -> Batch:
    """Make a batch of (source, target) ids; start is the id that every target continues."""
    src, tgt = zip(*pairs, strict=True)
    return Batch(pad(src, None, EOS), pad(tgt, start, None), pad(tgt, None, EOS))


def pack(src_lengths: np.ndarray, tgt_lengths: np.ndarray, order: np.ndarray, max_tokens: int) -> list[np.ndarray]:
    """Cut an order of sentence pairs into batches of at most max_tokens positions a side, padding included.

    Lengths are in tokens, special ids included.

    Raises:
        UserError: one pair alone is longer than max_tokens.
    """
    batches, start, widest = [], 0, 0
    widths = np.maximum(src_lengths, tgt_lengths)[order]
    for end, width in enumerate(widths.tolist()):
        widest = max(widest, width)
        if widest * (end + 1 - start) > max_tokens:
            batches.append(order[start:end])
            start, widest = end, width
        if width > max_tokens:
            raise UserError(
                f"training.max_tokens={max_tokens} is less than one sentence pair of {width} tokens: "
                "raise it, or lower data.max_length"
            )
    batches.append(order[start:])
    return batches


def even_out(batches: list[np.ndarray], multiple: int) -> list[np.ndarray]:
    """Halve the last batches that can be halved until their number is a multiple; no pair is lost, no order changed.

    So all but the end of an epoch is the same for every multiple, that is, for every number of ranks. The n batches
    become m, the next multiple, and hold n / m as much on average.

    Raises:
        UserError: there are too few sentence pairs for that.
    """
    head, tail = list(batches), []
    for _ in range(-len(batches) % multiple):
        while head and len(head[-1]) < 2:
            tail.insert(0, head.pop())
        if not head:
            if max(map(len, tail)) < 2:
                raise UserError(f"too few sentence pairs: {len(tail)} single ones for updates of {multiple} batches")
            head, tail = tail, []
            while len(head[-1]) < 2:
                tail.insert(0, head.pop())
        last = head.pop()
        tail[:0] = [last[::2], last[1::2]]
    return head + tail


def plan_batches(
    pairs: Pairs, order: np.ndarray, max_tokens: int, rng: np.random.Generator | None = None
) -> list[np.ndarray]:
    """Make batches of pairs by length; the order decides among equal lengths, and rng, if given, shuffles the batches.

    Raises:
        UserError: there is no pair, or one pair alone is longer than max_tokens.
    """
    if len(order) == 0:
        raise UserError("no sentence pair is left to make batches of: look at the table of dropped pairs")
    src_lengths, tgt_lengths = pairs.src_lengths + 1, pairs.tgt_lengths + 1
    order = order[np.lexsort((src_lengths[order], tgt_lengths[order]))]
    batches = pack(src_lengths, tgt_lengths, order, max_tokens)
    return batches if rng is None else [batches[i] for i in rng.permutation(len(batches))]


class FixedBatches:
    """Gives the same batches again and again, in the order of their plan."""

    def __init__(self, pairs: Pairs, plan: list[np.ndarray], start: int = BOS) -> None:
        """Take the pairs, the numbers of each batch's, and the id that every target continues."""
        self.pairs, self.plan, self.start = pairs, plan, start

    def __len__(self) -> int:
        return len(self.plan)

    def __iter__(self) -> Iterator[Batch]:
        return (collate([self.pairs[index] for index in indices], self.start) for indices in self.plan)


class BatchLoader:
    """Gives one rank's training batches, block after block without end; its state is the same for every rank.

    Each block's pairs are drawn in an order by the block's seed and sorted by length, so that a batch needs little
    padding (equal lengths stay in the drawn order); they are cut into batches, and the batches are shuffled. A block is
    a whole number of updates of `accumulate` batches on every rank. Another number of ranks can go on from a state,
    with as many batches an update.

    With pin, a thread makes batches ready in page-locked memory, from which a GPU fetches them while it computes. The
    state is that of the last batch given out, however many are ready.
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
    ) -> None:
        self.source, self.max_tokens, self.start, self.pin = source, max_tokens, start, pin
        self._rank, self._world_size, self._multiple = rank, world_size, world_size * accumulate
        self._is_to_warn = warn_of_small_blocks and rank == 0
        self._state: State = {"place": {}, "batches": 0}

    def __len__(self) -> int:
        """Count batches: there is no end."""
        return ENDLESS

    def __iter__(self) -> Iterator[Batch]:
        """Go on from the state.

        Raises:
            UserError: the text cannot be read, or does not fit max_tokens or the number of ranks.
        """
        batches = self._batches(self._state["place"], self._state["batches"])
        with contextlib.closing(_ahead(self._pinned(batches)) if self.pin else batches) as given:
            for batch, state in given:
                self._state = state  # before the yield: a checkpoint that is taken while it is in use counts it
                yield batch

    def _batches(self, place: Place, used: int) -> Generator[tuple[Batch, State], None, None]:
        """Make batches from a block's place on, of which all ranks together have used a number of batches."""
        with contextlib.closing(self.source(place)) as blocks:
            for block in blocks:
                rng = np.random.default_rng(block.seed)
                draws = np.arange(len(block.pairs)) if block.draws is None else block.draws
                plan = plan_batches(block.pairs, rng.permutation(draws), self.max_tokens, rng)
                self._warn_of_small_block(len(plan), len(draws))
                for indices in even_out(plan, self._multiple)[used + self._rank :: self._world_size]:
                    used += self._world_size
                    batch = collate([block.pairs[index] for index in indices], self.start)
                    yield batch, {"place": place, "batches": used}
                if self._rank == 0:
                    for line in block.told:
                        logger.info("%s", line)
                place, used = block.after, 0

    @staticmethod
    def _pinned(batches: Generator[tuple[Batch, State], None, None]) -> Generator[tuple[Batch, State], None, None]:
        with contextlib.closing(batches):
            for batch, state in batches:
                yield Batch(*(side.pin_memory() for side in batch)), state

    def _warn_of_small_block(self, batches: int, pairs: int) -> None:
        """Warn, once, if equal counts for all ranks cost much because a block has too few batches an update."""
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
        """Return where all ranks together are, as plain values: the block's place, and the batches used of it."""
        return self._state

    def load_state_dict(self, state: State) -> None:
        """Go on from there; version 0.1 kept the number of the epoch where a place is now."""
        place = state["place"] if "place" in state else {"epoch": state["epoch"]}
        self._state = {"place": place, "batches": state["batches"]}


def _ahead(items: Generator[Item, None, None]) -> Generator[Item, None, None]:
    """Let a thread go through endless items, a few ahead of the caller."""
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
