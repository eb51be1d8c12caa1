"""The choice of the pairs that are held out of the training text, by the digests of pairs.

The pairs with the smallest digests validate, and the pairs with the largest digests test. A digest is uniform and
depends on its pair alone, so the sets do not depend on the order of files, on other corpora or on a seed, and runs with
different seeds have the same test set. If text is added, a pair leaves a set only for a new pair with a smaller or a
larger digest, and no pair moves between the two sets. The digests need no salt: they are compared only to find equal
pairs, and nothing else in preparation sorts text by them.
"""

from collections.abc import Sequence

import numpy as np

from seq2seq.text.filters import digest_pair
from seq2seq.text.formats import Pair
from seq2seq.text.shards import DIGEST, Shard


def outermost_digests(shards: Sequence[Shard], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the `size` smallest and the `size` largest digests of the shards' pairs, sorted, without repeats."""
    smallest = largest = np.empty(0, DIGEST)
    for shard in shards:
        digests = np.unique(np.concatenate([smallest, largest, shard.digests()]))
        smallest, largest = digests[:size], digests[-size:]
    return smallest, largest


def read_pairs(shards: Sequence[Shard], digests: np.ndarray) -> list[Pair]:
    """Return the pairs that have these digests, each once, in the order of the digests."""
    pairs = (pair for shard in shards for pair in shard.at(shard.rows_of(digests)))
    return [pair for _, pair in sorted({digest_pair(*pair): pair for pair in pairs}.items())]
