"""A thread for calls that must not run at the same time, such as all calls of the model."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from enum import IntEnum
from functools import partial
from typing import Any, TypeVar

R = TypeVar("R")

_SHARE = 3.0  # seconds of short calls for each second of long ones, while both wait
_MEMORY = 1.0  # seconds for which a worker still expects short calls after the last one


class Kind(IntEnum):
    """What a call computes; short calls interrupt long ones."""

    SHORT = 0  # requests with few subwords
    LONG = 1  # requests with many subwords or a long sentence, and explanations


class Worker:
    """Runs calls in its own thread, in the order of their arrival within each kind.

    While short calls wait, long calls get a quarter of the time. When a long call ends or calls `pause`, short calls
    run if they have not had their share. The thread is a daemon: a call that hangs does not keep the process from
    ending.
    """

    def __init__(self, name: str = "model") -> None:
        self.name = name
        self._changed = threading.Condition()
        self._waiting: list[deque[tuple[Future[Any], Callable[[], Any]]]] = [deque() for _ in Kind]
        self._credit = 0.0  # seconds that short calls may take before long ones
        self._running: list[Kind] = []  # a short call may run inside a long one, which is paused
        self._charged_at = 0.0  # until when the running call's time is in the credit
        self._short_at = -_MEMORY  # end of the last short call
        self._is_closed = False
        self._progressed_at: float | None = None  # None: no call is running
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, function: Callable[..., R], *arguments: Any, kind: Kind = Kind.SHORT) -> R:
        """Run a call in the thread and return its result or raise its error; cancelling removes a waiting call."""
        future: Future[R] = Future()
        with self._changed:
            self._waiting[kind].append((future, partial(function, *arguments)))
            self._changed.notify()
        return await asyncio.wrap_future(future)

    def pause(self) -> None:
        """Record that the current call makes progress; if it is long, run the short calls that are due."""
        self._charge(time.monotonic())
        while self._running[-1] is Kind.LONG and self._next is Kind.SHORT:
            self._call(Kind.SHORT)
        self._progressed_at = time.monotonic()

    @property
    def expects_short(self) -> bool:
        """Whether a short call waits, or ended a moment ago."""
        return bool(self._waiting[Kind.SHORT]) or time.monotonic() - self._short_at < _MEMORY

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
                self._changed.wait_for(lambda: self._is_closed or any(self._waiting))
            if (kind := self._next) is None:
                return
            self._call(kind)

    @property
    def _next(self) -> Kind | None:
        """The kind of the call that goes first; None: no call may begin now."""
        if self._waiting[Kind.SHORT] and (self._credit >= 0 or not self._has_long):
            return Kind.SHORT
        return Kind.LONG if self._waiting[Kind.LONG] else None

    @property
    def _has_long(self) -> bool:
        return bool(self._waiting[Kind.LONG]) or Kind.LONG in self._running

    def _charge(self, now: float) -> None:
        """Count the running call's time since the last charge; a kind saves up no time while it has no calls."""
        seconds = now - self._charged_at
        if self._running[-1] is Kind.LONG:
            credit = self._credit + _SHARE * seconds
            self._credit = credit if self._waiting[Kind.SHORT] else min(credit, 0.0)
        else:
            credit = self._credit - seconds
            self._credit = credit if self._has_long else max(credit, 0.0)
        self._charged_at = now

    def _call(self, kind: Kind) -> None:
        """Run the first waiting call of a kind."""
        with self._changed:
            future, call = self._waiting[kind].popleft()
            self._running.append(kind)
        self._progressed_at = self._charged_at = time.monotonic()
        result, error = None, None
        is_wanted = future.set_running_or_notify_cancel()
        try:
            result = call() if is_wanted else None
        except Exception as raised:
            error = raised
        except BaseException as raised:  # all requests need this thread, so that not even SystemExit may end it
            error = RuntimeError(f"the thread {self.name} met {raised!r}")
        now, self._progressed_at = time.monotonic(), None
        with self._changed:
            self._charge(now)
            self._running.pop()
        if kind is Kind.SHORT:
            self._short_at = now
        if is_wanted:
            future.set_exception(error) if error else future.set_result(result)
