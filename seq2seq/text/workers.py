"""Who does a job's tasks: this process, or several; tasks and results are plain values, results come in order."""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar, runtime_checkable

from seq2seq.errors import UnfinishedError

Task = TypeVar("Task")
Result = TypeVar("Result")


@runtime_checkable
class Workers(Protocol):
    """Whoever can apply a function of a module to tasks; use as a context manager.

    Attributes:
        size: how many tasks run at a time.
    """

    size: int

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Apply function to every task; results in the order of tasks."""
        ...

    def __enter__(self) -> "Workers": ...

    def __exit__(self, *_: object) -> None: ...


def open_workers(num_proc: int) -> Workers:
    """Take this process for one, else so many new ones."""
    return Processes(num_proc) if num_proc > 1 else Here()


class Here:
    """Works in this process."""

    size = 1

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Apply function to one task after the other."""
        return map(function, tasks)


class Processes:
    """Works in new processes, which end with this one however it ends."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __enter__(self) -> Workers:
        context = get_context("spawn")  # a forked process would have this one's threads' locks
        watched, self._lifeline = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(self.size, context, _begin, (watched,))
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is not None:
            self._lifeline.close()  # no need to wait for what nobody will take
        self._pool.shutdown(cancel_futures=True)
        self._lifeline.close()

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Apply function to tasks, a few ahead of the results taken.

        Raises:
            UnfinishedError: a process died; or what function raises.
        """
        waiting: deque[Future[Any]] = deque()
        try:
            for task in tasks:
                waiting.append(self._pool.submit(function, task))
                if len(waiting) > 2 * self.size:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise UnfinishedError(
                f"one of {self.size} processes died, for want of memory perhaps: the same command goes on from what "
                "is done; lower data.num_proc"
            ) from error


def _begin(lifeline: Connection) -> None:
    """Leave Ctrl-C to the first process, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        with suppress(EOFError, OSError):
            lifeline.recv()  # nothing ever comes: it returns when the other end is closed, or its process gone
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
