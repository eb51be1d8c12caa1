"""Epochs of prepared text: every pair once, or shares of corpora by weights or temperature; cut into blocks.

If the settings ask for it, pairs get other ids in each epoch: unusual forms, and sampled subwords.

This module and its imports load no PyTorch, because the process that reads blocks ahead of training does not need it.
"""

import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, count, starmap
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer
from rich import box
from rich.table import Table

from seq2seq.data.corpus import naming_keys
from seq2seq.data.dataset import Pairs
from seq2seq.data.modifiers import Modifiers
from seq2seq.data.processes import Processes
from seq2seq.errors import UserError
from seq2seq.settings.training import ModifiersConfig, SubwordSamplingConfig
from seq2seq.text.tokenizer import UNK, Tokenizer
from seq2seq.text.vocabulary import Tokenizers

_PART = 2000  # texts split into subwords at a time, so that other threads do not wait long
Ids = list[list[int]]


class BlockId(NamedTuple):
    """Names a block of the training text; both numbers count from 0."""

    epoch: int
    number: int  # in the epoch


class Block(NamedTuple):
    """Pairs that are shuffled and batched together."""

    id: BlockId
    pairs: Pairs
    seed: list[int]  # of the order of pairs and batches
    draws: Callable[[], Integer[np.ndarray, " draws"]] | None = None  # numbers of the pairs to train on; None: each


BlockSource = Callable[[BlockId], Generator[Block, None, None]]  # blocks without end, from one on; can be pickled


def all_indices(count: int) -> Integer[np.ndarray, " n"]:
    """Return the numbers of so many pairs, in 4 bytes each if possible."""
    return np.arange(count, dtype=np.int32 if count < 2**31 else np.int64)


@dataclass(frozen=True)
class Encoder:
    """Gives pairs new ids, by modifiers and random splits; the same seed gives the same ids.

    A pair keeps its ids if it has an unknown token, or if randomness makes a side empty or longer than max_length. The
    texts are decoded from the ids, without loss, since a tokenizer with byte fallback has every byte.
    """

    tokenizer: Tokenizers
    max_length: int  # tokens a side
    sampling: SubwordSamplingConfig
    modifiers: ModifiersConfig
    languages: tuple[str, str]  # codes of source and target

    def encode(self, src: Ids, tgt: Ids, seed: Sequence[int]) -> tuple[Ids, Ids]:
        """Return this epoch's ids of all sources and targets, from their plain ids."""
        seeds = np.random.SeedSequence(seed).generate_state(3).tolist()
        rng, share, is_sampled = random.Random(seeds[0]), self.modifiers.share, self.sampling.alpha > 0
        drawn = [rng.random() < share for _ in src] if share else [False] * len(src)
        rows = [i for i, is_drawn in enumerate(drawn) if (is_drawn or is_sampled) and UNK not in chain(src[i], tgt[i])]
        sides = self.tokenizer.source, self.tokenizer.target
        decoded = (side.decode([ids[i] for i in rows]) for side, ids in zip(sides, (src, tgt), strict=True))
        texts = list(zip(*decoded, strict=True))
        changed = [
            self._modifiers.modify(pair, rng.choice(texts), rng) if drawn[i] else pair
            for i, pair in zip(rows, texts, strict=True)
        ]
        if (masker := self.tokenizer.masker) is not None:  # strings that a modifier inserted
            changed = list(starmap(masker.mask_pair, changed))
        new = (self._split(sides[n], [pair[n] for pair in changed], seeds[n + 1]) for n in (0, 1))
        result = list(src), list(tgt)
        for i, *pair in zip(rows, *new, strict=True):
            if all(0 < len(ids) <= self.max_length for ids in pair):
                result[0][i], result[1][i] = pair
        return result

    @cached_property
    def _modifiers(self) -> Modifiers:
        return Modifiers(self.modifiers, self.languages, self.tokenizer)

    def _split(self, side: Tokenizer, texts: Sequence[str], seed: int) -> Ids:
        parts = [texts[start : start + _PART] for start in range(0, len(texts), _PART)]
        if self.sampling.alpha == 0:
            rows = map(side.encode_normalised, parts)
        else:
            seeds = np.random.SeedSequence(seed).generate_state(len(parts)).tolist()
            rows = (
                side.sample(part, alpha=self.sampling.alpha, seed=seed_of_part)
                for part, seed_of_part in zip(parts, seeds, strict=True)
            )
        return list(chain.from_iterable(rows))


@dataclass(frozen=True)
class PreparedEpochs:
    """Prepared pairs as blocks, an epoch each; with an encoder, blocks of about `size` pairs with new ids.

    So many readers, which are separate processes, encode blocks ahead of training; 0: this process encodes them.
    """

    pairs: Pairs
    seed: int
    mixture: "Mixture | None" = None
    encoder: Encoder | None = None
    size: int = 0
    readers: int = 0

    def __call__(self, first: BlockId) -> Generator[Block, None, None]:
        """Yield blocks from the first on; every epoch has each pair once, or as often as the mixture draws the pair."""
        if self.encoder is None:
            for epoch in count(first.epoch):
                yield Block(BlockId(epoch, 0), self.pairs, [self.seed, epoch], self._draws(epoch))
        advice = "resume=runs/NAME goes on from the last checkpoint; a new run may lower data.block or data.num_proc"
        with Processes(self.readers, partial(_begin_to_read, self), advice=advice) as processes:
            yield from processes.map(_read if processes.size else self.encode, self._parts(first))

    def _draws(self, epoch: int) -> Callable[[], Integer[np.ndarray, " draws"]] | None:
        return None if self.mixture is None else partial(self.mixture.draw, epoch)

    def _parts(self, first: BlockId) -> Iterator[tuple[BlockId, Integer[np.ndarray, " n"]]]:
        """Yield the numbers of each block's pairs, from the first block on."""
        for epoch in count(first.epoch):
            draws = self._draws(epoch)
            order = all_indices(len(self.pairs)) if draws is None else draws()
            np.random.default_rng([self.seed, epoch]).shuffle(order)  # the same order as without blocks
            parts = np.array_split(order, max(1, round(len(order) / self.size)))
            for number in range(first.number if epoch == first.epoch else 0, len(parts)):
                yield BlockId(epoch, number), parts[number]

    def encode(self, part: tuple[BlockId, Integer[np.ndarray, " n"]]) -> Block:
        """Return a block of these pairs with new ids."""
        assert self.encoder is not None
        block, indices = part
        seed = [self.seed, *block]
        plain = [tuple(ids.tolist() for ids in self.pairs[int(index)]) for index in indices]
        src, tgt = self.encoder.encode([src for src, _ in plain], [tgt for _, tgt in plain], seed)
        return Block(block, Pairs.of(src, tgt, self.pairs.ids.dtype), seed)


