"""Processes that prepare text, read it ahead, or translate it; tasks and results are values that can be pickled.

This module and its imports load no PyTorch: processes that prepare text do not need PyTorch.
"""

import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import cycle
from multiprocessing import get_context, parent_process, resource_tracker
from typing import Any, TypeVar, cast

from seq2seq.errors import UserError

Task = TypeVar("Task")
Result = TypeVar("Result")
Start = TypeVar("Start")
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # signals that end training in good order


class Processes:
    """Runs tasks in `size` new processes, which also end if this process is killed; if size is 1, in this process."""

    def __init__(
        self, size: int, begin: Callable[[], object] | None = None, *, advice: str = "lower data.num_proc"
    ) -> None:
        """Set the number of processes, the function that each calls first, and the advice if memory runs out."""
        self.size, self._begin, self._advice = size, begin, advice

    def __enter__(self) -> "Processes":
        self._pool = _Pool(self.size, self._begin) if self.size > 1 else None
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.end()

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield the results for all tasks, computed a few tasks ahead; a long function checks `is_stopping`."""
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
            message = f"one of {self.size} processes died, perhaps for want of memory"
            raise UserError(f"{message}: run the same command again; {self._advice}") from error


def read_ahead(sources: Sequence[Callable[[Start], Iterator[Result]]], start: Start) -> Generator[Result, None, None]:
    """Yield the endless items of sources from a start on, one of each in turn.

    A separate process for each source prepares its next item while others are used. These processes ignore the signals
    that end training: a terminal's Ctrl-C and SLURM's warnings go to every process, and only the calling process
    decides how to react.
    """
    pools, waiting = list[_Pool](), deque[Future[Any]]()
    try:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)  # until the new processes ignore them
        try:
            resource_tracker.ensure_running()  # starting it unblocks signals, so it must run already
            signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
            for source in sources:
                pools.append(_Pool(1, partial(_begin_to_read, source, start), ignored=_STOPS))
                waiting.append(pools[-1].submit(_read_next))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for pool in cycle(pools):
            item = waiting.popleft().result()
            waiting.append(pool.submit(_read_next))
            yield item
    except BrokenProcessPool as error:
        raise UserError(
            "a process that reads the training text ended, perhaps for want of memory: resume=runs/NAME goes on from "
            "the last checkpoint; a new run may lower data.block or data.num_proc"
        ) from error
    finally:
        for pool in pools:
            pool.end()


class _Pool:
    """Processes that ignore some signals, and also end if this process is killed."""

    def __init__(
        self, size: int, begin: Callable[[], object] | None, ignored: Sequence[int] = (signal.SIGINT,)
    ) -> None:
        context = get_context("spawn")  # a forked process would inherit locks of this process's threads
        self._stopping = context.Event()
        self._executor = ProcessPoolExecutor(size, context, _start, (self._stopping, begin, ignored))

    def submit(self, function: Callable[..., Result], *arguments: Any) -> "Future[Result]":
        """Call a function of a module in one of the processes; return the future result."""
        try:
            return self._executor.submit(_unless_stopping, function, arguments)
        except OSError as error:  # while a new process starts, the executor sees that another died and closes its pipes
            raise BrokenProcessPool(str(error)) from error

    def end(self) -> None:
        """End the processes after their current tasks; tasks that have not begun are dropped.

        The processes are not killed: if a process is killed while it sends a result, the executor waits forever for the
        rest of the result.
        """
        self._stopping.set()
        self._executor.shutdown(cancel_futures=True)


def is_stopping() -> bool:
    """Return, in a process of a pool, whether nobody waits for results any more."""
    return _stopping is not None and _stopping.is_set()


_stopping: Any = None  # in a process of a pool: an event, which is set when the pool ends


def _unless_stopping(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return None if is_stopping() else function(*arguments)


def _start(stopping: Any, begin: Callable[[], object] | None, ignored: Sequence[int]) -> None:
    """Prepare a process of a pool: ignore signals, call begin, and end when the first process ends."""
    global _stopping
    _stopping = stopping
    for name in ignored:
        signal.signal(name, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    if begin is not None:
        begin()

    def watch() -> None:
        cast(Any, parent_process()).join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


_reading: Iterator[Any] = iter(())  # in a reading process: the items of its source


def _begin_to_read(source: Callable[[Any], Iterator[Any]], start: object) -> None:
    global _reading
    _reading = source(start)


def _read_next() -> Any:
    """Return the next item; errors but UserError become text, since not every error can be sent to another process."""
    try:
        return next(_reading)
    except UserError:
        raise
    except Exception:
        raise RuntimeError(f"reading training text failed:\n{traceback.format_exc()}") from None
