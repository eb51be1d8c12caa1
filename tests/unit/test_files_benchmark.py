"""Programs in processes of their own, their memory, and the measurement of long files."""

import os
import sys
from pathlib import Path

import pytest

from benchmarks import files, processes
from seq2seq.errors import UserError

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="memory is read from Linux's /proc"
)

# writes a line to out.partial every 5 ms, and renames it to out after 100
_WRITER = """
import os, time
with open("out.partial", "w", buffering=1) as file:
    for number in range(100):
        print(number, file=file)
        time.sleep(0.005)
os.rename("out.partial", "out")
"""
_CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = bytearray(300_000_000); print(len(x))'])"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processes, "INTERVAL", 0.01)


def write(folder: Path, measured: files.Measured, until: float) -> processes.Finished:
    watch = files.watching(folder / "out", 100, measured, until)
    return processes.run([sys.executable, "-c", _WRITER], folder=folder, watch=watch)


def test_a_command_is_killed_once_its_part_is_written_and_its_memory_is_told(tmp_path: Path):
    measured = files.Measured()
    assert write(tmp_path, measured, 0.5).is_stopped
    assert not (tmp_path / "out").exists()
    assert 50 <= len((tmp_path / "out.partial").read_text().splitlines()) < 100
    first, second, *rest = measured.highest
    assert first > 1
    assert second > 1
    assert not any(rest[1:])


@pytest.mark.slow
def test_the_peak_of_a_program_is_that_of_its_largest_process():
    finished = processes.run([sys.executable, "-c", _CHILD])
    assert 3e8 < finished.peak < 6e8


def test_a_failing_program_is_told_by_its_own_words():
    with pytest.raises(UserError, match=r"failed: ValueError: nothing$"):
        processes.run([sys.executable, "-c", "raise ValueError('nothing')"])
    with pytest.raises(UserError, match=r"failed: it was killed: too little memory$"):
        processes.run(["sh", "-c", "kill -9 $$"])


def test_a_program_does_not_outlive_a_watch_that_fails():
    seen: list[int] = []

    def watch(process: int) -> bool:
        seen.append(process)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        processes.run(["sleep", "60"], watch=watch)
    with pytest.raises(ProcessLookupError):
        os.kill(seen[0], 0)
