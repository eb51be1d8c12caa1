"""Which pairs of all shards were there before: a sort by digest, a range of digests at a time; knows no text.

Every shard has its digests sorted, so that a task reads only its range of each. Memory depends on the range, not on the
corpus: about 50 bytes for each of PART pairs, in each process.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from seq2seq.text.pieces import piece
from seq2seq.text.shards import DIGESTS, Shard

PART = 2_000_000  # pairs a task
_ROWS = "rows.npy"


@dataclass(frozen=True)
class RepeatsTask:
    """One of `parts` equal ranges of digests."""

    folder: Path
    shards: tuple[tuple[Path, int], ...]  # and the number of pairs before each
    part: int
    parts: int

    @property
    def piece(self) -> Path:
        """Where its result is."""
        return self.folder / f"{self.part:05}of{self.parts}"


def repeats_tasks(folder: Path, shards: Sequence[Shard]) -> Iterator[RepeatsTask]:
    """Divide all pairs by digest."""
    parts = -(-sum(shard.size for shard in shards) // PART)
    for part in range(parts):
        yield RepeatsTask(folder, tuple((shard.folder, shard.start) for shard in shards), part, parts)


def find_repeats(task: RepeatsTask) -> Path:
    """Write down which pairs, counted through all shards, are equal to an earlier one; where, is returned."""

    def build(draft: Path) -> None:
        columns = [np.concatenate(column) for column in zip(*map(read, task.shards), strict=True)]
        high, low, rows = columns
        order = np.lexsort((low, high))  # stable: equal digests stay in the order of the corpora
        high, low = high[order], low[order]
        repeated = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
        np.save(draft / _ROWS, np.sort(rows[order[1:][repeated]]))

    def read(shard: tuple[Path, int]) -> tuple[np.ndarray, np.ndarray, Int64[np.ndarray, " n"]]:
        folder, start = shard
        high, low, row = (np.load(folder / name, mmap_mode="r") for name in DIGESTS)
        first = np.searchsorted(high, np.uint64((task.part << 64) // task.parts))
        last_part = task.part + 1 == task.parts
        last = len(high) if last_part else np.searchsorted(high, np.uint64((task.part + 1 << 64) // task.parts))
        # Copies: the files of thousands of shards are not all to stay mapped.
        return high[first:last].copy(), low[first:last].copy(), row[first:last].astype(np.int64) + start

    piece(task.piece, build)
    return task.piece


def repeats_of(found: Sequence[Path], shard: Shard) -> Int64[np.ndarray, " n"]:
    """The rows of a shard that are repeats."""
    columns = [np.empty(0, np.int64)]
    for folder in found:
        rows = np.load(folder / _ROWS, mmap_mode="r")
        first, last = np.searchsorted(rows, [shard.start, shard.start + shard.size])
        columns.append(rows[first:last] - shard.start)
    return np.sort(np.concatenate(columns))
