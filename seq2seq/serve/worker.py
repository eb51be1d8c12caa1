"""One thread for calls that must not run at the same time, such as all that use the model; knows no model."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

R = TypeVar("R")
_Task = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]


class Worker:
    """Calls functions in a thread of its own, one after the other, in the order in which they came.

    The thread does not keep the program from ending: what hangs in it is given up with the process.
    """

    def __init__(self, name: str = "model") -> None:
        self.name = name
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._began: float | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, function: Callable[..., R], *arguments: Any) -> R:
        """Call a function there; gives what it gives, raises what it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._tasks.put((loop, future, function, arguments))
        return await future

    def progressed(self) -> None:
        """Note that the present call is not stuck; called by what is called there."""
        self._began = time.monotonic()

    @property
    def busy_seconds(self) -> float:
        """How long ago the present call began or progressed; 0 when there is none."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def close(self) -> None:
        """Let the thread end after the calls it was given; does not wait for it."""
        self._tasks.put(None)

    def join(self, seconds: float) -> None:
        """Wait for the thread to end, but not for longer than this."""
        self._thread.join(seconds)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            loop, future, function, arguments = task
            if future.cancelled():
                continue
            self._began = time.monotonic()
            result, error = None, None
            try:
                result = function(*arguments)
            except BaseException as raised:  # an exit, too, must not end the thread that all wait for
                error = (
                    raised if isinstance(raised, Exception) else RuntimeError(f"the thread {self.name} met {raised!r}")
                )
            self._began = None
            try:
                loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return
            del task, future, function, arguments, result, error  # hold nothing while waiting


def _settle(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
