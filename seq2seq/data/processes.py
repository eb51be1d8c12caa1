"""Processes that prepare text, read it ahead, or translate it; tasks and results are values that can be pickled.

This module and its imports load no PyTorch: processes that prepare text do not need PyTorch.
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar, cast

from seq2seq.errors import UserError

Task = TypeVar("Task")
Result = TypeVar("Result")
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # signals that end training in good order


class Processes:
    """Runs tasks in `size` new processes, which also end if this process is killed; if size is 0, in this process.

    The processes ignore the signals that end training: a terminal's Ctrl-C and SLURM's warnings go to every process,
    and only the calling process decides how to react.
    """

    def __init__(
        self,
        size: int,
        begin: Callable[[], object] | None = None,
        *,
        advice: str = "run the same command again; lower data.num_proc",
    ) -> None:
        """Set the number of processes, the function that each calls first, and the advice if memory runs out."""
        self.size, self._begin, self._advice = size, begin, advice

    def __enter__(self) -> "Processes":
        if self.size:
            context = get_context("spawn")  # a forked process would inherit locks of this process's threads
            self._stopping = context.Event()
            self._executor = ProcessPoolExecutor(self.size, context, _start, (self._stopping, self._begin))
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes after their current tasks; tasks that have not begun are dropped.

        The processes are not killed: if a process is killed while it sends a result, the executor waits forever for the
        rest of the result.
        """
        if self.size:
            self._stopping.set()
            self._executor.shutdown(cancel_futures=True)

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield the results for all tasks, computed a few tasks ahead; a long function checks `is_stopping`."""
        if not self.size:
            yield from map(function, tasks)
            return
        waiting: deque[Future[Any]] = deque()
        try:
            for task in tasks:
                waiting.append(self._submit(function, task))
                if len(waiting) > 2 * self.size:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise UserError(f"a process died (of {self.size}), perhaps for want of memory: {self._advice}") from error

    def _submit(self, function: Callable[[Task], Result], task: Task) -> Future[Any]:
        """Call a function of a module in one of the processes; signals are blocked until a new process ignores them."""
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        try:
            return self._executor.submit(_unless_stopping, function, task)
        except OSError as error:  # while a new process starts, the executor sees that another died and closes its pipes
            raise BrokenProcessPool(str(error)) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def is_stopping() -> bool:
    """Return, in a process of a pool, whether nobody waits for results any more."""
    return _stopping is not None and _stopping.is_set()


_stopping: Any = None  # in a process of a pool: an event, which is set when the pool ends


def _unless_stopping(function: Callable[[Any], Any], task: object) -> Any:
    return None if is_stopping() else function(task)


def _start(stopping: Any, begin: Callable[[], object] | None) -> None:
    """Prepare a process of a pool: ignore signals, call begin, and end when the first process ends."""
    global _stopping
    _stopping = stopping
    for name in _STOPS:
        signal.signal(name, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    if begin is not None:
        begin()

    def watch() -> None:
        cast(Any, parent_process()).join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
