"""Cleaned training text: a Hugging Face dataset in one memory-mapped Arrow file, whose rows are pairs.

Processes clean some thousand pairs at a time; one process reads the corpora and writes the file, in their order.
Equal pairs have equal digests. Sorting takes some 50 bytes for each of PART pairs: one range of digests at a time.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Bool, Int64

from seq2seq.data.clean import Cleaner, OverlapIndex, digest_pair, side_key
from seq2seq.data.corpus import Corpus
from seq2seq.data.formats import Pair, Record
from seq2seq.data.processes import Processes
from seq2seq.progress import bar
from seq2seq.settings.data import DataConfig
from seq2seq.storage.lines import counting_bytes

logger = logging.getLogger(__name__)
BATCH = 5_000  # pairs read at a time
TASK = 1 << 21  # characters cleaned at a time; a pair counts as _PAIR more
_PAIR = 200
PART = 8_000_000  # pairs whose digests are sorted at a time
_DIGEST = "S12"  # NumPy's type of a digest
_COLUMNS = {"src": "string", "tgt": "string", "digest": "binary", "src_key": "uint32", "tgt_key": "uint32"}


def write_cleaned(path: Path, corpora: Sequence[Corpus], data: DataConfig, workers: Processes) -> list[Counter[str]]:
    """Write the cleaned pairs of all corpora; return the counts of each corpus, see `Cleaner.clean`."""
    from datasets import Features, Value  # pyright: ignore[reportMissingTypeStubs]
    from datasets.arrow_writer import ArrowWriter  # pyright: ignore[reportMissingTypeStubs]

    features = Features({name: Value(kind) for name, kind in _COLUMNS.items()})
    counts: list[Counter[str]] = [Counter() for _ in corpora]
    new_writer = cast(Any, ArrowWriter)
    files = {path for corpus in corpora for path in corpus.paths if path.suffix != ".parquet"}
    with (
        bar("cleaning", sum(path.stat().st_size for path in files) or None) as advance,
        counting_bytes(lambda count: advance(count, f"{sum(c['read'] for c in counts):,} pairs")),
        path.open("wb") as file,
        new_writer(stream=file, features=features, writer_batch_size=BATCH) as writer,
    ):
        for number, task_counts, columns in workers.map(partial(_clean, data), _tasks(corpora)):
            counts[number].update(task_counts)
            writer.write_batch(dict(zip(_COLUMNS, columns, strict=True)))
        writer.finalize()
    return counts


def _tasks(corpora: Sequence[Corpus]) -> Iterator[tuple[int, list[Record]]]:
    """Yield the records of all corpora, some at a time, each with the number of the corpus."""
    for number, corpus in enumerate(corpora):
        logger.info("cleaning %s", corpus.name)
        records, size = list[Record](), 0
        for record in corpus.read():
            records.append(record)
            size += _PAIR + (len(record[0]) + len(record[1]) if isinstance(record, tuple) else 0)
            if size >= TASK:
                yield number, records
                records, size = [], 0
        yield number, records


def _clean(data: DataConfig, task: tuple[int, list[Record]]) -> tuple[int, Counter[str], list[list[Any]]]:
    """Return the number of a corpus, and the counts and the columns of some of its pairs."""
    number, records = task
    counts: Counter[str] = Counter()
    pairs = list(Cleaner(data).clean(records, counts))
    src, tgt = ([pair[side] for pair in pairs] for side in (0, 1))
    digests = [digest_pair(*pair) for pair in pairs]
    return number, counts, [src, tgt, digests, [*map(side_key, src)], [*map(side_key, tgt)]]


class CleanedText:
    """Cleaned pairs, memory-mapped; pairs are known by their rows."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows.with_format("arrow")

    @classmethod
    def load(cls, path: Path) -> "CleanedText":
        """Memory-map the file that `write_cleaned` wrote."""
        from datasets import Dataset  # pyright: ignore[reportMissingTypeStubs]

        return cls(cast(Any, Dataset).from_file(str(path)))

    def __len__(self) -> int:
        return len(self._rows)

    def part(self, rows: range) -> "CleanedText":
        """Return neighbouring rows, which are numbered from 0."""
        return CleanedText(self._rows.select(rows if len(rows) else range(0)))  # a range may not begin at the end

    def pairs(
        self, is_chosen: Bool[np.ndarray, " n"]
    ) -> Iterator[tuple[Int64[np.ndarray, " m"], list[str], list[str]]]:
        """Read the chosen pairs, some thousand at a time: their rows, sources and targets."""
        for start, batch in self._batches("src", "tgt"):
            rows = np.flatnonzero(is_chosen[start : start + len(batch)])
            chosen = batch.take(rows)
            yield start + rows, chosen["src"].to_pylist(), chosen["tgt"].to_pylist()

    def _batches(self, *columns: str) -> Iterator[tuple[int, Any]]:
        """Yield some thousand rows at a time: the number of the first row, and a table of these columns."""
        for number, batch in enumerate(self._rows.select_columns([*columns]).iter(BATCH)):
            yield number * BATCH, batch

    def _digests(self) -> Iterator[tuple[int, np.ndarray]]:
        for start, batch in self._batches("digest"):
            yield start, np.array(batch["digest"].to_pylist(), _DIGEST)

    @cached_property
    def repeats(self) -> Int64[np.ndarray, " n"]:
        """The rows that equal an earlier row."""
        parts = min(256, -(-len(self) // PART))
        repeats = [np.empty(0, np.int64)]
        for part in range(parts):
            rows, digests = list[np.ndarray](), list[np.ndarray]()
            for start, batch in self._digests():
                first_bytes = batch.view(np.uint8)[:: batch.itemsize].astype(np.int64)
                of_part = np.flatnonzero(first_bytes * parts >> 8 == part)
                rows.append(start + of_part)
                digests.append(batch[of_part])
            table = np.concatenate(digests)
            order = np.argsort(table, kind="stable")  # equal digests stay in the order of the rows
            is_repeat = table[order][1:] == table[order][:-1]
            repeats.append(np.concatenate(rows)[order[1:][is_repeat]])
        return np.concatenate(repeats)

    def draw(self, size: int, taken: OverlapIndex, *, largest: bool) -> list[Pair]:
        """Return the `size` pairs with the smallest or largest digests that share no side with the taken sets.

        A digest is uniform and depends on its pair alone, so the drawn pairs do not depend on the order of files, on
        other corpora or on a seed, and runs with different seeds have the same test set. If text is added, a pair
        leaves a drawn set only for a new pair with a smaller or larger digest. The digests need no salt: nothing else
        in preparation sorts text by them.

        The pairs are in the order of their digests; there are fewer than `size` if no other pair is left.
        """
        count = size
        while True:
            outermost = np.empty(0, _DIGEST)
            for _, digests in self._digests():
                if len(outermost) == count:
                    digests = digests[digests > outermost[0] if largest else digests < outermost[-1]]
                if len(digests):
                    outermost = np.unique(np.concatenate([outermost, digests]))
                    outermost = outermost[-count:] if largest else outermost[:count]
            rows = self._rows.select(self.rows_of(outermost))[:]
            pairs = zip(rows["src"].to_pylist(), rows["tgt"].to_pylist(), strict=True)
            in_order = sorted({digest_pair(*pair): pair for pair in pairs}.items())
            free = [pair for _, pair in in_order if not any(taken.shares(*pair))]
            if len(free) >= size or len(outermost) < count:
                return free[-size:] if largest else free[:size]
            count *= 2

    def rows_of(self, digests: np.ndarray | Sequence[bytes]) -> Int64[np.ndarray, " n"]:
        """Return the rows of the pairs that have one of these digests."""
        wanted = np.array(digests, _DIGEST)
        rows = [start + np.flatnonzero(np.isin(batch, wanted)) for start, batch in self._digests()]
        return np.concatenate([np.empty(0, np.int64), *rows])

    def may_share(self, index: OverlapIndex) -> Bool[np.ndarray, " n"]:
        """Return, for each row, whether it may share a side with the index: whether a side's key is that of a side."""
        src_keys, tgt_keys = index.keys
        batches = self._batches("src_key", "tgt_key")
        masks = [np.isin(batch["src_key"], src_keys) | np.isin(batch["tgt_key"], tgt_keys) for _, batch in batches]
        return np.concatenate(masks)
