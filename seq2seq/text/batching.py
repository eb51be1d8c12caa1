"""Batches of similar lengths within a token budget, in a seeded order that resumes anywhere. Knows no files."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.text.mixing import Mixture
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
    pairs: TokenPairs, order: np.ndarray, max_tokens: int, rng: np.random.Generator | None
) -> list[np.ndarray]:
    """Make batches of pairs in the given order, which decides among equal lengths; rng, if given, shuffles them.

    Raises:
        UserError: one pair alone is longer than max_tokens.
    """
    src_lengths, tgt_lengths = pairs.src_lengths + 1, pairs.tgt_lengths + 1
    order = order[np.lexsort((src_lengths[order], tgt_lengths[order]))]
    batches = pack(src_lengths, tgt_lengths, order, max_tokens)
    return batches if rng is None else [batches[i] for i in rng.permutation(len(batches))]


class Share:
    """Which batches of a plan belong to which rank, and how many all ranks together have used: one integer.

    Another number of ranks can go on from there, with as many batches an update as before.
    """

    def __init__(self, rank: int, world_size: int, accumulate: int) -> None:
        self.rank, self.world_size, self.multiple = rank, world_size, world_size * accumulate
        self.batches = 0

    def of(self, batches: list[np.ndarray]) -> list[np.ndarray]:
        """Give this rank's batches of a plan that it has not used; every rank has equally many.

        Raises:
            UserError: there are too few sentence pairs for equal counts.
        """
        return even_out(batches, self.multiple)[self.batches + self.rank :: self.world_size]

    def advance(self) -> None:
        """Count one batch on every rank."""
        self.batches += self.world_size


class BatchLoader:
    """Iterates over one epoch's batches; its state is two integers and the same for every rank.

    Each epoch draws a permutation from (seed, epoch), sorts it by length so that a batch needs little padding (equal
    lengths stay in the drawn order), cuts it into batches and shuffles those. Every pair is visited exactly once an
    epoch, or as often as a mixture says, and an epoch is a whole number of updates of `accumulate` batches on every
    rank. With shuffle=False batches come in order of length.
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
        mixture: Mixture | None = None,
    ) -> None:
        if len(pairs) == 0:
            raise UserError("no sentence pair is left to make batches of: look at the table of dropped pairs")
        self.pairs, self.max_tokens, self.seed, self.shuffle = pairs, max_tokens, seed, shuffle
        self.mixture = mixture
        self.epoch, self._share = 0, Share(rank, world_size, accumulate)
        self._length = len(self.plan(0)) // world_size

    def plan(self, epoch: int) -> list[np.ndarray]:
        """All ranks' batches of an epoch, as indices of pairs; rank r takes every world_size-th from r on."""
        return even_out(self._draw(epoch), self._share.multiple)

    def _draw(self, epoch: int) -> list[np.ndarray]:
        if not self.shuffle:
            return plan_batches(self.pairs, np.arange(len(self.pairs)), self.max_tokens, None)
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(len(self.pairs)) if self.mixture is None else self.mixture.draw(epoch, rng)
        return plan_batches(self.pairs, order, self.max_tokens, rng)

    def __len__(self) -> int:
        """Batches of the first epoch on each rank; without a mixture, of every epoch."""
        return self._length

    def __iter__(self) -> Iterator[Batch]:
        """Go on from the current position to the end of the epoch, or begin the next one if there is none left."""
        mine = self._share.of(self._draw(self.epoch))
        if not mine:
            self.epoch, self._share.batches = self.epoch + 1, 0
            mine = self._share.of(self._draw(self.epoch))
        for indices in mine:
            batch = collate([self.pairs[int(index)] for index in indices])
            self._share.advance()  # before the yield: a checkpoint taken while it is in use counts it as given
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Where all ranks together stand, as plain integers: another number of ranks can go on from there."""
        return {"epoch": self.epoch, "batches": self._share.batches}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Stand there again."""
        self.epoch, self._share.batches = state["epoch"], state["batches"]