_source: PreparedEpochs  # in a reading process


def _begin_to_read(source: PreparedEpochs) -> None:
    global _source
    _source = source


def _read(part: tuple[BlockId, Integer[np.ndarray, " n"]]) -> Block:
    return _source.encode(part)


def weighted_shares(
    names: Sequence[str], sizes: Sequence[int], weights: Mapping[str, float | int]
) -> Float[np.ndarray, " corpora"]:
    """Return each corpus's share of the draws, in proportion to its weight.

    A corpus has the weight of the first key that names the corpus. A corpus that no key names weighs its size (pairs).
    """
    keys = naming_keys("data.weights", weights, names)
    values = np.array(
        [size if key is None else weights[key] for key, size in zip(keys, sizes, strict=True)], np.float64
    )
    if not values.any():
        raise UserError("data.weights is 0 for every corpus: nothing would be drawn")
    return values / values.sum()


def tempered_shares(sizes: Sequence[int], temperature: float) -> Float[np.ndarray, " corpora"]:
    """Return each corpus's share of the draws, (n_i / N)^(1/T) normalised (Arivazhagan et al. 2019, §4.2).

    n_i is the size of corpus i in pairs. T = 1 keeps the proportions of the sizes; a higher T makes shares more equal.
    """
    powers = (np.array(sizes, dtype=np.float64) / max(sizes)) ** (1 / temperature)  # at most 1, whatever T is
    powers[np.array(sizes) == 0] = 0
    return powers / powers.sum()


class Mixture:
    """Draws about as many pairs an epoch as there are, from each corpus by its share.

    Every pass over a corpus has a new shuffled order, and an epoch continues where the last epoch stopped: no pair is
    drawn a second time before all other pairs of its corpus were drawn.
    """

    def __init__(self, sizes: Sequence[int], shares: Float[np.ndarray, " corpora"], seed: int) -> None:
        """Store the sizes (pairs) and shares of corpora whose pairs follow each other."""
        self.sizes, self.seed = list(sizes), seed
        self.shares = np.where(np.array(sizes) > 0, shares, 0.0)
        if not self.shares.any():
            raise UserError("data.weights is 0 for every corpus that has a pair left: nothing would be drawn")
        self.shares /= self.shares.sum()

    def counts(self, epoch: int) -> list[int]:
        """Return how many pairs of each corpus an epoch draws."""
        return [len(self._range(share, epoch)) for share in self.shares.tolist()]

    def draw(self, epoch: int) -> Integer[np.ndarray, " draws"]:
        """Return the numbers of an epoch's pairs, corpus after corpus."""
        indices, starts = all_indices(sum(self.sizes)), np.cumsum([0, *self.sizes])
        parts = [
            part
            for number, share in enumerate(self.shares.tolist())
            for part in self._take(indices[starts[number] : starts[number + 1]], number, self._range(share, epoch))
        ]
        return np.concatenate(parts)

    def is_drawn(self) -> Bool[np.ndarray, " pairs"]:
        """Return for each pair whether some epoch draws it."""
        return np.repeat(self.shares > 0, self.sizes)

    def _range(self, share: float, epoch: int) -> range:
        """Return this epoch's draws from a corpus, numbered from the first epoch on; rounding errors never add up."""
        total = sum(self.sizes)
        return range(round(epoch * total * share), round((epoch + 1) * total * share))

    def _take(
        self, indices: Integer[np.ndarray, " pairs"], number: int, draws: range
    ) -> Iterator[Integer[np.ndarray, " draws"]]:
        """Yield the pairs of a corpus that these draws are, one pass over the corpus after the other."""
        size = len(indices)
        for turn in range(draws.start // size, -(-draws.stop // size)) if draws else ():
            order = np.random.default_rng([self.seed, number, turn]).permutation(indices)
            yield order[max(draws.start - turn * size, 0) : draws.stop - turn * size]

    def table(self, names: Sequence[str]) -> Table:
        """Return a table of the pairs that the first epoch draws from each corpus."""
        table = Table(title="Mixture of an epoch", box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
        table.add_column("corpus", overflow="fold")
        for column in ("pairs", "drawn", "share", "times"):
            table.add_column(column, justify="right", no_wrap=True)
        counts = self.counts(0)
        for name, size, drawn in zip(names, self.sizes, counts, strict=True):
            times = f"{drawn / size:.2f}" if size else "–"
            table.add_row(name, f"{size:,}", f"{drawn:,}", f"{drawn / max(sum(counts), 1):.1%}", times)
        return table
