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
from pathlib import Path

import pytest

from seq2seq.errors import UserError
from seq2seq.workers import read_ahead

ROOT = Path(__file__).parents[3]
START = {"epoch": 0}


def counting(place: dict[str, int]) -> Iterator[int]:
    return itertools.count(place["epoch"])


class ResponseError(Exception):
    """An error that cannot be unpickled, as those of HTTP libraries."""

    def __init__(self, *, response: str) -> None:
        super().__init__(response)


def failing(place: dict[str, int]) -> Iterator[int]:
    raise ConnectionResetError("the hub is gone") if place["epoch"] else ResponseError(response="the hub is gone")
    yield


def test_items_come_in_order_from_a_place_on():
    items = read_ahead(counting, {"epoch": 7})
    assert list(itertools.islice(items, 100)) == list(range(7, 107))
    items.close()
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("epoch", [0, 1])
def test_any_error_but_the_users_comes_as_text(epoch: int):
    with pytest.raises(RuntimeError, match=r"(?s)reading training text failed:.*Error: the hub is gone"):
        next(read_ahead(failing, {"epoch": epoch}))


def test_a_killed_reading_process_is_named_in_one_line():
    items = read_ahead(counting, START)
    next(items)
    (process,) = multiprocessing.active_children()
    process.kill()
    with pytest.raises(UserError, match=r"reads the training text ended, perhaps for want of memory"):
        list(itertools.islice(items, 100_000))
    assert not multiprocessing.active_children()


def test_the_reading_process_leaves_signals_to_training():
    """SLURM sends its warning to every process, a terminal its Ctrl-C; a thread starts this process for a GPU."""
    items = read_ahead(counting, START)
    first: list[int] = []
    thread = threading.Thread(target=lambda: first.append(next(items)))
    thread.start()
    while not (processes := multiprocessing.active_children()):
        time.sleep(0.001)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        assert processes[0].pid is not None
        os.kill(processes[0].pid, name)  # in its first moments
    thread.join()
    assert first == [0]
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        os.kill(processes[0].pid, name)
    assert list(itertools.islice(items, 200)) == list(range(1, 201))
    items.close()
    assert not multiprocessing.active_children()


def large(place: dict[str, int]) -> Iterator[bytes]:
    while True:
        yield bytes(200_000_000)  # whose sending takes a while


@pytest.mark.slow
def test_reading_ends_while_an_item_is_being_sent():
    program = (
        "import time; from seq2seq.workers import read_ahead; from tests.unit.text.test_read_ahead import large\n"
        "if __name__ == '__main__':\n"
        "    items = read_ahead(large, {}); next(items); time.sleep(0.3); items.close(); print('ended')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "ended\n"
