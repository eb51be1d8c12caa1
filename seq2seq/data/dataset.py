"""Tokenised sentence pairs in two flat arrays, in memory or memory-mapped, and the prepared text of a run.

This module and its imports load no PyTorch: the processes that prepare and read text do not need it.
"""

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int32, Integer

from seq2seq.data.formats import Pair
from seq2seq.errors import UserError
from seq2seq.text.vocabulary import Sizes, Tokenizers, load_tokenizers

logger = logging.getLogger(__name__)
_SHOWN = 100  # characters that are shown of each side of an example
TEXTS = "texts.json"  # file of the validation set and of the test sets
REPORT = "report.json"  # file of the counts; it does not name corpora, whose files may be moved
_IDS, _LENGTHS = ".ids", ".lengths"  # endings of the two files
Ids = Sequence[int] | np.ndarray
_ID_TYPES = (np.uint16, np.int32)  # the size of the file of ids shows which of the two its ids have


class Pairs:
    """Pairs of token ids without BOS and EOS; items are views of `ids`.

    Attributes:
        ids: all tokens: the first source, the first target, the second source, …
        lengths: number of tokens of each source and target.
        starts: where each pair begins in `ids`, and the end of the last pair.
    """

    def __init__(self, ids: Integer[np.ndarray, " ids"], lengths: Int32[np.ndarray, "n 2"]) -> None:
        self.ids, self.lengths = ids, lengths
        self.starts = np.zeros(len(lengths) + 1, np.int64)
        np.add(lengths[:, 0], lengths[:, 1], out=self.starts[1:])
        np.cumsum(self.starts, out=self.starts)
        self._path: Path | None = None

    @classmethod
    def of(cls, src: Sequence[Ids], tgt: Sequence[Ids], dtype: np.typing.DTypeLike = np.int32) -> "Pairs":
        """Join the i-th row of src with the i-th row of tgt; dtype is the type of the ids, see `id_type`."""
        rows = [row for pair in zip(src, tgt, strict=True) for row in pair]
        lengths = np.fromiter(map(len, rows), np.int32, len(rows))
        return cls(np.fromiter(chain.from_iterable(rows), dtype, int(lengths.sum())), lengths.reshape(-1, 2))

    @classmethod
    def load(cls, path: Path) -> "Pairs":
        """Memory-map the files that `write_pairs` wrote; a pickle of these pairs holds only the path."""
        lengths = _map(path.with_suffix(_LENGTHS), np.int32)
        ids, num_ids = path.with_suffix(_IDS), int(lengths.sum(dtype=np.int64))
        dtype = next((t for t in _ID_TYPES if num_ids * np.dtype(t).itemsize == ids.stat().st_size), None)
        if lengths.size % 2 or (lengths < 0).any() or dtype is None:
            raise UserError(f"the prepared text in {path.parent} is damaged: remove that folder, and run again")
        pairs = cls(_map(ids, dtype), lengths.reshape(-1, 2))
        pairs._path = path.resolve()  # equal pickles in all processes
        return pairs

    def __reduce__(self) -> tuple[Any, ...]:
        return (Pairs, (self.ids, self.lengths)) if self._path is None else (Pairs.load, (self._path,))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int | np.integer) -> tuple[Integer[np.ndarray, " s"], Integer[np.ndarray, " t"]]:
        if not 0 <= index < len(self):
            raise IndexError(f"pair {index} of {len(self)}")
        start, end = self.starts[index], self.starts[index + 1]
        middle = start + self.lengths[index, 0]
        return self.ids[start:middle], self.ids[middle:end]


def _map(path: Path, dtype: np.typing.DTypeLike) -> np.ndarray:
    """Map a file of numbers; processes that map the same file share its memory."""
    count = path.stat().st_size // np.dtype(dtype).itemsize
    # an empty file cannot be mapped; a plain array on the map is faster to index than np.memmap
    return np.asarray(np.memmap(path, dtype, "r", shape=(count,))) if count else np.empty(0, dtype)


def id_type(sizes: Sizes) -> type[np.uint16] | type[np.int32]:
    """Return the smaller type that holds all ids of vocabularies of these sizes."""
    return np.uint16 if max(size for size in sizes if size is not None) <= 1 << 16 else np.int32


def write_pairs(path: Path, parts: Iterable[Pairs]) -> None:
    """Write pairs, one part after the other, to two files; their bytes depend on the pairs, not on the parts.

    The ids of all parts have the same type.
    """
    with path.with_suffix(_IDS).open("wb") as ids, path.with_suffix(_LENGTHS).open("wb") as lengths:
        for part in parts:
            part.ids.tofile(ids)
            part.lengths.tofile(lengths)


@dataclass(frozen=True)
class PreparedData:
    """The prepared text: all data that training reads."""

    tokenizer: Tokenizers
    train: Pairs
    validation: Pairs  # of all validation sets, one after the other
    validation_pairs: list[Pair]  # normalised text of the same rows
    tests: dict[str, list[Pair]]  # name → text as written, but in one line
    report: dict[str, Any]  # plain values: files (names, and counts by reason), overlap, sizes
    folder: Path  # in the cache

    @property
    def validation_sets(self) -> dict[str, range]:
        """The rows of each validation set by its name; a single set is called "validation"."""
        sizes = self.report.get("sizes", {}).get("validation_sets", {"validation": len(self.validation)})
        ends = accumulate(sizes.values())
        return {name: range(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}


def load_prepared(folder: Path, names: Sequence[str]) -> PreparedData:
    """Open a folder of prepared text; `names` are the present names of the training corpora."""
    report = json.loads((folder / REPORT).read_text(encoding="utf-8"))
    report["files"] = [{"name": name, **counts} for name, counts in zip(names, report["files"], strict=True)]
    _log_overlap(report["overlap"])
    texts = json.loads((folder / TEXTS).read_text(encoding="utf-8"))
    validation = [(src, tgt) for src, tgt in texts["validation"]]
    tests = {name: [(src, tgt) for src, tgt in pairs] for name, pairs in texts["tests"].items()}
    tokenizer = load_tokenizers(folder)
    train, validation_ids = (Pairs.load(folder / name) for name in ("train", "validation"))
    return PreparedData(tokenizer, train, validation_ids, validation, tests, report, folder)


def trained_length(prepared: PreparedData) -> int:
    """Return the 99th percentile of the training sources' lengths in tokens."""
    return max(1, int(np.quantile(prepared.train.lengths[:, 0], 0.99, method="higher")))


def example(prepared: PreparedData) -> str:
    """Return one training pair as "source → target", so that a user notices a wrong direction."""
    src, tgt = (ids.tolist() for ids in prepared.train[0])
    texts = (*prepared.tokenizer.source.decode([src]), *prepared.tokenizer.target.decode([tgt]))
    return " → ".join(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…" for text in texts)


def _log_overlap(overlap: dict[str, Any]) -> None:
    """Log the overlap of each held-out set with the training text: a warning if the pairs stay in training."""
    for name, counts in overlap["sets"].items():
        if counts["pairs"]:
            level, what = (logging.INFO, "removed") if overlap["removed"] else (logging.WARNING, "KEPT in training")
            logger.log(
                level,
                "training pairs that share a side with %s, %s: %d (%d the source, %d the target), such as %s",
                *(name, what, counts["pairs"], counts["source"], counts["target"], " → ".join(counts["examples"][0])),
            )
