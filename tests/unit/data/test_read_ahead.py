"""The process that reads training text ahead: its errors, its death, and signals."""

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from unittest.mock import Mock

import pytest

from seq2seq.data import processes as workers
from seq2seq.data.processes import read_ahead
from seq2seq.errors import UserError
from tests.thin import thin

ROOT = Path(__file__).parents[3]


def counting(start: dict[str, int]) -> Iterator[int]:
    return itertools.count(start["epoch"])


class ResponseError(Exception):
    """An error that cannot be unpickled, as those of HTTP libraries."""

    def __init__(self, *, response: str) -> None:
        super().__init__(response)


def failing(start: dict[str, int]) -> Iterator[int]:
    raise ConnectionResetError("the hub is gone") if start["epoch"] else ResponseError(response="the hub is gone")
    yield


@pytest.mark.slow
def test_the_reading_process_loads_no_pytorch():
    """It would cost it some 180 MB, and seconds to start."""
    code = "import sys, seq2seq.data.epochs, seq2seq.data.processes; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


@pytest.mark.parametrize("epoch", thin([0, 1], [0]))  # an error that can be unpickled is the easier case
def test_any_error_but_the_users_comes_as_text(epoch: int):
    with pytest.raises(RuntimeError, match=r"(?s)reading training text failed:.*Error: the hub is gone"):
        next(read_ahead([failing], {"epoch": epoch}))


def test_a_killed_reading_process_is_named_in_one_line():
    items = read_ahead([counting], {"epoch": 0})
    next(items)
    (process,) = multiprocessing.active_children()
    process.kill()
    with pytest.raises(UserError, match=r"a process that reads the training text ended, perhaps for want of memory"):
        list(itertools.islice(items, 100_000))
    assert not multiprocessing.active_children()


def test_a_second_process_that_cannot_start_is_named_and_the_first_ends(monkeypatch: pytest.MonkeyPatch):
    answers = [Mock(side_effect=BrokenProcessPool("no more processes")), workers._Pool.submit]
    monkeypatch.setattr(workers._Pool, "submit", lambda *given: answers.pop()(*given))
    with pytest.raises(UserError, match=r"a process that reads the training text ended"):
        next(read_ahead([counting, counting], {"epoch": 0}))
    assert not multiprocessing.active_children()


def test_the_reading_process_leaves_signals_to_training():
    """SLURM sends its warning to every process, a terminal its Ctrl-C; a thread starts this process for a GPU."""
    items = read_ahead([counting], {"epoch": 7})
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
    items.close()
    assert not multiprocessing.active_children()


def large(start: dict[str, int]) -> Iterator[bytes]:
    while True:
        yield bytes(200_000_000)  # whose sending takes a while


@pytest.mark.slow
def test_reading_ends_while_an_item_is_being_sent():
    program = (
        "import time\nfrom seq2seq.data.processes import read_ahead\n"
        "from tests.unit.data.test_read_ahead import large\n"
        "if __name__ == '__main__':\n"
        "    items = read_ahead([large], {}); next(items); time.sleep(0.3); items.close(); print('ended')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "ended\n"
