"""The tasks of preparation that read training text in shards: clean, find repeats, select pairs for training.

A shard's contents depend on its corpus alone and not on the worker: every task reads its corpus from the beginning and
cleans its own shards. Reading costs a tenth of cleaning, and no text goes from process to process.

Repeats are found by sorting digests, one range of digests a task. Each shard's digests are sorted, so that a task reads
only its range of each. A task's memory depends on the range, not on the corpus: about 50 bytes for each of PART pairs.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress, count, islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from seq2seq.settings.data import DataConfig
from seq2seq.text.cache import is_whole, piece, value_of
from seq2seq.text.corpus import Corpus, Pair
from seq2seq.text.filters import Cleaner, digest_pair
from seq2seq.text.overlap import OverlapIndex, name_held_out

SHARD = 50_000  # pairs read for one shard
PART = 2_000_000  # pairs whose digests one task sorts
_STRIPE = 4 << 20  # bytes of a corpus for each process that reads it
_TEXT, _ROWS, _SHARED = "pairs.tsv", "rows.npy", "overlap.tsv"
DIGESTS = ("high.npy", "low.npy", "row.npy")  # of the pairs, sorted: first 8 bytes, last 4, and the row in the shard


@dataclass(frozen=True)
class CleaningTask:
    """Every `stripes`-th shard of a corpus, from number `stripe` on."""

    folder: Path
    number: int  # of the corpus
    corpus: Corpus
    data: DataConfig
    size: int  # pairs a shard
    stripe: int
    stripes: int

    def piece(self, shard: int) -> Path:
        """Return the folder of a shard."""
        return self.folder / f"{self.number:05}-{shard:06}"

    @property
    def summary(self) -> Path:
        """Return the piece that marks the task as done; its value is the number of pairs of the corpus."""
        return self.folder / f"{self.number:05}-part{self.stripe}of{self.stripes}"


@dataclass(frozen=True)
class Shard:
    """A cleaned shard."""

    folder: Path
    corpus: int
    start: int  # cleaned pairs in the shards before it
    size: int  # cleaned pairs
    counts: dict[str, int]


def cleaning_tasks(folder: Path, corpora: list[Corpus], data: DataConfig, workers: int) -> Iterator[CleaningTask]:
    """Divide the corpora among workers, large corpora in stripes."""
    for number, corpus in enumerate(corpora):
        stripes = min(workers, 1 + sum(path.stat().st_size for path in corpus.paths) // _STRIPE)
        for stripe in range(stripes):
            yield CleaningTask(folder, number, corpus, data, SHARD, stripe, stripes)


def clean_stripe(task: CleaningTask) -> None:
    """Clean the missing shards of a task.

    Raises:
        UserError: the corpus cannot be read.
    """
    if is_whole(task.summary):
        mine = range(task.stripe, -(-value_of(task.summary) // task.size), task.stripes)
        if all(is_whole(task.piece(shard)) for shard in mine):
            return
    pairs, total, cleaner = task.corpus.pairs(), 0, Cleaner(task.data)
    for shard in count():
        if shard % task.stripes != task.stripe or is_whole(task.piece(shard)):
            found = sum(1 for _ in islice(pairs, task.size))
        else:
            raw = list(islice(pairs, task.size))
            found = len(raw)
            if raw:
                piece(task.piece(shard), lambda draft, raw=raw: _clean(draft, raw, cleaner, task.data.drop_duplicates))
        total += found
        if found < task.size:
            break
    piece(task.summary, lambda _: total)


def _clean(draft: Path, raw: list[Pair], cleaner: Cleaner, digests: bool) -> dict[str, int]:
    counts: Counter[str] = Counter()
    found: list[bytes] = []
    with (draft / _TEXT).open("w", encoding="utf-8", newline="\n") as file:
        for src, tgt in cleaner.clean(raw, counts):
            file.write(f"{src}\t{tgt}\n")
            if digests:
                found.append(digest_pair(src, tgt))
    if digests:
        _save_digests(draft, found)
    return counts


def _save_digests(draft: Path, digests: list[bytes]) -> None:
    table = np.frombuffer(b"".join(digests), dtype=[("high", ">u8"), ("low", ">u4")])
    high, low = table["high"].astype(np.uint64), table["low"].astype(np.uint32)
    order = np.lexsort((low, high))
    for name, column in zip(DIGESTS, (high[order], low[order], order.astype(np.uint32)), strict=True):
        np.save(draft / name, column)


def list_shards(tasks: list[CleaningTask]) -> list[Shard]:
    """List the shards of finished tasks in the order of the corpora."""
    shards: list[Shard] = []
    for task in tasks:
        if task.stripe == 0:
            for number in range(-(-value_of(task.summary) // task.size)):
                folder = task.piece(number)
                counts = value_of(folder)
                start = shards[-1].start + shards[-1].size if shards else 0
                shards.append(Shard(folder, task.number, start, counts.get("kept", 0), counts))
    return shards


def read_shard(folder: Path) -> Iterator[Pair]:
    """Read the cleaned pairs of a shard."""
    return _read_pairs(folder / _TEXT)


def _read_pairs(path: Path) -> Iterator[Pair]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            src, tgt = line.rstrip("\n").split("\t")
            yield src, tgt


def read_rows(shard: Shard, chosen: Path) -> Iterator[Pair]:
    """Read the pairs of a shard that the piece `chosen` selects."""
    mask = np.zeros(shard.size, bool)
    mask[np.load(chosen / _ROWS)] = True
    return compress(read_shard(shard.folder), mask.tolist())


@dataclass(frozen=True)
class RepeatsTask:
    """One of `parts` equal ranges of digests."""

    piece: Path
    shards: tuple[tuple[Path, int], ...]  # folder of each, and the number of pairs before it
    part: int
    parts: int


def repeats_tasks(folder: Path, shards: Sequence[Shard]) -> Iterator[RepeatsTask]:
    """Divide all pairs by digest."""
    parts = -(-sum(shard.size for shard in shards) // PART)
    for part in range(parts):
        folders = tuple((shard.folder, shard.start) for shard in shards)
        yield RepeatsTask(folder / f"{part:05}of{parts}", folders, part, parts)


def find_repeats(task: RepeatsTask) -> Path:
    """Write the numbers of the pairs, counted through all shards, that equal an earlier pair; return the piece."""

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
        # copies, so that the files of thousands of shards do not all stay mapped
        return high[first:last].copy(), low[first:last].copy(), row[first:last].astype(np.int64) + start

    piece(task.piece, build)
    return task.piece


def repeats_of(found: Sequence[Path], shard: Shard) -> Int64[np.ndarray, " n"]:
    """Return the rows of a shard that repeat an earlier pair."""
    columns = [np.empty(0, np.int64)]
    for folder in found:
        rows = np.load(folder / _ROWS, mmap_mode="r")
        first, last = np.searchsorted(rows, [shard.start, shard.start + shard.size])
        columns.append(rows[first:last] - shard.start)
    return np.sort(np.concatenate(columns))


@dataclass(frozen=True)
class SelectingTask:
    """One shard to select from."""

    piece: Path
    shard: Shard
    repeats: tuple[Path, ...]
    held_out: tuple[int, ...]  # rows taken for validation or test
    texts: Path  # of the held-out sets
    remove_overlap: bool


def select(task: SelectingTask) -> Path:
    """Write the rows to train on and the pairs that share a side with a held-out set; return the piece.

    Repeats and held-out pairs are left out, with remove_overlap also the pairs that share a side. The piece's value has
    the number of rows under "kept".
    """

    def build(draft: Path) -> dict[str, int]:
        out, kept = {*repeats_of(task.repeats, task.shard).tolist(), *task.held_out}, []
        overlap = _overlap(task.texts)
        with (draft / _SHARED).open("w", encoding="utf-8", newline="\n") as file:
            for row, (src, tgt) in enumerate(read_shard(task.shard.folder)):
                if row not in out:
                    shares = overlap.shares(src, tgt)
                    if shares:
                        file.write(f"{src}\t{tgt}\n")
                    if not (shares and task.remove_overlap):
                        kept.append(row)
        np.save(draft / _ROWS, np.array(kept, np.uint32))
        return {"kept": len(kept)}

    piece(task.piece, build)
    return task.piece


def read_overlaps(folder: Path) -> Iterator[Pair]:
    """Read the pairs of a shard that share a side with a held-out set."""
    return _read_pairs(folder / _SHARED)


def read_held_out(texts: Path) -> dict[str, list[Pair]]:
    """Read the held-out sets, validation first."""
    plain: dict[str, Any] = json.loads(texts.read_text(encoding="utf-8"))
    tests = {name: [(src, tgt) for src, tgt in pairs] for name, pairs in plain["tests"].items()}
    return name_held_out([(src, tgt) for src, tgt in plain["validation"]], tests)


@lru_cache(maxsize=1)
def _overlap(texts: Path) -> OverlapIndex:
    """Index the held-out sets once per process; nobody reads the counts of this index."""
    return OverlapIndex(read_held_out(texts))
