"""Cost per pair of preparing text: time, memory and disk, measured over two decades of size in some 15 minutes."""

import importlib.util
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

import torch

from benchmarks import processes
from benchmarks.command import Options, Results, Table
from benchmarks.data import write_corpus
from seq2seq.errors import UserError
from seq2seq.settings.checks import require

VOCABULARY = 2000  # size of the vocabulary; the costs depend little on it
_POSITIVE = ("work", "reached", "translated")  # slopes that are divisors


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `slopes`."""

    # sentence pairs of made-up text to prepare, at least two sizes; the slopes are those between the last two
    pairs: list[int] = field(default_factory=lambda: [10_000, 100_000, 1_000_000, 3_000_000])


@dataclass(frozen=True, kw_only=True)
class Slopes:
    """The costs per pair; the defaults are those of the machine in docs/preparation.md.

    Raises:
        UserError: a value is negative or not finite, or a divisor is 0.
    """

    fixed: float = 5.4  # seconds of any preparation, mainly for the vocabulary
    alone: float = 24.0  # µs per pair of preparation in a single process
    shared: float = 35.0  # µs per pair of preparation that processes share
    ray: float = 16.0  # seconds that a Ray cluster adds
    text: float = 123.0  # bytes per pair, as TSV
    prepared: float = 118.0  # bytes per pair, prepared
    work: float = 380.0  # bytes per pair on the disk during preparation, the result included
    memory: float = 206e6  # bytes of the largest process of preparation
    memory_a_pair: float = 18.0  # further bytes per pair
    reached: float = 0.111e12  # FLOP/s per device in training, as `profile` measures them
    translated: float = 431.0  # lines per second per device, as `files` measures them

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            bound = "greater than 0" if name in _POSITIVE else "at least 0"
            if not math.isfinite(value) or value < 0 or (value == 0 and name in _POSITIVE):
                raise UserError(f"the slope {name}={value:g} must be {bound}")


def run(plan: Plan, device: torch.device) -> Results:
    """Prepare made-up texts of several sizes, and compute the slopes.

    Raises:
        UserError: there is only one size, or a command fails.
    """
    require(len(plan.pairs) > 1, "give --pairs at least twice: the slopes are those between two sizes")
    sizes = []
    for pairs in plan.pairs:
        with tempfile.TemporaryDirectory() as folder:
            sizes.append(measure_text(Path(folder), pairs))
    rows = []
    for one in sizes:
        times = [f"{one[name]:.1f}" if name in one else "" for name in ("one", "two", "ray")]
        memory = [f"{one[name] / 1e6:,.0f}" for name in ("memory", "training")]
        of_pair = [f"{one[name]:.0f}" for name in ("text", "prepared", "work")]
        rows.append([f"{one['pairs']:,}", *times, *memory, *of_pair])
    header = ["pairs", "one process, s", "two, s", "two of Ray, s", "memory, MB", "training, MB"]
    slopes = asdict(fit(sizes))
    return {"sizes": sizes, "slopes": slopes}, [
        Table("Preparation", [*header, "text, bytes a pair", "prepared", "while preparing"], rows),
        Table("Slopes", ["", "value"], [[name, f"{value:,.3g}"] for name, value in slopes.items()]),
    ]


def measure_text(folder: Path, pairs: int) -> dict[str, float]:
    """Write this number of pairs into a folder, prepare them in up to three ways; return measurements."""
    write_corpus(folder, pairs)
    alone = prepare(folder, 1, train=True)
    found = {"pairs": pairs, "one": alone["seconds"], "two": prepare(folder, 2)["seconds"]}
    if importlib.util.find_spec("ray"):
        found["ray"] = prepare(folder, 2, on_ray=True)["seconds"]
    found |= {"memory": alone["memory"], "training": alone["training"]}
    return found | {name: alone[name] / pairs for name in ("text", "prepared", "work")}


def fit(sizes: Sequence[Mapping[str, float]]) -> Slopes:
    """Return the slopes between the last two sizes; those of training and translation are the defaults."""
    small, large = sizes[-2:]
    pairs = large["pairs"] - small["pairs"]
    one, two = (max(0.0, large[name] - small[name]) / pairs * 1e6 for name in ("one", "two"))  # µs per pair
    shared = min(one, 2 * max(0.0, one - two))
    return Slopes(
        fixed=max(0.0, small["one"] - one * small["pairs"] / 1e6),
        alone=one - shared,
        shared=shared,
        ray=max(0.0, large["ray"] - large["two"]) if "ray" in large else Slopes.ray,
        **{name: large[name] for name in ("text", "prepared", "work")},
        memory=small["memory"],
        memory_a_pair=max(0.0, large["memory"] - small["memory"]) / pairs,
    )


def prepare(folder: Path, workers: int, *, on_ray: bool = False, train: bool = False) -> dict[str, float]:
    """Prepare a folder by the command; return seconds, memory, size of the text and the result, and most disk space.

    Memory and sizes are in bytes. Memory is that of the largest process. With `train`, a few updates of a tiny model
    follow, and the result has the memory of their process, in which the prepared text is mapped.

    Raises:
        UserError: a command failed.
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
        ray = ("--ray", "local") if on_ray else ()
        done = processes.run((*processes.SEQ2SEQ, "prepare", *settings, *ray), folder=Path(cache), watch=watch)
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


def read_slopes(path: Path | None) -> Slopes:
    """Return slopes from a JSON file that `slopes` wrote, or that is an object of some slopes; None: the defaults.

    Missing slopes have their defaults, which are those of docs/preparation.md.

    Raises:
        UserError: the file cannot be read, or has unknown names or invalid values.
    """
    if path is None:
        return Slopes()
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        values = values.get("slopes", values)
        return replace(Slopes(), **{name: float(value) for name, value in values.items()})
    except (UserError, OSError, ValueError, TypeError, AttributeError) as error:
        known = ", ".join(sorted(field.name for field in fields(Slopes)))
        raise UserError(f"--slopes {path}: {error}; the file is a JSON object of {known}") from error
