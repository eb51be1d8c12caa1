"""Measure the cost per pair of preparation, training and translation, over two decades of size."""

import contextlib
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import files, profile
from benchmarks.data import BUNDLED, drawn_pairs, epochs_of, write_corpus
from benchmarks.tables import Table
from seq2seq.errors import UserError
from seq2seq.files import find_model
from seq2seq.settings.model import ModelConfig

SIZES = (10_000, 100_000, 1_000_000, 3_000_000)  # pairs, over more than two decades
LINES = (200, 2_000, 20_000)
VOCABULARY = 2000  # size of the vocabulary for measurements of text, which depend little on this size
_POSITIVE = ("work", "reached", "translated")  # slopes that are divisors
_PROGRAM = "from seq2seq.cli import main; main()"


@dataclass(frozen=True, kw_only=True)
class Slopes:
    """The costs per pair; the defaults are those of the machine in docs/scale.md.

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
    memory: float = 535e6  # bytes of the largest process of preparation
    memory_a_pair: float = 17.0  # further bytes per pair
    reached: float = 0.111e12  # FLOP/s per device in training
    translated: float = 431.0  # lines per second per device

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            bound = "greater than 0" if name in _POSITIVE else "at least 0"
            if not math.isfinite(value) or value < 0 or (value == 0 and name in _POSITIVE):
                raise UserError(f"the slope {name}={value:g} must be {bound}")


def measure(
    model: ModelConfig,
    vocab_size: int,
    device: torch.device,
    bundle: Path | None = None,
    pairs: Sequence[int] = SIZES,
    lines: Sequence[int] = LINES,
) -> dict[str, Any]:
    """Measure each slope over these sizes: preparation of made-up text, training, translation.

    Without a bundle, the translated lines per second are those of docs/scale.md.

    Raises:
        UserError: the bundle does not exist, or more lines were translated in no more time than fewer.
    """
    if bundle is not None:
        bundle = find_model(bundle)  # fails before minutes of measuring
    sizes, rows = [], []
    for size in pairs:
        with tempfile.TemporaryDirectory() as folder:
            sizes.append(measure_text(Path(folder), size))
    trained = training_rate(model, vocab_size, device)
    seconds = {} if bundle is None else translation_seconds(bundle, lines)
    slopes = fit(sizes, trained["reached"], seconds)
    for one in sizes:
        times = [f"{one[name]:.1f}" if name in one else "" for name in ("one", "two", "ray")]
        sides = [f"{one[name]:.0f}" for name in ("text", "prepared", "work")]
        rows.append(
            [f"{one['pairs']:,}", *times, *(f"{one[name] / 1e6:,.0f}" for name in ("memory", "training")), *sides]
        )
    header = ["pairs", "one process, s", "two, s", "two of Ray, s", "memory, MB", "training, MB"]
    header += ["text, bytes a pair", "prepared", "while preparing"]
    told = [[name, f"{value:,.3g}"] for name, value in (trained | asdict(slopes)).items()]
    tables = [Table("Preparation", header, rows), Table("Slopes", ["", "value"], told)]
    if seconds:
        cells = [[f"{count:,}", f"{taken:.1f}"] for count, taken in seconds.items()]
        tables.insert(1, Table("Translation, one line for each sentence", ["lines", "seconds"], cells))
    return {
        "sizes": sizes,
        "training": trained,
        "translation": seconds,
        "slopes": asdict(slopes),
        "tables": [asdict(table) for table in tables],
    }


def measure_text(place: Path, pairs: int) -> dict[str, float]:
    """Write this number of pairs into a folder, prepare them in up to three ways; return measurements."""
    write_corpus(place, pairs)
    text = sum(path.stat().st_size for path in place.glob("train*.tsv"))
    alone = prepare(place, 1, train=True)
    found = {"pairs": pairs, "one": alone["seconds"], "two": prepare(place, 2)["seconds"]}
    if importlib.util.find_spec("ray"):
        found["ray"] = prepare(place, 2, on_ray=True)["seconds"]
    found |= {"memory": alone["memory"], "training": alone["training"]}
    bytes_a_pair = {key: alone[key] / pairs for key in ("prepared", "work")}
    return found | bytes_a_pair | {"text": text / pairs}


def fit(found: Sequence[Mapping[str, float]], reached: float, translated: Mapping[int, float]) -> Slopes:
    """Return the slopes between the last two sizes of `found`.

    translated maps numbers of lines to seconds of translation; empty: not measured.

    Raises:
        UserError: more lines were translated in no more time than fewer.
    """
    small, large = found[-2:]
    pairs = large["pairs"] - small["pairs"]
    one, two = (max(0.0, large[name] - small[name]) / pairs * 1e6 for name in ("one", "two"))  # µs per pair
    shared = min(one, 2 * max(0.0, one - two))
    fewer, more = sorted(translated)[-2:] or (0, 0)
    seconds = translated[more] - translated[fewer] if translated else math.inf
    if seconds <= 0:
        raise UserError(f"{more:,} lines were translated as fast as {fewer:,}: measure on a machine that is not busy")
    lines = (more - fewer) / seconds if translated else Slopes.translated
    return Slopes(
        fixed=max(0.0, small["one"] - one * small["pairs"] / 1e6),
        alone=one - shared,
        shared=shared,
        ray=max(0.0, large["ray"] - large["two"]) if "ray" in large else Slopes.ray,
        **{name: large[name] for name in ("text", "prepared", "work")},
        memory=small["memory"],
        memory_a_pair=max(0.0, large["memory"] - small["memory"]) / pairs,
        reached=reached,
        translated=lines,
    )


def translation_seconds(bundle: Path, lines: Sequence[int]) -> dict[int, float]:
    """Return the seconds of `translate.py --beam 1`, start included, for each number of lines of the bundled text."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in lines:
            source = Path(folder) / f"{count}.txt"
            files.write_text(source, [BUNDLED / "everyday.test.tsv"], count, seed=1)
            plan = files.Plan(lines=count)
            target = source.with_suffix(".out")
            found[count] = files.translate(source, target, bundle, plan, 1, 0, torch.get_num_threads()).seconds
    return found


