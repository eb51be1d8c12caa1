"""Which pairs of a cleaned shard are trained on: no repeats, none held out, none that gives a held-out set away."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from seq2seq.text.corpus import Pair
from seq2seq.text.duplicates import repeats_of
from seq2seq.text.overlap import OverlapIndex
from seq2seq.text.pieces import piece
from seq2seq.text.shards import Shard, read_drafts, read_shard, save_rows

_SHARED = "overlap.tsv"


@dataclass(frozen=True)
class SelectingTask:
    """One shard."""

    piece: Path
    shard: Shard
    repeats: tuple[Path, ...]
    held_out: tuple[int, ...]  # rows taken for validation or test
    texts: Path  # of the held-out sets
    remove_overlap: bool


def select(task: SelectingTask) -> Path:
    """Note the rows that are trained on and the pairs that share a side with a held-out set; where, is returned.

    The value of the piece tells under "kept" how many rows they are.
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
        save_rows(draft, kept)
        return {"kept": len(kept)}

    piece(task.piece, build)
    return task.piece


def read_overlaps(folder: Path) -> Iterator[Pair]:
    """Read the pairs of a shard that share a side with a held-out set."""
    return read_drafts(folder / _SHARED)


def read_held_out(texts: Path) -> dict[str, list[Pair]]:
    """Read the held-out sets, validation first."""
    plain: dict[str, Any] = json.loads(texts.read_text(encoding="utf-8"))
    tests = {name: [(src, tgt) for src, tgt in pairs] for name, pairs in plain["tests"].items()}
    return name_held_out([(src, tgt) for src, tgt in plain["validation"]], tests)


def name_held_out(validation: list[Pair], tests: Mapping[str, list[Pair]]) -> dict[str, list[Pair]]:
    """Put the validation set before the test sets, under a name that none of them has."""
    return {"the validation set" if "validation" in tests else "validation": validation, **tests}


@lru_cache(maxsize=1)
def _overlap(texts: Path) -> OverlapIndex:
    """Index the held-out sets once per process; nobody reads the counts of this index."""
    return OverlapIndex(read_held_out(texts))
