"""Training text in shards of so many pairs, each cleaned by itself, on disk as pieces.

What is in a shard depends on its corpus alone and not on who reads it: every task reads its corpus from the beginning
and cleans the shards that are its own. Reading costs a tenth of cleaning, and no text goes from process to process.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress, count, islice
from pathlib import Path
from typing import Any

import numpy as np

from seq2seq.settings.data import DataConfig
from seq2seq.text.cache import is_whole
from seq2seq.text.corpus import Corpus, Pair
from seq2seq.text.filters import Checks, digest_pair
from seq2seq.text.normalise import normalise
from seq2seq.text.pieces import piece, value_of

SHARD = 50_000  # pairs read for one
_STRIPE = 4 << 20  # bytes of a corpus for which one more process is put to reading it
_TEXT, _ROWS = "pairs.tsv", "rows.npy"
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
        """Where a shard is."""
        return self.folder / f"{self.number:05}-{shard:06}"

    @property
    def summary(self) -> Path:
        """Where it is written down that the task is done; its value is how many pairs the corpus has."""
        return self.folder / f"{self.number:05}-part{self.stripe}of{self.stripes}"


@dataclass(frozen=True)
class Shard:
    """A cleaned one."""

    folder: Path
    corpus: int
    start: int  # cleaned pairs in the shards before it
    size: int  # cleaned pairs
    counts: dict[str, int]


def cleaning_tasks(folder: Path, corpora: list[Corpus], data: DataConfig, workers: int) -> Iterator[CleaningTask]:
    """Divide the corpora among workers, large ones in stripes."""
    for number, corpus in enumerate(corpora):
        stripes = min(workers, 1 + sum(path.stat().st_size for path in corpus.paths) // _STRIPE)
        for stripe in range(stripes):
            yield CleaningTask(folder, number, corpus, data, SHARD, stripe, stripes)


def clean_stripe(task: CleaningTask) -> None:
    """Clean the shards of a task that are not there yet.

    Raises:
        UserError: the corpus cannot be read.
    """
    if is_whole(task.summary):
        mine = range(task.stripe, -(-value_of(task.summary) // task.size), task.stripes)
        if all(is_whole(task.piece(shard)) for shard in mine):
            return
    pairs, total, checks = task.corpus.pairs(), 0, Checks(task.data)
    for shard in count():
        if shard % task.stripes != task.stripe or is_whole(task.piece(shard)):
            found = sum(1 for _ in islice(pairs, task.size))
        else:
            raw = list(islice(pairs, task.size))
            found = len(raw)
            if raw:
                piece(task.piece(shard), lambda draft, raw=raw: _clean(draft, raw, checks, task.data.drop_duplicates))
        total += found
        if found < task.size:
            break
    piece(task.summary, lambda _: total)


def _clean(draft: Path, raw: list[Pair], checks: Checks, digests: bool) -> dict[str, int]:
    counts: Counter[str] = Counter(read=len(raw))
    found: list[bytes] = []
    with (draft / _TEXT).open("w", encoding="utf-8", newline="\n") as file:
        for raw_src, raw_tgt in raw:
            src, tgt = normalise(raw_src), normalise(raw_tgt)
            reason = checks.reason(src, tgt)
            counts[reason or "kept"] += 1
            if reason is None:
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
    """Put the shards of finished tasks in order."""
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
    return read_drafts(folder / _TEXT)


def read_drafts(path: Path) -> Iterator[Pair]:
    """Read intermediate text: normalised pairs."""
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            src, tgt = line.rstrip("\n").split("\t")
            yield src, tgt


def save_rows(draft: Path, kept: list[int]) -> None:
    """Note which rows of a shard are for training."""
    np.save(draft / _ROWS, np.array(kept, np.uint32))


def read_rows(shard: Shard, chosen: Path, start: int = 0, stop: int | None = None) -> Iterator[Pair]:
    """Read the pairs of a shard whose rows were saved in `chosen`; of them those from start to stop."""
    rows: Any = np.load(chosen / _ROWS)[start:stop]
    mask = np.zeros(shard.size, bool)
    mask[rows] = True
    return compress(read_shard(shard.folder), mask.tolist())
