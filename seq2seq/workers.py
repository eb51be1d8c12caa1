"""Processes that prepare text, read it ahead, or translate it; tasks and results are values that can be pickled.

This module and its imports load no PyTorch: what prepares text does not need it.
"""

import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar, runtime_checkable

from seq2seq.errors import UnfinishedError, UserError

Task = TypeVar("Task")
Result = TypeVar("Result")
Place = TypeVar("Place")
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # signals that end training in good order


@runtime_checkable
class Workers(Protocol):
    """Applies a function of a module to tasks; used as a context manager.

    Attributes:
        size: how many tasks run at a time.
    """

    size: int

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Apply function to every task; results in the order of tasks."""
        ...

    def __enter__(self) -> "Workers": ...

    def __exit__(self, *_: object) -> None: ...


class Processes:
    """Works in `size` new processes, which end with this one however it ends; in this process if size is 1."""

    def __init__(
        self, size: int, begin: Callable[[], object] | None = None, *, way_out: str = "lower data.num_proc"
    ) -> None:
        """Set the number, what every new process does first, and what helps if memory runs out."""
        self.size, self._begin, self._way_out = size, begin, way_out

    def __enter__(self) -> Workers:
        self._pool = _Pool(self.size, self._begin) if self.size > 1 else None
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.end()

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Apply function to tasks, a few ahead of the results taken; a long function looks at `is_stopping`.

        Raises:
            UnfinishedError: a process died; or what function raises.
        """
        if self._pool is None:
            yield from map(function, tasks)
            return
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
                f"one of {self.size} processes died, perhaps for want of memory: the same command goes on from what "
                f"is done; {self._way_out}"
            ) from error


def read_ahead(source: Callable[[Place], Iterator[Result]], place: Place) -> Generator[Result, None, None]:
    """Read the endless items of a source in a process of its own, which prepares the next one while one is used.

    The process ignores the signals that end training, because a terminal's Ctrl-C and SLURM's warnings go to both
    processes and this one decides what to do about them.

    Raises:
        UserError: the source raised it, or the process was killed.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)  # until the new process ignores them
    try:
        resource_tracker.ensure_running()  # its start unblocks signals, so it has to run already
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        pool = _Pool(1, partial(_begin_to_read, source, place), ignored=_STOPS)
        waiting = pool.submit(_read_next)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    try:
        while True:
            item = waiting.result()
            waiting = pool.submit(_read_next)
            yield item
    except BrokenProcessPool as error:
        raise UserError(
            "the process that reads the training text ended, perhaps for want of memory: resume=runs/NAME goes on from "
            "the last checkpoint; a new run may lower data.block"
        ) from error
    finally:
        pool.end()


class _Pool:
    """Processes that ignore some signals, and end with this process however it ends."""

    def __init__(
        self, size: int, begin: Callable[[], object] | None, ignored: Sequence[int] = (signal.SIGINT,)
    ) -> None:
        context = get_context("spawn")  # a forked process would have this one's threads' locks
        watched, self._lifeline = context.Pipe(duplex=False)
        self._stopping = context.Event()
        self._executor = ProcessPoolExecutor(size, context, _start, (watched, self._stopping, begin, ignored))

    def submit(self, function: Callable[..., Result], *arguments: Any) -> "Future[Result]":
        """Have a function of a module called in one of the processes."""
        return self._executor.submit(_unless_stopping, function, arguments)

    def end(self) -> None:
        """End the processes when what they are doing is done; what they have not begun they leave out.

        They are not killed: if a process ends while it sends a result, the executor waits for the rest for ever.
        """
        self._stopping.set()
        self._executor.shutdown(cancel_futures=True)
        self._lifeline.close()


def is_stopping() -> bool:
    """Return, in one of the processes, whether nobody waits for results any more."""
    return _stopping is not None and _stopping.is_set()


_stopping: Any = None  # of a pool's process, an event


def _unless_stopping(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return None if is_stopping() else function(*arguments)


def _start(lifeline: Connection, stopping: Any, begin: Callable[[], object] | None, ignored: Sequence[int]) -> None:
    """Leave signals to the first process, and end with it."""
    global _stopping
    _stopping = stopping
    for name in ignored:
        signal.signal(name, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    if begin is not None:
        begin()

    def watch() -> None:
        with suppress(EOFError, OSError):
            lifeline.recv()  # nothing ever comes: it returns when the other end is closed, or its process is gone
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


_reading: Iterator[Any] = iter(())  # of a reading process


def _begin_to_read(source: Callable[[Any], Iterator[Any]], place: object) -> None:
    global _reading
    _reading = source(place)


def _read_next() -> Any:
    """Read one item; other errors than the user's become text, since not every error can be sent to the trainer."""
    try:
        return next(_reading)
    except UserError:
        raise
    except Exception:
        raise RuntimeError(f"reading training text failed:\n{traceback.format_exc()}") from None
