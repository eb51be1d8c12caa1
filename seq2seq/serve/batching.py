"""Gather the sentences of many requests into batches, without knowledge of texts, models or HTTP.

The batcher gathers sentences for a few milliseconds, or for as long as the model is busy. Requests take turns, one
sentence each, so that no request waits for all sentences of a long request.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from seq2seq.errors import UserError
from seq2seq.serve.limits import Limits
from seq2seq.serve.worker import Worker

_BATCH_CHARS = 8192  # a batch with this many characters takes no further sentence
_LONGEST_WAIT = 60  # most seconds that a refused client is asked to wait

Alignment = Sequence[tuple[int, int]]
Ranked = list[tuple[str, Alignment | None]]  # the translations of a sentence and their word alignments, best first

log = logging.getLogger(__name__)


class RefusedError(Exception):
    """A request is refused or aborted; the client may try again after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class OverloadedError(RefusedError):
    """The queue is full."""


class TooLateError(RefusedError):
    """The request was not answered in time, or the server is stopping."""


@dataclass(frozen=True)
class Wanted:
    """Options of a translation; only sentences with equal options share a batch."""

    n_best: int  # number of translations of each sentence
    align: bool = False  # whether to return word alignments


@dataclass(eq=False)
class _Job:
    """A request's sentences; the first `begun` sentences are computed or being computed."""

    wanted: Wanted
    sentences: list[str]
    future: "asyncio.Future[list[Ranked]]"
    begun: int = 0
    results: dict[int, Ranked] = field(default_factory=dict)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


Place = tuple[_Job, int]  # a job and the number of one of its sentences


