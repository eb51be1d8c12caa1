"""One thread for calls that must not run at the same time, such as all that use the model; knows no model."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

R = TypeVar("R")
_Task = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]

_SHARE = 0.2  # of the thread's time that costly calls have while others wait
_COSTLY = (1 - _SHARE) / _SHARE  # seconds that others may have for each of a costly call
_MEMORY = 2.0  # seconds of work that are balanced; what was owed before is forgotten


class Worker:
    """Calls functions in a thread of its own, one after the other, in the order in which they came.

    Costly calls have an order of their own, and a fifth of the time while others wait: those are called within a costly
    one, wherever it pauses. The thread does not keep the program from ending: what hangs in it is given up with the
    process.
    """

    def __init__(self, name: str = "model") -> None:
        self.name = name
        self._some = threading.Condition()
        self._ordinary: deque[_Task] = deque()
        self._costly: deque[_Task] = deque()
        self._is_closed = False
        self._began: float | None = None
        self._costly_since: float | None = None  # when the present costly call began, or went on after others
        self._owed = 0.0  # seconds that ordinary calls may have before costly ones; negative: costly ones are owed
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, function: Callable[..., R], *arguments: Any, is_costly: bool = False) -> R:
        """Call a function there; gives what it gives, raises what it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        with self._some:
            (self._costly if is_costly else self._ordinary).append((loop, future, function, arguments))
            self._some.notify()
        return await future

    def pause(self) -> None:
        """Note that the present call is not stuck, and let others go first where it is costly; called by the call."""
        if self._costly_since is not None:
            self._charge(self._costly_since, _COSTLY)
            self._costly_since = None  # what is called now is ordinary
            while self._owed > 0 and self._ordinary:
                self._call(self._ordinary.popleft())
            self._costly_since = time.monotonic()
        self._began = time.monotonic()

    @property
    def busy_seconds(self) -> float:
        """How long ago the present call began or progressed; 0 when there is none."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def close(self) -> None:
        """Let the thread end after the calls it was given; does not wait for it."""
        with self._some:
            self._is_closed = True
            self._some.notify()

    def join(self, seconds: float) -> None:
        """Wait for the thread to end, but not for longer than this."""
        self._thread.join(seconds)

    def _work(self) -> None:
        while True:
            with self._some:
                self._some.wait_for(lambda: self._ordinary or self._costly or self._is_closed)
                if not (self._ordinary or self._costly):
                    return
                is_costly = bool(self._costly) and (self._owed <= 0 or not self._ordinary)
                task = (self._costly if is_costly else self._ordinary).popleft()
            self._costly_since = time.monotonic() if is_costly else None
            self._call(task)
            if self._costly_since is not None:
                self._charge(self._costly_since, _COSTLY)
                self._costly_since = None
            del task  # hold nothing while waiting

    def _charge(self, since: float, weight: float) -> None:
        owed = self._owed + weight * (time.monotonic() - since)
        self._owed = min(max(owed, -_MEMORY), _MEMORY)

    def _call(self, task: _Task) -> None:
        loop, future, function, arguments = task
        if future.cancelled():
            return
        self._began = began = time.monotonic()
        result, error = None, None
        try:
            result = function(*arguments)
        except BaseException as raised:  # an exit, too, must not end the thread that all wait for
            told = f"the thread {self.name} met {raised!r}"
            error = raised if isinstance(raised, Exception) else RuntimeError(told)
        self._began = None
        if self._costly_since is None:
            self._charge(began, -1.0)
        try:
            loop.call_soon_threadsafe(_settle, future, result, error)
        except RuntimeError:  # the loop is closed: nobody waits any more
            self._ordinary.clear()
            self._costly.clear()
            self.close()


def _settle(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
