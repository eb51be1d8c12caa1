"""The processes of a launcher take the decision of the first, however long it takes, and end if it ends."""

import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from lightning.pytorch.utilities import rank_zero_only

from seq2seq.errors import UserError
from seq2seq.storage.cache import write_complete
from seq2seq.training import processes
from seq2seq.training.processes import broadcast_decision, share_folder

pytestmark = pytest.mark.cluster
RANKS = 4
NOT_CONNECTED = (
    "the 4 processes are not connected: one has ended, or did not start within 0:00:06 and find 127.0.0.1, port"
)


def together(work: Callable[[int], object]) -> list[object]:
    """Call work(rank) in a process of each rank; return the results, or the messages of errors, or None if it died."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    forking = multiprocessing.get_context("forkserver")  # of a process without threads, whose locks they would inherit
    forking.set_forkserver_preload([processes.__name__])
    pipes = [forking.Pipe() for _ in range(RANKS)]
    started = [
        forking.Process(target=_run, args=(work, rank, port, pipe), daemon=True) for rank, (_, pipe) in enumerate(pipes)
    ]
    for process in started:
        process.start()
    end = time.monotonic() + 60
    for process in started:
        process.join(max(0, end - time.monotonic()))
    running = [process for process in started if process.exitcode is None]
    for process in running:
        process.kill()
    assert not running
    return [ours.recv() if ours.poll() else None for ours, _ in pipes]


def _run(work: Callable[[int], object], rank: int, port: int, results: Connection) -> None:
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": RANKS, "RANK": rank}
    os.environ.update({name: str(value) for name, value in shared.items()})
    rank_zero_only.rank = rank  # pyright: ignore[reportFunctionMemberAccess]
    processes.PATIENCE = timedelta(seconds=6)
    try:
        results.send(work(rank))
    except UserError as error:
        results.send(str(error))


def wait() -> str:
    time.sleep(8)  # longer than the patience of training
    return "blue"


def fail() -> str:
    raise UserError("the text is bad")


def die() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def agree(decide: Callable[[], str], rank: int) -> str:
    return broadcast_decision("colour", decide)


@pytest.mark.parametrize(
    ("decide", "first", "others"),
    [
        (wait, "blue", "blue"),
        (fail, "the text is bad", "the first process could not begin; its own error says why"),
        (die, None, NOT_CONNECTED),
    ],
)
def test_the_first_decides_for_all(decide: Callable[[], str], first: object, others: str) -> None:
    start = time.monotonic()
    results = together(partial(agree, decide))
    assert results[0] == first
    assert [str(result).startswith(others) for result in results[1:]] == [True] * (RANKS - 1), results
    assert time.monotonic() - start < 40


def share(root: Path, rank: int) -> tuple[str, list[str]]:
    """Share a folder; the last rank is on a machine on which another folder has the same name."""
    made, folder = list[str](), root / "cache"

    def make() -> Path:
        made.append("made")
        if not folder.exists():
            write_complete(folder, lambda draft: (draft / "text").touch())
        return folder

    if rank == RANKS - 1:
        folder = root / "other"
        make()
        made.clear()
        processes.Path = lambda name: folder  # type: ignore[attr-defined]
    return str(share_folder("text", make)), made


def test_who_sees_the_folder_of_the_first_does_not_check_it(tmp_path: Path) -> None:
    ours = str(tmp_path / "cache")
    expected = [(ours, ["made"]), *[(ours, [])] * 2, (str(tmp_path / "other"), ["made"])]
    assert together(partial(share, tmp_path)) == expected
