"""Training text in blocks of some ten thousand pairs, tokenised when they are read; knows no batches, loads no PyTorch.

Where a block begins is its place: plain integers from which the very same block can be read again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from seq2seq.text.augment import Encoder, TokenBlock
from seq2seq.text.mixing import Mixture
from seq2seq.text.vocab import UNK

Place = dict[str, Any]  # plain values


@runtime_checkable
class IdPairs(Protocol):
    """Tokenised sentence pairs, without special ids."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]: ...


class Block(NamedTuple):
    """Pairs that are shuffled and batched together."""

    pairs: TokenBlock
    seed: list[int]  # of the order of pairs and batches
    after: Place  # where the next block begins
    told: list[str]  # what to log when it is used


@runtime_checkable
class BlockSource(Protocol):
    """Whatever training text comes from in blocks, without end; can be sent to another process."""

    def start(self) -> Place:
        """Tell where the first block begins."""
        ...

    def blocks(self, place: Place) -> Iterator[Block]:
        """Read blocks from a place on."""
        ...


@dataclass(frozen=True)
class PreparedBlocks:
    """Prepared pairs, back to text and to other ids each time: an epoch's order is drawn, then cut into blocks.

    Ids become text and text ids again without loss, since the tokenizer knows every byte; a pair with an unknown
    token, of a tokenizer without byte fallback, stays as it is.
    """

    pairs: IdPairs
    encoder: Encoder
    size: int  # pairs a block, about
    seed: int
    mixture: Mixture | None = None

    def start(self) -> Place:
        """Tell where the first block begins."""
        return {"epoch": 0, "block": 0}

    def blocks(self, place: Place) -> Iterator[Block]:
        """Read blocks from a place on; every epoch has each pair once, or as the mixture says.

        The order of an epoch is the same as without blocks.
        """
        epoch, first = place["epoch"], place["block"]
        while True:
            rng = np.random.default_rng([self.seed, epoch])
            order = rng.permutation(len(self.pairs)) if self.mixture is None else self.mixture.draw(epoch, rng)
            parts = np.array_split(order, max(1, round(len(order) / self.size)))
            for number in range(first, len(parts)):
                is_last = number + 1 == len(parts)
                after = {"epoch": epoch + is_last, "block": 0 if is_last else number + 1}
                seed = [self.seed, epoch, number]
                yield Block(self._encode(parts[number], seed), seed, after, [])
            epoch, first = epoch + 1, 0

    def _encode(self, indices: np.ndarray, seed: list[int]) -> TokenBlock:
        plain = [tuple(ids.tolist() for ids in self.pairs[int(index)]) for index in indices]
        src_texts, tgt_texts = (self.encoder.tokenizer.decode([pair[side] for pair in plain]) for side in (0, 1))
        src, tgt = self.encoder.encode(src_texts, tgt_texts, seed)
        for i, pair in enumerate(plain):
            if UNK in pair[0] or UNK in pair[1]:
                src[i], tgt[i] = pair
        return TokenBlock(src, tgt)
