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

_SHARES = (3.0, 1.0)  # seconds of short calls a second of longer ones, of documents a second of long, while both wait
_MEMORY = 1.0  # seconds for which a worker still expects short calls after the last one


class Kind(IntEnum):
    """What a call computes; a call is interrupted by calls of a smaller kind."""

    SHORT = 0  # requests with few subwords
    DOCUMENT = 1  # requests with many subwords, and explanations
    LONG = 2  # long sentences, whose batches have the most steps


class Worker:
    """Runs calls in its own thread, in the order of their arrival within each kind.

    While short calls wait, all longer calls together get a quarter of the time; documents and long sentences share it
    equally. When a call ends or calls `pause`, calls of smaller kinds run if they have not had their share. The thread
    is a daemon: a call that hangs does not prevent the process from ending.
    """

    def __init__(self, name: str = "model") -> None:
        self.name = name
        self._changed = threading.Condition()
        self._waiting: list[deque[tuple[Future[Any], Callable[[], Any]]]] = [deque() for _ in Kind]
        self._credit = [0.0 for _ in Kind]  # seconds that each kind may take before larger kinds
        self._running: list[Kind] = []  # each call but the last one is paused, and the next one runs inside it
        self._charged_at = 0.0  # until when the running call's time is in the credits
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
        """Record that the current call makes progress, and run calls of smaller kinds that are due."""
        self._charge(time.monotonic())
        while (due := self._due(self._running[-1])) is not None:
            self._call(due)
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
            if (due := self._due(len(Kind))) is None:
                return
            self._call(due)

    def _due(self, end: int) -> Kind | None:
        """Return the smallest kind below `end` with a waiting call that goes first; None: there is none."""
        for kind in list(Kind)[:end]:
            if self._waiting[kind] and (self._credit[kind] >= 0 or not self._has_larger(kind)):
                return kind
        return None

    def _has_larger(self, kind: Kind) -> bool:
        """Return whether a call of a larger kind waits or runs."""
        return any(self._waiting[kind + 1 :]) or any(running > kind for running in self._running)

    def _charge(self, now: float) -> None:
        """Charge the running call's kind for the time since the last charge, and credit the smaller kinds that wait.

        A kind without calls saves up no time, and neither do the larger kinds if they have no calls.
        """
        kind, seconds = self._running[-1], now - self._charged_at
        for smaller, share in zip(list(Kind)[:kind], _SHARES, strict=False):
            credit = self._credit[smaller] + share * seconds
            self._credit[smaller] = credit if self._waiting[smaller] else min(credit, 0.0)
        credit = self._credit[kind] - seconds
        self._credit[kind] = credit if self._has_larger(kind) else max(credit, 0.0)
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
