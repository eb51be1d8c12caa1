"""One thread for calls that must not run at the same time, such as all that use the model; knows no model."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

R = TypeVar("R")
_Task = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]

_CREDIT = 4.0  # seconds of ordinary calls for each second of a costly one, while both are wanted
_GRACE = 0.02  # seconds in which the next ordinary call may come, for as long as ordinary calls have credit


class Worker:
    """Calls functions in a thread of its own, one after the other, in the order in which they came.

    Costly calls have an order of their own, and a fifth of the time while ordinary calls are wanted, too. When a costly
    call pauses, the worker makes ordinary calls inside it. The thread does not keep the program from ending: a call
    that hangs is given up with the process.
    """

    def __init__(self, name: str = "model") -> None:
        self.name = name
        self._some = threading.Condition()
        self._ordinary: deque[_Task] = deque()
        self._costly: deque[_Task] = deque()
        self._is_closed = False
        self._began: float | None = None
        self._costly_since: float | None = None  # when the present costly call began, or went on after others
        self._owed = 0.0  # seconds that ordinary calls may have before costly ones; 0: nobody competes
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
        """Note that the present call makes progress; a costly call lets ordinary ones go first."""
        if self._costly_since is not None:
            self._charge_costly()
            self._costly_since = None  # the calls made here are ordinary
            while self._ordinary_is_due():
                self._owed -= self._call(self._ordinary.popleft())
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
            if self._costly and not self._ordinary_is_due():
                self._costly_since = time.monotonic()
                self._call(self._costly.popleft())
                self._charge_costly()
                self._costly_since = None
            else:
                seconds = self._call(self._ordinary.popleft())
                self._owed = self._owed - seconds if self._costly else 0.0

    def _ordinary_is_due(self) -> bool:
        """Whether an ordinary call goes before costly ones; waits a little for one that has credit."""
        if self._owed <= 0:
            return False
        with self._some:
            if self._some.wait_for(lambda: self._ordinary or self._is_closed, _GRACE) and self._ordinary:
                return True
        self._owed = 0.0
        return False

    def _charge_costly(self) -> None:
        """Give ordinary calls credit for the time since the costly call went on, if any compete with it."""
        assert self._costly_since is not None
        if self._ordinary or self._owed:
            self._owed += _CREDIT * (time.monotonic() - self._costly_since)

    def _call(self, task: _Task) -> float:
        """Make a call and pass on its result; return how many seconds it took."""
        loop, future, function, arguments = task
        if future.cancelled():
            return 0.0
        self._began = began = time.monotonic()
        result, error = None, None
        try:
            result = function(*arguments)
        except BaseException as raised:  # an exit, too, must not end the thread that all wait for
            told = f"the thread {self.name} met {raised!r}"
            error = raised if isinstance(raised, Exception) else RuntimeError(told)
        self._began = None
        seconds = time.monotonic() - began
        try:
            loop.call_soon_threadsafe(_settle, future, result, error)
        except RuntimeError:  # the loop is closed: nobody waits any more
            self._ordinary.clear()
            self._costly.clear()
            self.close()
        return seconds


def _settle(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
