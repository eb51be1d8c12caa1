"""Learns from pairs of ids which target ids a source id needs: IBM Model 1 (Brown et al. 1993, section 4.1)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int32, Int64

from seq2seq.data.dataset import Pairs
from seq2seq.errors import UserError
from seq2seq.search.shortlist import Shortlist
from seq2seq.text.tokenizer import PAD, SPECIAL_IDS
from seq2seq.text.vocabulary import Tokenizers

NO_SOURCE = PAD  # the source id of target tokens without a counterpart (the null word)
_ROUNDS = 4  # of expectation maximisation: later ones change little
_BLOCK = 2_000_000  # co-occurrences counted at once
_MOST = 60_000_000  # largest number of co-occurrences: about 600,000 pairs, at most two gigabytes and a minute


@dataclass(frozen=True)
class _Block:
    """The co-occurrences in some pairs, target token by target token."""

    kinds: Int32[np.ndarray, " c"]  # the number of each co-occurrence's kind, which is a source id and a target id
    starts: Int64[np.ndarray, " t"]  # where the co-occurrences of each target token begin


def learn_shortlist(pairs: Pairs, tokenizer: Tokenizers, *, best: int, frequent: int) -> Shortlist:
    """Return a shortlist: for every source id, the `best` target ids that Model 1 translates it into most often.

    Only every second, third, … pair of a large corpus is read. Every text may use the special ids, the most frequent
    target ids (so many as `frequent` says), and the byte ids that occur in targets.
    """
    if not tokenizer.is_shared:
        raise UserError("this model has a vocabulary for each side: a shortlist is for models with one for both")
    size = tokenizer.target.vocab_size
    kinds, blocks = _blocks(pairs, size)
    frequency = _target_frequency(kinds, blocks, size)
    by_frequency = np.argsort(-frequency, kind="stable").astype(np.int32)
    bytes_ = [token for token in tokenizer.target.byte_ids if frequency[token]]
    always = np.array(sorted({*SPECIAL_IDS, *bytes_, *by_frequency[:frequent].tolist()}), np.int32)
    expected = _expected_counts(kinds // size, blocks)
    source, target = _best(kinds, expected, size, best)
    offsets = np.searchsorted(source, np.arange(size + 1))
    return Shortlist(offsets, target.astype(np.int32), always, by_frequency, tokenizer.digest)


def _blocks(pairs: Pairs, size: int) -> tuple[Int64[np.ndarray, " k"], list[_Block]]:
    """Return all kinds of co-occurrence, as source id · size + target id in rising order, and all co-occurrences."""
    counted: list[tuple[np.ndarray, _Block]] = []
    for keys, starts in _cooccurrences(pairs, size):
        of_block, numbers = np.unique(keys, return_inverse=True)
        counted.append((of_block, _Block(numbers.astype(np.int32), starts)))
    kinds = np.unique(np.concatenate([np.empty(0, np.int64), *(of_block for of_block, _ in counted)]))
    blocks = [
        _Block(np.searchsorted(kinds, of_block).astype(np.int32)[block.kinds], block.starts)
        for of_block, block in counted
    ]
    return kinds, blocks


def _target_frequency(kinds: Int64[np.ndarray, " k"], blocks: list[_Block], size: int) -> Float[np.ndarray, " v"]:
    """Return how often each id is a target token: each target token co-occurs with `NO_SOURCE` once."""
    counts = np.zeros(len(kinds))
    for block in blocks:
        counts += np.bincount(block.kinds, minlength=len(kinds))
    has_none, frequency = kinds // size == NO_SOURCE, np.zeros(size)
    frequency[kinds[has_none] % size] = counts[has_none]
    return frequency


def _cooccurrences(pairs: Pairs, size: int) -> Iterator[tuple[Int64[np.ndarray, " c"], Int64[np.ndarray, " t"]]]:
    """Yield, for some pairs at a time, all co-occurrences and the position of each target token's first co-occurrence.

    A target token co-occurs with each token of its source and with `NO_SOURCE`. A co-occurrence is the number source
    id · size + target id; co-occurrences are in the order of target tokens.
    """
    lengths = pairs.lengths.astype(np.int64)
    lengths[:, 0] += 1  # NO_SOURCE
    each = lengths.prod(1)
    chosen = np.flatnonzero(each)[:: max(1, -(-int(each.sum()) // _MOST))]
    ends = np.cumsum(each[chosen])
    for part in np.split(chosen, np.searchsorted(ends, np.arange(_BLOCK, int(ends[-1]) if len(ends) else 0, _BLOCK))):
        if not len(part):
            continue
        src = np.concatenate([ids for i in part for ids in ([NO_SOURCE], pairs[int(i)][0])]).astype(np.int64)
        tgt = np.concatenate([pairs[int(i)][1] for i in part])
        of_src, of_tgt = lengths[part].T
        counts = np.repeat(of_src, of_tgt)  # co-occurrences of each target token
        starts = np.cumsum(counts) - counts
        first = np.repeat(np.cumsum(of_src) - of_src, of_tgt)  # position in src of a target token's first source token
        positions = np.arange(int(counts.sum())) + np.repeat(first - starts, counts)
        yield src[positions] * size + np.repeat(tgt, counts), starts


def _expected_counts(source: Int64[np.ndarray, " k"], blocks: list[_Block]) -> Float[np.ndarray, " k"]:
    """Return how often each kind of co-occurrence is expected to be a translation, by Model 1."""
    counts = probs = np.ones(len(source))
    for _ in range(_ROUNDS):
        counts = np.zeros(len(source))
        for block in blocks:
            shares = probs[block.kinds]
            shares /= np.repeat(np.add.reduceat(shares, block.starts), np.diff(block.starts, append=len(shares)))
            counts += np.bincount(block.kinds, shares, minlength=len(source))
        probs = counts / np.bincount(source, counts)[source]
    return counts


def _best(
    kinds: Int64[np.ndarray, " k"], counts: Float[np.ndarray, " k"], size: int, best: int
) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """Return source and target ids of each source id's `best` kinds of co-occurrence by count, sorted by id."""
    order = np.lexsort((-counts, kinds // size))
    source = kinds[order] // size
    rank = np.arange(len(order)) - np.searchsorted(source, source)
    kept = np.sort(kinds[order[(rank < best) & (source != NO_SOURCE)]])
    return kept // size, kept % size
