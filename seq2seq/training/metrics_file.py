"""metrics.csv of a run: read without PyTorch, and rewritten in a draft, so that a kill loses no row."""

import contextlib
import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_NUMBERS = ("loss", "seconds", "val_loss", "val_bleu")


def read_metrics(folder: Path) -> list[dict[str, str]]:
    """Return the rows of a run's metrics.csv without truncated and damaged ones; none if there is no file."""
    rows: list[dict[str, str]] = []
    with (
        contextlib.suppress(FileNotFoundError, csv.Error),
        (folder / "metrics.csv").open(newline="", errors="replace") as file,
    ):
        rows.extend(row for row in csv.DictReader(file, restval="") if None not in row and _is_whole(row))
    return rows


def forget_after(path: Path, step: int, *, validated: bool) -> None:
    """Drop the rows of updates after a step, and those of its validation unless validated: training repeats them."""
    if not path.exists():
        return
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        reader = csv.DictReader(file)
        names = reader.fieldnames or ()
        rows = []
        with contextlib.suppress(csv.Error):  # rows before a damaged one stay
            for row in reader:
                if None not in row and (row.get("step") or "").isdecimal():
                    rows.append(row)
    kept = [
        row for row in rows if int(row["step"]) < step or (int(row["step"]) == step and (validated or row.get("loss")))
    ]
    rewrite(path, names, kept)


def rewrite(path: Path, names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace a table's columns and rows; the file is complete at every moment."""
    draft = path.with_suffix(".tmp")
    with draft.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    draft.replace(path)


def _is_whole(row: Mapping[str, str]) -> bool:
    try:
        return int(row["step"]) >= 0 and all(math.isfinite(float(row[key])) for key in _NUMBERS if row.get(key))
    except (ValueError, KeyError, TypeError):
        return False
