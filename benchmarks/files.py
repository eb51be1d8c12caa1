"""Measure lines/s and memory of translating a long file: with one process, with several, and killed and resumed."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.tables import Table
from seq2seq.errors import UserError
from seq2seq.files import read_lines

ROOT = Path(__file__).parents[1]
_QUARTERS = 4
_INTERVAL = 1.0  # seconds between two measurements of memory and progress


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of the measurement."""

    lines: int = 1_000_000
    workers: Sequence[int] = (1, 2)
    kills: int = 2  # number of kills in an additional run with the most workers
    beam: int = 1
    compiles: str = "auto"
    seed: int = 1


@dataclass
class Measured:
    """Measurements of one translation of the whole file."""

    seconds: float = 0.0
    highest: list[float] = field(default_factory=lambda: [0.0] * _QUARTERS)  # peak of all processes, MB, by quarter
    digest: str = ""


def run(plan: Plan, model: Path, text: Sequence[Path], threads: int) -> dict[str, Any]:
    """Translate the file with each number of workers, then once more with kills, and compare the output files.

    Raises:
        UserError: a text cannot be read, a translation fails, or there is no /proc to read memory from.
    """
    if not Path("/proc/self/smaps_rollup").exists():
        raise UserError("memory is read from /proc, which only Linux has: run this benchmark there")
    with tempfile.TemporaryDirectory(prefix="files-") as place:
        source = Path(place) / "input.txt"
        write_text(source, text, plan.lines, plan.seed)
        runs = [(workers, 0) for workers in plan.workers]
        if plan.kills:
            runs.append((max(plan.workers), plan.kills))
        results = [
            translate(source, Path(place) / f"output-{number}.txt", model, plan, workers, kills, threads)
            for number, (workers, kills) in enumerate(runs)
        ]
    first = results[0].digest
    rows = [
        [
            f"--workers {workers}" + (f", killed {kills} times" if kills else ""),
            f"{plan.lines / result.seconds:,.0f}",
            *(f"{highest:,.0f}" for highest in result.highest),
            "same" if result.digest == first else "others",
        ]
        for (workers, kills), result in zip(runs, results, strict=True)
    ]
    header = ["a file", "lines/s", *(f"MB, quarter {number + 1}" for number in range(_QUARTERS)), "bytes"]
    return {
        "plan": asdict(plan),
        "runs": [asdict(result) for result in results],
        "tables": [asdict(Table(f"{plan.lines:,} lines", header, rows))],
    }


def write_text(target: Path, text: Sequence[Path], lines: int, seed: int) -> None:
    """Write random lines from the first columns of the texts.

    Raises:
        UserError: a text cannot be read or is empty.
    """
    known = [line.partition("\t")[0] for path in text for line in read_lines(path)]
    if not known:
        raise UserError(f"{', '.join(map(str, text))}: no line to translate")
    drawn = random.Random(seed)
    with target.open("w", encoding="utf-8") as file:
        file.writelines(f"{drawn.choice(known)}\n" for _ in range(lines))


def translate(source: Path, target: Path, model: Path, plan: Plan, workers: int, kills: int, threads: int) -> Measured:
    """Translate the file and return measurements; `kills` times, at equal parts of the output, kill and resume.

    Raises:
        UserError: the command fails.
    """
    measured, killed = Measured(), 0
    threads_each = ["env", f"OMP_NUM_THREADS={max(1, threads // workers)}"]
    command = [sys.executable, "translate.py", "--model", str(model.resolve()), "--beam", str(plan.beam)]
    command += ["--workers", str(workers), "--input", str(source), "--output", str(target)]
    command += ["--compile", plan.compiles]
    while True:
        resume = ["--resume"] if killed else []
        start = time.perf_counter()
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                threads_each + command + resume,
                cwd=ROOT,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            is_killed = _watch(process, target, plan, measured, (killed + 1) / (kills + 1) if killed < kills else 2.0)
            measured.seconds += time.perf_counter() - start
            if is_killed:
                killed += 1
                continue
            if process.returncode:
                errors.seek(0)
                raise UserError(f"{' '.join(command)} failed: {errors.read().decode().strip()}")
        measured.digest = hashlib.sha256(target.read_bytes()).hexdigest()
        return measured


def _watch(process: subprocess.Popen[bytes], target: Path, plan: Plan, measured: Measured, until: float) -> bool:
    """Measure the command until it ends; kill it when the share `until` of its lines is written.

    Returns:
        Whether the command was killed.
    """
    partial = target.with_name(target.name + ".partial")
    written, place = 0, 0
    while process.poll() is None:
        time.sleep(_INTERVAL)
        if partial.exists():
            with partial.open("rb") as file:
                file.seek(place)
                new = file.read()
            written, place = written + new.count(b"\n"), place + len(new)
        done = written / plan.lines
        quarter = min(int(done * _QUARTERS), _QUARTERS - 1)
        measured.highest[quarter] = max(measured.highest[quarter], _memory(process.pid))
        if done >= until:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
    return False


def _memory(session: int) -> float:
    """Return the memory of all processes of a session (MB); shared memory counts once."""
    total = 0.0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if os.getsid(int(folder.name)) == session:
                    lines = (folder / "smaps_rollup").read_text(encoding="utf-8").splitlines()
                    total += next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)
            except OSError:  # the process has ended meanwhile
                continue
    return total
