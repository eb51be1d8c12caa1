"""Batches of similar lengths within a token budget, in a seeded order that resumes anywhere. Knows no files."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.text.vocab import BOS, EOS, PAD


class Batch(NamedTuple):
    """Padded sentence pairs; the target twice, shifted by one."""

    src: Int[Tensor, "b s"]  # tokens, EOS, padding
    tgt_in: Int[Tensor, "b t"]  # BOS, tokens, padding
    tgt_out: Int[Tensor, "b t"]  # tokens, EOS, padding


@runtime_checkable
class TokenPairs(Protocol):
    """Tokenised sentence pairs, without special ids."""

    @property
    def src_lengths(self) -> np.ndarray:
        """Tokens of each source."""
        ...

    @property
    def tgt_lengths(self) -> np.ndarray:
        """Tokens of each target."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]: ...


def pad(rows: Sequence[np.ndarray], first: int | None, last: int | None) -> Int[Tensor, "b t"]:
    """Token ids of different lengths as one matrix, with a special id before and after each row if given."""
    extra = (first is not None) + (last is not None)
    out = np.full((len(rows), max(len(row) for row in rows) + extra), PAD, dtype=np.int64)
    start = int(first is not None)
    for line, row in zip(out, rows, strict=True):
        line[start : start + len(row)] = row
        if last is not None:
            line[start + len(row)] = last
    if first is not None:
        out[:, 0] = first
    return torch.from_numpy(out)


def collate(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> Batch:
    """One batch of the given (source, target) ids."""
    src, tgt = zip(*pairs, strict=True)
    return Batch(pad(src, None, EOS), pad(tgt, BOS, None), pad(tgt, None, EOS))


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
    """Halve the largest batches until their number is a multiple; no pair is lost.

    Raises:
        UserError: there are too few sentence pairs for that.
    """
    batches = sorted(batches, key=len)
    while len(batches) % multiple:
        largest = batches.pop()
        if len(largest) < 2:
            raise UserError(f"too few sentence pairs: {len(batches) + 1} single ones for updates of {multiple} batches")
        batches += [largest[::2], largest[1::2]]
        batches.sort(key=len)
    return batches


class BatchLoader:
    """Iterates over one epoch's batches; its state is two integers and the same for every rank.

    Each epoch draws a permutation from (seed, epoch), sorts it by length so that a batch needs little padding (equal
    lengths stay in the drawn order), cuts it into batches and shuffles those. Every pair is visited exactly once an
    epoch, and an epoch is a whole number of updates of `accumulate` batches on every rank. With shuffle=False batches
    come in order of length.
    """

    def __init__(
        self,
        pairs: TokenPairs,
        *,
        max_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world_size: int = 1,
        accumulate: int = 1,
    ) -> None:
        if len(pairs) == 0:
            raise UserError("no sentence pair is left to make batches of: look at the table of dropped pairs")
        self.pairs, self.max_tokens, self.seed, self.shuffle = pairs, max_tokens, seed, shuffle
        self.rank, self.world_size, self.accumulate = rank, world_size, accumulate
        self.epoch, self.position = 0, 0  # batches already given, on each rank
        self._length = len(self.plan(0)) // world_size  # the same in every epoch: it depends on lengths alone

    def plan(self, epoch: int) -> list[np.ndarray]:
        """All ranks' batches of an epoch, as indices of pairs; rank r takes every world_size-th from r on."""
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(len(self.pairs)) if self.shuffle else np.arange(len(self.pairs))
        src_lengths, tgt_lengths = self.pairs.src_lengths + 1, self.pairs.tgt_lengths + 1
        order = order[np.lexsort((src_lengths[order], tgt_lengths[order]))]
        batches = pack(src_lengths, tgt_lengths, order, self.max_tokens)
        batches = even_out(batches, self.world_size * self.accumulate)
        if self.shuffle:
            batches = [batches[i] for i in rng.permutation(len(batches))]
        return batches

    def __len__(self) -> int:
        """Batches an epoch on each rank."""
        return self._length

    def __iter__(self) -> Iterator[Batch]:
        """Go on from the current position to the end of the epoch, or begin the next one if there is none left."""
        if self.position >= len(self):
            self.epoch, self.position = self.epoch + 1, 0
        mine = self.plan(self.epoch)[self.rank :: self.world_size]
        while self.position < len(mine):
            batch = collate([self.pairs[int(index)] for index in mine[self.position]])
            self.position += 1  # before the yield: a checkpoint taken while it is in use counts it as given
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Where all ranks together stand, as plain integers: another number of ranks can go on from there."""
        return {"epoch": self.epoch, "batches": self.position * self.world_size}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Stand there again."""
        self.epoch, self.position = state["epoch"], state["batches"] // self.world_size
