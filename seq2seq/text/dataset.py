"""Prepared text as training reads it: tokenised pairs in memory-mapped Arrow files, held-out texts and the report."""

import json
import logging
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int32
from pyarrow import ipc

from seq2seq.text.formats import Pair
from seq2seq.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)
_SHOWN = 100  # characters of an example
_SCHEMA = pa.schema([("src", pa.list_(pa.int32())), ("tgt", pa.list_(pa.int32()))])
ROWS = 10_000  # pairs a record batch


class TokenWriter:
    """Writes pairs of id lists to an Arrow file; use as a context manager.

    Every record batch but the last has ROWS pairs, so the file's bytes depend on the pairs alone, not on the calls.
    """

    def __init__(self, path: Path) -> None:
        self._writer = ipc.new_file(str(path), _SCHEMA)
        self._rest = _SCHEMA.empty_table()  # pairs that do not fill a record batch yet

    def __enter__(self) -> "TokenWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._write_batches(len(self._rest))
        self._writer.close()

    def write(self, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]) -> None:
        """Append pairs: the i-th of src with the i-th of tgt."""
        assert len(src) == len(tgt)
        self._append(pa.table([pa.array(side, type=pa.list_(pa.int32())) for side in (src, tgt)], schema=_SCHEMA))

    def copy(self, path: Path) -> None:
        """Append all pairs of another file of a TokenWriter."""
        self._append(ipc.open_file(pa.memory_map(str(path))).read_all())

    def _append(self, pairs: pa.Table) -> None:
        self._rest = pa.concat_tables([self._rest, pairs])
        self._write_batches(len(self._rest) // ROWS * ROWS)

    def _write_batches(self, count: int) -> None:
        """Write the first `count` waiting pairs."""
        for start in range(0, count, ROWS):
            columns = self._rest.slice(start, min(ROWS, count - start)).columns
            self._writer.write_batch(pa.record_batch(list(map(_compact, columns)), schema=_SCHEMA))
        self._rest = self._rest.slice(count)


def _compact(column: pa.ChunkedArray) -> pa.ListArray:
    """Join chunks into one array of their rows alone, so that equal rows give equal bytes."""
    rows = pa.concat_arrays(column.chunks)
    offsets = rows.offsets.to_numpy()
    return pa.ListArray.from_arrays(pa.array(offsets - offsets[0]), rows.flatten())


class TokenDataset:
    """Pairs of token ids without BOS and EOS, memory-mapped: opening reads next to nothing, items are views.

    Pickles as its path, so that worker processes map the same pages.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        file = ipc.open_file(pa.memory_map(str(path)))
        batches = [file.get_batch(i) for i in range(file.num_record_batches)]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in batches)]).tolist()
        self._columns = [(_flat(batch.column("src")), _flat(batch.column("tgt"))) for batch in batches]
        self.src_lengths = self._lengths(0)
        self.tgt_lengths = self._lengths(1)

    def __reduce__(self) -> tuple[type["TokenDataset"], tuple[Path]]:
        return TokenDataset, (self._path,)

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int | np.integer) -> tuple[Int32[np.ndarray, " s"], Int32[np.ndarray, " t"]]:
        if not 0 <= index < len(self):
            raise IndexError(f"pair {index} of {len(self)}")
        batch = bisect_right(self._starts, index) - 1
        row = index - self._starts[batch]
        (src, src_offsets), (tgt, tgt_offsets) = self._columns[batch]
        return src[src_offsets[row] : src_offsets[row + 1]], tgt[tgt_offsets[row] : tgt_offsets[row + 1]]

    def _lengths(self, side: int) -> Int32[np.ndarray, " n"]:
        lengths = [np.diff(columns[side][1]) for columns in self._columns]
        return np.concatenate([np.empty(0, np.int32), *lengths])


def _flat(column: pa.ListArray) -> tuple[Int32[np.ndarray, " values"], Int32[np.ndarray, " offsets"]]:
    return column.values.to_numpy(), column.offsets.to_numpy()


@dataclass(frozen=True)
class PreparedData:
    """All that training reads."""

    tokenizer: Tokenizer
    train: TokenDataset
    validation: TokenDataset
    validation_pairs: list[Pair]  # normalised text of the same rows
    tests: dict[str, list[Pair]]  # name → text as written, but of one line
    report: dict[str, Any]  # plain values: files (counts by reason), overlap, sizes


def load_prepared(folder: Path) -> PreparedData:
    """Open what was prepared."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    _log_overlap(report["overlap"])
    texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    return PreparedData(
        tokenizer=Tokenizer.load(folder / "tokenizer.model"),
        train=TokenDataset(folder / "train.arrow"),
        validation=TokenDataset(folder / "validation.arrow"),
        validation_pairs=[(src, tgt) for src, tgt in texts["validation"]],
        tests={name: [(src, tgt) for src, tgt in pairs] for name, pairs in texts["tests"].items()},
        report=report,
    )


def trained_length(prepared: PreparedData) -> int:
    """Return how many source tokens 99 of 100 training pairs do not exceed (of streamed text, those of the sample)."""
    return max(1, int(np.quantile(prepared.train.src_lengths, 0.99, method="higher")))


def example(prepared: PreparedData) -> str:
    """One training pair, "source → target", in which a wrong direction is seen."""
    texts = prepared.tokenizer.decode([ids.tolist() for ids in prepared.train[0]])
    return " → ".join(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…" for text in texts)


def _log_overlap(overlap: dict[str, Any]) -> None:
    """Say which held-out sets training text would give away; loudly if it stays in training."""
    for name, found in overlap["sets"].items():
        if found["pairs"]:
            level, what = (logging.INFO, "removed") if overlap["removed"] else (logging.WARNING, "KEPT in training")
            logger.log(
                level,
                "%d training pairs share a side with %s (%d the source, %d the target), such as %s: %s",
                *(found["pairs"], name, found["source"], found["target"]),
                *(" → ".join(found["examples"][0]), what),
            )
