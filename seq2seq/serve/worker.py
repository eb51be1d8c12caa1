"""A thread for calls that must not run at the same time, such as all calls of the model."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

R = TypeVar("R")

_CREDIT = 4.0  # seconds of ordinary calls for each second of a costly call, while both kinds wait
_GRACE = 0.02  # seconds to wait for the next ordinary call, while ordinary calls have credit


class Worker:
    """Runs calls one after the other in its own thread, in the order of their arrival.

    Costly calls have their own queue. While ordinary calls wait, costly calls get a fifth of the time. When a costly
    call calls `pause`, the worker runs ordinary calls meanwhile. The thread is a daemon: a call that hangs does not
    prevent the process from ending.
    """

    def __init__(self, name: str = "model") -> None:
        self.name = name
        self._changed = threading.Condition()
        self._ordinary: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._costly: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._is_closed = False
        self._progressed_at: float | None = None  # None: no call is running
        self._costly_since: float | None = None  # start of the current costly call, or its last resume after a pause
        self._credit = 0.0  # seconds that ordinary calls may take before the next costly call
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, function: Callable[..., R], *arguments: Any, is_costly: bool = False) -> R:
        """Run a call in the thread and return its result or raise its error; cancelling removes a waiting call."""
        future: Future[R] = Future()
        with self._changed:
            (self._costly if is_costly else self._ordinary).append((future, partial(function, *arguments)))
            self._changed.notify()
        return await asyncio.wrap_future(future)

    def pause(self) -> float:
        """Record that the current call makes progress; inside a costly call, run ordinary calls that are due.

        Returns:
            The seconds that the ordinary calls took.
        """
        start = time.monotonic()
        if self._costly_since is not None:
            self._charge_costly()
            while self._ordinary_is_due():
                self._credit -= self._call(self._ordinary.popleft())
            self._costly_since = time.monotonic()
        self._progressed_at = time.monotonic()
        return self._progressed_at - start

    @property
    def busy_seconds(self) -> float:
        """Seconds since the current call began or last made progress; 0 without a call."""
        progressed_at = self._progressed_at
        return 0.0 if progressed_at is None else time.monotonic() - progressed_at

    def close(self, seconds: float = 0.0) -> None:
        """Let the thread end after the waiting calls, and wait for its end, at most for this many seconds."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(seconds)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ordinary or self._costly or self._is_closed)
            if not (self._ordinary or self._costly):
                return
            if self._costly and not self._ordinary_is_due():
                self._costly_since = time.monotonic()
                self._call(self._costly.popleft())
                self._charge_costly()
            else:
                seconds = self._call(self._ordinary.popleft())
                self._credit = self._credit - seconds if self._costly else 0.0

    def _ordinary_is_due(self) -> bool:
        """Return whether to run an ordinary call before a costly one; with credit left, wait briefly for a call."""
        if self._credit > 0:
            with self._changed:
                self._changed.wait_for(lambda: self._ordinary or self._is_closed, _GRACE)
            if self._ordinary:
                return True
        self._credit = 0.0
        return False

    def _charge_costly(self) -> None:
        """Give waiting ordinary calls credit for the time since the costly call began or resumed."""
        assert self._costly_since is not None
        if self._ordinary or self._credit:
            self._credit += _CREDIT * (time.monotonic() - self._costly_since)
        self._costly_since = None

    def _call(self, task: tuple[Future[Any], Callable[[], Any]]) -> float:
        """Run a call and return the seconds that it took."""
        future, call = task
        if not future.set_running_or_notify_cancel():
            return 0.0
        self._progressed_at = start = time.monotonic()
        try:
            result, error = call(), None
        except Exception as raised:
            result, error = None, raised
        except BaseException as raised:  # all requests need this thread, so that not even SystemExit may end it
            result, error = None, RuntimeError(f"the thread {self.name} met {raised!r}")
        self._progressed_at = None
        seconds = time.monotonic() - start
        future.set_exception(error) if error else future.set_result(result)
        return seconds
