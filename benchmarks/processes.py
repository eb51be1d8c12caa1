"""Run programs in processes of their own, and measure their time and memory; needs Linux."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from seq2seq.errors import UserError

REPOSITORY = Path(__file__).parents[1]
SEQ2SEQ = (sys.executable, "-c", "from seq2seq.cli import main; main()")  # the command `seq2seq`
INTERVAL = 0.1  # seconds between two measurements of memory, and between two calls of `watch`


@dataclass(frozen=True)
class Finished:
    """A program that has ended."""

    seconds: float  # the start of the program included
    peak: int  # memory of the largest process (bytes): the program or one of its children
    is_stopped: bool  # whether `watch` stopped the program


def run(
    command: Sequence[str],
    *,
    folder: Path = REPOSITORY,
    watch: Callable[[int], bool] | None = None,
    **environment: str,
) -> Finished:
    """Run a program until it ends.

    Args:
        command: the program and its arguments.
        folder: working folder of the program.
        watch: a function that gets the program's process number every INTERVAL seconds; when it returns True, the
            program and its children are killed.
        environment: variables of the program's environment.
    """
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}
    start, peak, is_stopped = time.perf_counter(), 0, False
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
            start_new_session=True,
        )  # fmt: skip
        try:
            while process.poll() is None:
                peak = max(peak, *read_memory(process.pid, "status", "VmHWM"))
                is_stopped = is_stopped or (watch is not None and watch(process.pid))
                if is_stopped:
                    _kill(process.pid)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(INTERVAL)
        except BaseException:
            _kill(process.pid)
            process.wait()
            raise
        seconds = time.perf_counter() - start
        if process.returncode and not is_stopped:
            errors.seek(0)
            reason = (errors.read().strip().splitlines() or ["it was killed: too little memory"])[-1]
            raise UserError(f"{' '.join(command)} failed: {reason}")
        return Finished(seconds, peak, is_stopped)


def _kill(session: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


def memory_of(process: int) -> float:
    """Return the memory (MB) of a process and of all processes of its session; shared memory counts once.

    Processes of the session count only if the process began the session.
    """
    return sum(read_memory(process, "smaps_rollup", "Pss")) / 1e6


def read_memory(process: int, file: str, name: str) -> list[int]:
    """Return a number of bytes of a process and of each process of its session, from a file of /proc; at first 0."""
    if not Path("/proc/self/smaps_rollup").exists():
        raise UserError("memory is read from /proc, which only Linux has: run this benchmark there")
    found = [0]
    for folder in Path("/proc").iterdir():
        with suppress(OSError):  # the process has ended meanwhile, or belongs to somebody else
            if folder.name.isdigit() and process in (int(folder.name), os.getsid(int(folder.name))):
                text = (folder / file).read_text(encoding="utf-8")
                found += [1024 * int(size) for size in re.findall(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)]
    return found
