"""Cleaned training text: a Hugging Face dataset in one memory-mapped Arrow file, whose rows are pairs.

Processes clean some thousand pairs at a time; one process reads the corpora and writes the file, in their order.
Equal pairs have equal digests. Sorting takes some 25 bytes for each of PART pairs: one range of digests at a time.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Bool, Int64, UInt

from seq2seq.data.clean import clean, digest_pair, side_key
from seq2seq.data.corpus import Corpus
from seq2seq.data.formats import Pair, Record
from seq2seq.data.languages import check_sides
from seq2seq.data.processes import Processes
from seq2seq.progress import bar
from seq2seq.settings.data import DataConfig
from seq2seq.storage.lines import counting_bytes

logger = logging.getLogger(__name__)
BATCH = 5_000  # pairs read at a time
TASK = 1 << 21  # characters cleaned at a time; a pair counts as _PAIR more
_PAIR = 200
PART = 8_000_000  # pairs whose digests are sorted at a time
_COLUMNS = {"src": "string", "tgt": "string", "digest": "uint64", "src_key": "uint32", "tgt_key": "uint32"}


def write_cleaned(path: Path, corpora: Sequence[Corpus], data: DataConfig, workers: Processes) -> list[Counter[str]]:
    """Write the cleaned pairs of all corpora; return the counts of each corpus, see `clean`."""
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
        for number, task_counts, columns in workers.map(partial(_clean, data), _tasks(corpora, data)):
            counts[number].update(task_counts)
            writer.write_batch(dict(zip(_COLUMNS, columns, strict=True)))
        writer.finalize()
    return counts


def _tasks(corpora: Sequence[Corpus], data: DataConfig) -> Iterator[tuple[int, list[Record]]]:
    """Yield the records of all corpora, some at a time, each with the number of the corpus."""
    for number, corpus in enumerate(corpora):
        logger.info("cleaning %s", corpus.name)
        records, size = list[Record](), 0
        for record in check_sides(corpus.read(), corpus.name, data):
            records.append(record)
            size += _PAIR + (len(record[0]) + len(record[1]) if isinstance(record, tuple) else 0)
            if size >= TASK:
                yield number, records
                records, size = [], 0
        yield number, records


def _clean(data: DataConfig, task: tuple[int, list[Record]]) -> tuple[int, Counter[str], list[Any]]:
    """Return the number of a corpus, and the counts and the columns of some of its pairs."""
    number, records = task
    counts: Counter[str] = Counter()
    pairs = list(clean(records, data, counts))
    src, tgt = ([pair[side] for pair in pairs] for side in (0, 1))
    digests = np.array([digest_pair(*pair) for pair in pairs], np.uint64)
    keys = [np.array([side_key(text) for text in side], np.uint32) for side in (src, tgt)]
    return number, counts, [src, tgt, digests, *keys]


class CleanedText:
    """Cleaned pairs in the file that `write_cleaned` wrote, memory-mapped; pairs are known by their rows."""

    def __init__(self, path: Path) -> None:
        from datasets import Dataset  # pyright: ignore[reportMissingTypeStubs]

        self._rows: Any = cast(Any, Dataset).from_file(str(path)).with_format("arrow")

    def __len__(self) -> int:
        return len(self._rows)

    def column(self, name: str) -> UInt[np.ndarray, " n"]:
        """Return the digests of the pairs, or the keys of a side."""
        return self._rows.data.column(name).to_numpy()

    def pairs(
        self, is_chosen: Bool[np.ndarray, " n"]
    ) -> Iterator[tuple[Int64[np.ndarray, " m"], list[str], list[str]]]:
        """Read the chosen pairs, some thousand at a time: their rows, sources and targets."""
        for number, batch in enumerate(self._rows.select_columns(["src", "tgt"]).iter(BATCH)):
            rows = np.flatnonzero(is_chosen[number * BATCH :][: len(batch)])
            chosen = batch.take(rows)
            yield number * BATCH + rows, chosen["src"].to_pylist(), chosen["tgt"].to_pylist()

    def pairs_at(self, rows: Int64[np.ndarray, " m"]) -> Iterator[Pair]:
        """Read pairs in the order of the rows."""
        texts = self._rows.select_columns(["src", "tgt"])
        for start in range(0, len(rows), BATCH):
            batch = texts.select(rows[start : start + BATCH])[:]
            yield from zip(batch["src"].to_pylist(), batch["tgt"].to_pylist(), strict=True)


def distinct(digests: UInt[np.ndarray, " n"]) -> Int64[np.ndarray, " m"]:
    """Return the row of each different pair, the first of equal ones, in the order of the digests."""
    parts, first = min(256, -(-len(digests) // PART)), [np.empty(0, np.int64)]
    for part in range(parts):
        rows = np.flatnonzero((digests >> 56) * parts >> 8 == part)
        first.append(rows[np.unique(digests[rows], return_index=True)[1]])
    return np.concatenate(first)
