"""Processes that prepare text or read it ahead: their death, their end, and signals."""

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from seq2seq.data.processes import Processes, is_stopping
from seq2seq.errors import UserError

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_the_reading_process_loads_no_pytorch():
    """It would cost it some 180 MB, and seconds to start."""
    code = "import sys, seq2seq.data.epochs, seq2seq.data.processes; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def die(task: int) -> int:
    if task == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def test_a_process_that_dies_or_cannot_start_is_one_line(monkeypatch: pytest.MonkeyPatch):
    with (
        Processes(2, advice="try less") as workers,
        pytest.raises(UserError, match=r"a process died \(of 2\).*: try l"),
    ):
        list(workers.map(die, range(100)))
    assert not multiprocessing.active_children()
    monkeypatch.setattr(ProcessPoolExecutor, "submit", Mock(side_effect=OSError("handle is closed")))
    with Processes(2) as workers, pytest.raises(UserError, match=r"a process died \(of 2\).*lower data.num_proc"):
        list(workers.map(die, range(4)))


def wait_for_the_end(task: tuple[int, Path]) -> int:
    number, folder = task
    deadline = time.monotonic() + 30
    while number and not is_stopping():
        if time.monotonic() > deadline:
            (folder / "nobody said so").touch()
            break
        time.sleep(0.01)
    return number


@pytest.mark.slow
def test_tasks_at_work_hear_that_nobody_waits_any_more(tmp_path: Path):
    with Processes(2) as workers:
        assert next(workers.map(wait_for_the_end, ((number, tmp_path) for number in range(9)))) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_process_leaves_signals_to_training():
    """SLURM sends its warning to every process, a terminal its Ctrl-C; a thread starts this process for a GPU."""
    with Processes(1) as workers:
        items = workers.map(abs, itertools.count(7))
        first: list[int] = []
        thread = threading.Thread(target=lambda: first.append(next(items)))
        thread.start()
        while not (processes := multiprocessing.active_children()):
            time.sleep(0.001)
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            assert processes[0].pid is not None
            os.kill(processes[0].pid, name)  # in its first moments
        thread.join()
        assert first == [7]
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            os.kill(processes[0].pid, name)
        assert list(itertools.islice(items, 200)) == list(range(8, 208)), "in order, from the start that was asked for"
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_processes_end_while_a_result_is_being_sent():
    program = (
        "import itertools, time\nfrom seq2seq.data.processes import Processes\n"
        "if __name__ == '__main__':\n"
        "    with Processes(1) as workers:\n"
        "        items = workers.map(bytes, itertools.repeat(200_000_000)); next(items); time.sleep(0.3)\n"
        "    print('ended')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "ended\n"
