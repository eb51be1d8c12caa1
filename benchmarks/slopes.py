"""Cost per pair of preparing text: time, memory and disk, measured over two decades of size in some 15 minutes."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks import processes
from benchmarks.command import Options, Results, Table
from benchmarks.data import write_corpus
from seq2seq.settings.checks import require

VOCABULARY = 2000  # size of the vocabulary; the costs depend little on it


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `slopes`."""

    # sentence pairs of made-up text to prepare, at least two sizes; the slopes are those between the last two
    pairs: list[int] = field(default_factory=lambda: [10_000, 100_000, 1_000_000, 3_000_000])


def run(plan: Plan, device: torch.device) -> Results:
    """Prepare made-up texts of several sizes, and compute the slopes."""
    require(len(plan.pairs) > 1, "give --pairs at least twice: the slopes are those between two sizes")
    sizes = []
    for pairs in plan.pairs:
        with tempfile.TemporaryDirectory() as folder:
            sizes.append(measure_text(Path(folder), pairs))
    rows = []
    for one in sizes:
        times = [f"{one[name]:.1f}" for name in ("one", "two")]
        memory = [f"{one[name] / 1e6:,.0f}" for name in ("memory", "training")]
        of_pair = [f"{one[name]:.0f}" for name in ("text", "prepared", "work")]
        rows.append([f"{one['pairs']:,}", *times, *memory, *of_pair])
    header = ["pairs", "one process, s", "two, s", "memory, MB", "training, MB"]
    slopes = fit(sizes)
    return {"sizes": sizes, "slopes": slopes}, [
        Table("Preparation", [*header, "text, bytes a pair", "prepared", "while preparing"], rows),
        Table("Cost of a pair", ["", "value"], [[name, f"{value:,.3g}"] for name, value in slopes.items()]),
    ]


def measure_text(folder: Path, pairs: int) -> dict[str, float]:
    """Write this number of pairs into a folder, prepare them by one process and by two; return measurements."""
    write_corpus(folder, pairs)
    alone = prepare(folder, 1, train=True)
    found = {"pairs": pairs, "one": alone["seconds"], "two": prepare(folder, 2)["seconds"]}
    found |= {"memory": alone["memory"], "training": alone["training"]}
    return found | {name: alone[name] / pairs for name in ("text", "prepared", "work")}


def fit(sizes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the costs of a pair, from the difference of the last two sizes: in µs, or in bytes of memory."""
    small, large = sizes[-2:]
    pairs = large["pairs"] - small["pairs"]
    one, two = (max(0.0, large[name] - small[name]) / pairs * 1e6 for name in ("one", "two"))
    shared = min(one, 2 * max(0.0, one - two))
    memory = max(0.0, large["memory"] - small["memory"]) / pairs
    return {"in one process, µs": one - shared, "shared by processes, µs": shared, "memory, bytes": memory}


def prepare(folder: Path, workers: int, *, train: bool = False) -> dict[str, float]:
    """Prepare a folder by the command; return seconds, memory, size of the text and the result, and most disk space.

    Memory and sizes are in bytes. Memory is that of the largest process. With `train`, a few updates of a tiny model
    follow, and the result has the memory of their process, in which the prepared text is mapped.
    """
    names = ",".join(sorted(path.name for path in folder.glob("train*.tsv")))
    text = sum(path.stat().st_size for path in folder.glob("train*.tsv"))
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        largest = 0

        def watch(process: int) -> bool:
            nonlocal largest
            largest = max(largest, _size(Path(cache)))
            return False

        settings = (
            "data=files", f"data.root={folder}", f"data.train=[{names}]", "data.validation=[validation.tsv]",
            "data.test=[validation.tsv]", f"data.num_proc={workers}", f"data.cache={cache}/prepared",
            f"tokenizer.vocab_size={VOCABULARY}", "tokenizer.input_sentence_size=100000",
        )  # fmt: skip
        done = processes.run((*processes.SEQ2SEQ, "prepare", *settings), folder=Path(cache), watch=watch)
        size = _size(Path(cache), "train")
        found = {"seconds": done.seconds, "memory": done.peak, "text": text, "prepared": size}
        found["work"] = max(largest, size)
        if train:
            few = ("model=tiny", "trainer.max_steps=5", "search=greedy", "trainer=cpu")
            found["training"] = processes.run((*processes.SEQ2SEQ, "train", *settings, *few), folder=Path(cache)).peak
        return found


def _size(folder: Path, start: str = "") -> int:
    """Return the bytes of files whose names begin with `start`; files that are deleted meanwhile do not count."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(parent, name).stat().st_size if name.startswith(start) else 0
    return total
