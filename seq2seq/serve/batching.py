"""Gathers what many requests ask for into batches; knows neither texts nor models nor HTTP.

A batch is gathered for a few milliseconds, or for as long as the model is busy. Requests take turns, an item each, so
that nobody waits for the end of another's long list.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from seq2seq.errors import UserError
from seq2seq.serve.worker import Worker

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")

_BATCH_SIZE = 8192  # characters in a batch, beyond which nothing is added
_LONGEST_WAIT = 60  # seconds that a refused client is told to wait, at most

log = logging.getLogger(__name__)


class RefusedError(Exception):
    """A request is not taken on, or given up; retry_after says when to try again (seconds)."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class OverloadedError(RefusedError):
    """The queue is full."""


class TooLateError(RefusedError):
    """A request has waited for as long as it may."""


@dataclass(eq=False)
class _Job(Generic[K, T, R]):
    """A request's items: those before `begun` are at work or done."""

    key: K
    items: list[T]
    sizes: list[int]
    future: "asyncio.Future[list[R]]"
    begun: int = 0
    results: dict[int, R] = field(default_factory=dict)


Place = tuple[_Job[Any, Any, Any], int]  # an item of a job


class Batcher(Generic[K, T, R]):
    """Computes items of many requests together, in batches of equal key.

    Attributes:
        on_batch: called with the number of items and the seconds of every batch.
    """

    def __init__(
        self,
        compute: Callable[[K, list[T], Callable[[], None]], Sequence[R]],
        worker: Worker,
        *,
        max_batch: int,
        max_delay: float,
        max_items: int,
        max_size: int,
        size: Callable[[T], int],
        is_costly: bool = False,
        on_batch: Callable[[int, float], object] = lambda count, seconds: None,
    ) -> None:
        """Wrap what computes; `start` begins.

        Args:
            compute: gives a result for every item; called in the worker's thread. Its last argument is to be called
                now and then: that raises where nobody waits for the results any more.
            worker: where.
            max_batch: most items at once.
            max_delay: seconds for which a batch is gathered when the model is idle.
            max_items: items in the queue, beyond which requests are refused.
            max_size: likewise their size; one request alone may exceed both.
            size: of an item, in characters.
            is_costly: whether its calls are costly; see `Worker`.
            on_batch: called with the number of items and the seconds of every batch.
        """
        self._compute, self._worker, self._size, self.on_batch = compute, worker, size, on_batch
        self._max_batch, self._max_delay, self._is_costly = max_batch, max_delay, is_costly
        self._max_items, self._max_size = max_items, max_size
        self._waiting: deque[_Job[K, T, R]] = deque()
        self.waiting_items, self.waiting_size = 0, 0
        self._rate = 0.0  # characters a second, of late
        self._some, self._full = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to compute, in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Compute no more; who waits still is told that it is too late."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for job in list(self._waiting):
            _fail(job, TooLateError("the server is being stopped", 1))

    async def submit(self, items: Sequence[T], key: K) -> list[R]:
        """Have items computed; whoever is cancelled while waiting leaves the queue.

        Raises:
            OverloadedError: the queue is full.
            TooLateError: the batcher was stopped.
            Exception: what computing one of the items raises.
        """
        if not items:
            return []
        sizes = [self._size(item) for item in items]
        self._admit(len(items), sum(sizes))
        job = _Job[K, T, R](key, list(items), sizes, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        self._count(len(items), sum(sizes))
        try:
            return await job.future
        finally:
            self._leave(job)

    @property
    def is_running(self) -> bool:
        """Whether anything that is submitted will be computed."""
        return self._task is not None and not self._task.done()

    @property
    def retry_after(self) -> int:
        """Seconds in which what waits now should be done, as far as the last batches tell."""
        seconds = math.ceil(self.waiting_size / self._rate) if self._rate else 1
        return min(max(seconds, 1), _LONGEST_WAIT)

    def _admit(self, count: int, size: int) -> None:
        is_full = self.waiting_items + count > self._max_items or self.waiting_size + size > self._max_size
        if is_full and self._waiting:
            raise OverloadedError("too many texts are waiting", self.retry_after)

    def _leave(self, job: _Job[K, T, R]) -> None:
        """Take what is not begun of a job out of the queue."""
        if job in self._waiting:
            self._waiting.remove(job)
            self._count(job.begun - len(job.items), -sum(job.sizes[job.begun :]))

    def _count(self, items: int, size: int) -> None:
        self.waiting_items += items
        self.waiting_size += size
        for event, is_set in ((self._some, self._waiting), (self._full, self.waiting_items >= self._max_batch)):
            event.set() if is_set else event.clear()

    async def _run(self) -> None:
        while True:
            await self._some.wait()
            try:
                async with asyncio.timeout(self._max_delay):
                    await self._full.wait()
            except TimeoutError:
                pass
            if batch := self._take():
                await self._answer(batch)

    def _take(self) -> list[Place]:
        """Take the next batch from the queue: items of the first job's key, from every job in turn."""
        for job in [job for job in self._waiting if job.future.done()]:  # failed or given up: nobody waits for the rest
            self._leave(job)
        turns = deque(job for job in self._waiting if job.key == self._waiting[0].key)
        batch: list[Place] = []
        size = 0
        while turns and len(batch) < self._max_batch and size < _BATCH_SIZE:
            job = turns.popleft()
            batch.append((job, job.begun))
            size += job.sizes[job.begun]
            job.begun += 1
            if job.begun < len(job.items):
                turns.append(job)
        served = dict.fromkeys(job for job, _ in batch)
        unfinished = [job for job in served if job.begun < len(job.items)]
        self._waiting = deque([job for job in self._waiting if job not in served] + unfinished)
        self._count(-len(batch), -size)
        return batch

    async def _answer(self, batch: list[Place]) -> None:
        """Compute a batch; where that fails, its halves, so that each request fails only by its own items."""
        batch = [(job, index) for job, index in batch if not job.future.done()]
        if not batch:
            return
        try:
            results = await self._computed(batch)
        except Exception as error:
            if len(batch) == 1:
                _fail(batch[0][0], error)
                return
            if not isinstance(error, UserError | RefusedError):
                log.warning("a batch of %d failed (%r): computing its halves", len(batch), error)
            middle = len(batch) // 2
            await self._answer(batch[:middle])
            await self._answer(batch[middle:])
            return
        for (job, index), result in zip(batch, results, strict=True):
            job.results[index] = result
            if len(job.results) == len(job.items) and not job.future.done():
                job.future.set_result([job.results[place] for place in range(len(job.items))])

    async def _computed(self, batch: list[Place]) -> Sequence[R]:
        start = time.perf_counter()
        items = [job.items[index] for job, index in batch]

        def require_wanted() -> None:
            if all(job.future.done() for job, _ in batch):
                raise TooLateError("nobody waits any more", 1)

        def check() -> None:
            require_wanted()
            self._worker.pause()
            require_wanted()

        key = batch[0][0].key
        results = await self._worker.run(self._compute, key, items, check, is_costly=self._is_costly)
        if len(results) != len(batch):
            raise RuntimeError(f"{len(results)} results for {len(batch)} items")
        seconds = time.perf_counter() - start
        rate = sum(job.sizes[index] for job, index in batch) / max(seconds, 1e-6)
        self._rate = rate if not self._rate else 0.8 * self._rate + 0.2 * rate
        self.on_batch(len(batch), seconds)
        return results


def _fail(job: _Job[Any, Any, Any], error: Exception) -> None:
    if not job.future.done():
        job.future.set_exception(error)