def training_rate(model: ModelConfig, vocab_size: int, device: torch.device) -> dict[str, float]:
    """Return the FLOP/s of updates on random ids, the FLOP/s of one large product, and the ratio of the two."""
    plan = profile.Plan(rounds=3, batches=4, precision="32-true" if device.type == "cpu" else "bf16-mixed")
    pairs = drawn_pairs(40 * (plan.rounds * plan.batches + 1) * plan.max_tokens // 100, vocab_size, plan.seed)
    found = profile.run(epochs_of(pairs, plan.max_tokens, plan.seed), vocab_size, model, plan, device)
    reached = sum(found["flops"]) / sum(found["whole_seconds"])
    peak = sum(found["square_rates"]) / plan.rounds * 1e9
    return {"reached": reached, "peak": peak, "utilisation": reached / peak}


def prepare(place: Path, processes: int, *, on_ray: bool = False, train: bool = False) -> dict[str, float]:
    """Prepare a folder by the command; return its seconds, memory, size of the result and most disk space.

    Memory and sizes are in bytes. Memory is that of the largest process. With `train`, a few updates of a tiny model
    follow, and the result has the memory of their process, in which the prepared text is mapped.

    Raises:
        RuntimeError: a command failed.
    """
    files = ",".join(sorted(path.name for path in place.glob("train*.tsv")))
    with tempfile.TemporaryDirectory(dir=place) as cache, _most_bytes(Path(cache)) as most:
        settings = (
            "data=files", f"data.root={place}", f"data.train=[{files}]", "data.validation=[validation.tsv]",
            "data.test=[validation.tsv]", f"data.num_proc={processes}", f"data.cache={cache}/prepared",
            f"tokenizer.vocab_size={VOCABULARY}", "tokenizer.input_sentence_size=100000",
        )  # fmt: skip
        seconds, memory = _run(cache, "prepare", *settings, *(("--ray", "local") if on_ray else ()))
        prepared = _size(Path(cache), "train")
        found = {"seconds": seconds, "memory": memory, "prepared": prepared, "work": max(most[-1], prepared)}
        if train:
            few = ("model=tiny", "trainer.max_steps=5", "search=greedy", "trainer=cpu")
            found["training"] = _run(cache, "train", *settings, *few)[1]
        return found


def _run(folder: str, command: str, *arguments: str) -> tuple[float, float]:
    """Run a command of the package in a folder; return seconds, and the memory (bytes) of the largest process."""
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, command, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    ) as process:
        assert process.stderr is not None
        message = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(message)
    return time.perf_counter() - start, usage.ru_maxrss * 1024.0


@contextlib.contextmanager
def _most_bytes(folder: Path) -> Iterator[list[int]]:
    """Measure the size of a folder repeatedly; yield a list whose last item is the largest size so far (bytes)."""
    seen, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            seen.append(max(seen[-1], _size(folder)))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield seen
    finally:
        ended.set()
        watching.join()


def _size(folder: Path, start: str = "") -> int:
    """Return the bytes of files whose names begin with `start`; files that are deleted meanwhile do not count."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += (Path(parent) / name).stat().st_size if name.startswith(start) else 0
    return total


def read_slopes(path: Path | None) -> Slopes:
    """Return slopes from a JSON file that --measure wrote, or that has an object of some slopes; None: the defaults.

    Missing slopes have their defaults, which are those of docs/scale.md.

    Raises:
        UserError: the file cannot be read, or has unknown names or invalid values.
    """
    if path is None:
        return Slopes()
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        values = values.get("scale", values).get("slopes", values)
        return replace(Slopes(), **{name: float(value) for name, value in values.items()})
    except UserError as error:
        raise UserError(f"--slopes {path}: {error}") from error
    except (OSError, ValueError, TypeError, AttributeError) as error:
        known = ", ".join(sorted(field.name for field in fields(Slopes)))
        raise UserError(f"--slopes {path} has no slopes ({error}): give a JSON object of {known}") from error