class Batcher:
    """Translates the sentences of many requests in shared batches."""

    def __init__(
        self,
        compute: Callable[[Wanted, list[str], Callable[[], None]], Sequence[Ranked]],
        worker: Worker,
        limits: Limits,
        *,
        is_costly: bool = False,
        on_batch: Callable[[int, float], object] = lambda count, seconds: None,
    ) -> None:
        """Wrap the function that computes a batch; call `start` to begin.

        Args:
            compute: returns a result for every sentence. It runs in the worker's thread and must often call its last
                argument, which raises an error when no request waits for the batch any more.
            worker: runs `compute`.
            limits: of a batch and of the queue. A single request may exceed the queue's limits if the queue is empty.
            is_costly: whether `compute` is a costly call of the worker.
            on_batch: called with the number of sentences and the computing seconds of every batch.
        """
        self._compute, self._worker, self._limits = compute, worker, limits
        self._is_costly, self.on_batch = is_costly, on_batch
        self._jobs: set[_Job] = set()  # jobs that a request waits for
        self._waiting: deque[_Job] = deque()  # jobs with sentences that are in no batch yet
        self.waiting_sentences, self.waiting_chars = 0, 0
        self._rate = 0.0  # running average of characters per second
        self._some, self._full = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to compute batches, in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop computing; every job that waits or is being computed fails with `TooLateError`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for job in self._jobs:
            job.fail(TooLateError("the server is being stopped", 1))

    async def submit(self, sentences: Sequence[str], wanted: Wanted) -> list[Ranked]:
        """Return the translations of sentences; if the caller is cancelled, its sentences leave the queue.

        Raises:
            OverloadedError: the queue is full.
            TooLateError: the batcher was stopped meanwhile.
            Exception: the error of `compute` for one of the sentences.
        """
        if not sentences:
            return []
        count, chars = len(sentences), sum(map(len, sentences))
        limits = self._limits
        is_full = self.waiting_sentences + count > limits.waiting_texts or (
            self.waiting_chars + chars > limits.waiting_chars
        )
        if is_full and self._waiting:
            raise OverloadedError("too many texts are waiting", self.retry_after)
        job = _Job(wanted, list(sentences), asyncio.get_running_loop().create_future())
        self._jobs.add(job)
        self._waiting.append(job)
        self._count(count, chars)
        try:
            return await job.future
        finally:
            self._jobs.discard(job)
            self._leave(job)

    @property
    def is_running(self) -> bool:
        """Whether submitted sentences will be computed."""
        return self._task is not None and not self._task.done()

    @property
    def retry_after(self) -> int:
        """Estimated seconds until the queue is empty, from the speed of the last batches."""
        seconds = math.ceil(self.waiting_chars / self._rate) if self._rate else 1
        return min(max(seconds, 1), _LONGEST_WAIT)

    def _leave(self, job: _Job) -> None:
        """Remove a job from the queue, with its sentences that are in no batch yet."""
        if job in self._waiting:
            self._waiting.remove(job)
            left = job.sentences[job.begun :]
            self._count(-len(left), -sum(map(len, left)))

    def _count(self, sentences: int, chars: int) -> None:
        self.waiting_sentences += sentences
        self.waiting_chars += chars
        is_full = self.waiting_sentences >= self._limits.max_batch
        for event, is_set in ((self._some, self._waiting), (self._full, is_full)):
            event.set() if is_set else event.clear()

    async def _run(self) -> None:
        max_delay = self._limits.max_delay if self._limits.max_batch > 1 else 0.0
        while True:
            await self._some.wait()
            try:
                async with asyncio.timeout(max_delay):
                    await self._full.wait()
            except TimeoutError:
                pass
            if batch := self._take():
                await self._answer(batch)

    def _take(self) -> list[Place]:
        """Take the next batch from the queue: sentences, in turn, of all jobs with the first job's options."""
        for job in [job for job in self._waiting if job.future.done()]:  # failed or cancelled
            self._leave(job)
        turns = deque(job for job in self._waiting if job.wanted == self._waiting[0].wanted)
        batch: list[Place] = []
        chars = 0
        while turns and len(batch) < self._limits.max_batch and chars < _BATCH_CHARS:
            job = turns.popleft()
            batch.append((job, job.begun))
            chars += len(job.sentences[job.begun])
            job.begun += 1
            if job.begun < len(job.sentences):
                turns.append(job)
        served = dict.fromkeys(job for job, _ in batch)
        unfinished = [job for job in served if job.begun < len(job.sentences)]
        self._waiting = deque([job for job in self._waiting if job not in served] + unfinished)
        self._count(-len(batch), -chars)
        return batch

    async def _answer(self, batch: list[Place]) -> None:
        """Compute a batch; after an error, compute its halves, so that a request fails only if its own sentences do."""
        batch = [(job, index) for job, index in batch if not job.future.done()]
        if not batch:
            return
        try:
            results = await self._computed(batch)
        except Exception as error:
            if len(batch) == 1:
                batch[0][0].fail(error)
                return
            if not isinstance(error, UserError | RefusedError):
                log.warning("a batch of %d failed (%r): computing its halves", len(batch), error)
            middle = len(batch) // 2
            await self._answer(batch[:middle])
            await self._answer(batch[middle:])
            return
        for (job, index), result in zip(batch, results, strict=True):
            job.results[index] = result
            if len(job.results) == len(job.sentences) and not job.future.done():
                job.future.set_result([job.results[place] for place in range(len(job.sentences))])

    async def _computed(self, batch: list[Place]) -> Sequence[Ranked]:
        sentences = [job.sentences[index] for job, index in batch]
        paused = 0.0

        def require_wanted() -> None:
            if all(job.future.done() for job, _ in batch):
                raise TooLateError("nobody waits any more", 1)

        def check() -> None:
            nonlocal paused
            require_wanted()
            paused += self._worker.pause()
            require_wanted()

        def compute() -> tuple[Sequence[Ranked], float]:
            start = time.monotonic()
            results = self._compute(batch[0][0].wanted, sentences, check)
            return results, time.monotonic() - start - paused

        start = time.monotonic()
        results, seconds = await self._worker.run(compute, is_costly=self._is_costly)
        if len(results) != len(batch):
            raise RuntimeError(f"{len(results)} results for {len(batch)} sentences")
        rate = sum(map(len, sentences)) / max(time.monotonic() - start, 1e-6)  # pauses included, as clients see it
        self._rate = rate if not self._rate else 0.8 * self._rate + 0.2 * rate
        self.on_batch(len(batch), seconds)
        return results
