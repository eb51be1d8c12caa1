"""Speed and memory of translating a long file on the CPU: with one process, with several, and killed and resumed."""

import hashlib
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from benchmarks import processes
from benchmarks.command import Options, Results, Table
from benchmarks.data import BUNDLED
from seq2seq.storage.output import read_lines

QUARTERS = 4


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `files`."""

    model: Path  # bundle that translates from English
    lines: int = 1_000_000  # lines of the file, which are drawn from the bundled corpus
    workers: list[int] = field(default_factory=lambda: [1, 2])  # processes of each run (--workers of translate.py)
    kills: int = 2  # times that one more run is killed and resumed, with the most workers; 0: no such run
    beam: int = 1  # hypotheses that the search keeps; 1 is greedy search


@dataclass
class Measured:
    """Measurements of one translation of the whole file."""

    seconds: float = 0.0
    highest: list[float] = field(default_factory=lambda: [0.0] * QUARTERS)  # peak of all processes, MB, by quarter
    digest: str = ""


def run(plan: Plan, device: torch.device) -> Results:
    """Translate the file with each number of workers, then once more with kills, and compare the output files."""
    runs = [(workers, 0) for workers in plan.workers]
    if plan.kills:
        runs.append((max(plan.workers), plan.kills))
    with tempfile.TemporaryDirectory(prefix="files-") as folder:
        source = Path(folder) / "input.txt"
        write_text(source, [BUNDLED / f"{name}.train.tsv" for name in ("grammar", "everyday")], plan.lines)
        results = [translate(source, plan, workers, kills) for workers, kills in runs]
    rows = [
        [
            f"--workers {workers}" + (f", killed {kills} times" if kills else ""),
            f"{plan.lines / result.seconds:,.0f}",
            *(f"{highest:,.0f}" for highest in result.highest),
            "same" if result.digest == results[0].digest else "others",
        ]
        for (workers, kills), result in zip(runs, results, strict=True)
    ]
    header = ["a file", "lines/s", *(f"MB, quarter {number + 1}" for number in range(QUARTERS)), "bytes"]
    return {"runs": [asdict(result) for result in results]}, [Table(f"{plan.lines:,} lines", header, rows)]


def write_text(target: Path, corpora: Sequence[Path], lines: int) -> None:
    """Write random lines from the first columns of the corpora, the same in each call."""
    known = [line.partition("\t")[0] for path in corpora for line in read_lines(path)]
    drawn = random.Random(1)
    with target.open("w", encoding="utf-8") as file:
        file.writelines(f"{drawn.choice(known)}\n" for _ in range(lines))


def translate(source: Path, plan: Plan, workers: int, kills: int = 0) -> Measured:
    """Translate the file and return measurements; `kills` times, at equal parts of the output, kill and resume."""
    measured, target = Measured(), source.with_name(f"output-{workers}-{kills}.txt")
    command = [sys.executable, "translate.py", "--model", str(plan.model.resolve()), "--beam", str(plan.beam)]
    command += ["--workers", str(workers), "--device", "cpu", "--input", str(source), "--output", str(target)]
    threads = str(max(1, torch.get_num_threads() // workers))
    for killed in range(kills + 1):
        until = (killed + 1) / (kills + 1) if killed < kills else 2.0
        finished = processes.run(
            [*command, *(["--resume"] if killed else [])],
            watch=watching(target, plan.lines, measured, until), OMP_NUM_THREADS=threads,
        )  # fmt: skip
        measured.seconds += finished.seconds
        if not finished.is_stopped:
            break
    measured.digest = hashlib.sha256(target.read_bytes()).hexdigest()
    return measured


def watching(target: Path, lines: int, measured: Measured, until: float) -> Callable[[int], bool]:
    """Return a function that records the memory of a translation, and whether the share `until` is written."""
    partial = target.with_name(target.name + ".partial")
    written, position = 0, 0  # lines and bytes read so far

    def watch(process: int) -> bool:
        nonlocal written, position
        if partial.exists():
            with partial.open("rb") as file:
                file.seek(position)
                new = file.read()
            written, position = written + new.count(b"\n"), position + len(new)
        quarter = min(written * QUARTERS // lines, QUARTERS - 1)
        measured.highest[quarter] = max(measured.highest[quarter], processes.memory_of(process))
        return written / lines >= until

    return watch
