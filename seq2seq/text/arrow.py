"""Tokenised pairs on disk: an Arrow file that is memory-mapped and read without copying; knows ids only."""

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from jaxtyping import Int32
from pyarrow import ipc

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
        """Append all pairs of another such file."""
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
