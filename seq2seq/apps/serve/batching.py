"""Gather the sentences of many requests into batches, without knowledge of models or HTTP.

The batcher gathers sentences for a few milliseconds, or for as long as the model is busy. Requests take turns, one
sentence each, so that no request waits for all sentences of a long request.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from seq2seq.apps.serve.limits import Limits
from seq2seq.apps.serve.worker import Kind, Worker
from seq2seq.errors import UserError
from seq2seq.text.glossary import Glossary
from seq2seq.translate.types import Translation

_BATCH_SUBWORDS = 2048  # a batch with this many subwords takes no further sentence
_SHARED_SUBWORDS = _BATCH_SUBWORDS // 4  # the same for a batch of longer requests, while short ones are expected
_LONGEST_WAIT = 60  # most seconds that a refused client is asked to wait

Ranked = list[Translation]  # the translations of a sentence, best first

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
class Sentence:
    """A sentence and its number of subwords, which decides how long its search takes."""

    text: str
    subwords: int


@dataclass(frozen=True)
class SentenceOptions:
    """Options of a translation; only sentences with equal options share a batch."""

    n_best: int  # number of translations of each sentence
    align: bool = False  # whether to return word alignments
    glossary: Glossary | None = None  # terms and the translations that they must have


Compute = Callable[[SentenceOptions, list[str], Callable[[], None]], Sequence[Ranked]]


@dataclass(eq=False)
class _Job:
    """A request's sentences; the first `begun` sentences are computed or being computed."""

    options: SentenceOptions
    sentences: Sequence[Sentence]
    future: "asyncio.Future[list[Ranked]]"
    begun: int = 0
    results: dict[int, Ranked] = field(default_factory=dict)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


_Batch = list[tuple[_Job, int]]  # jobs, each with the index of one of its sentences


class Batcher:
    """Translates the sentences of many requests in shared batches."""

    def __init__(
        self,
        compute: Compute,
        worker: Worker,
        limits: Limits,
        *,
        kind: Kind = Kind.SHORT,
        on_batch: Callable[[int, float], object] = lambda count, seconds: None,
    ) -> None:
        """Wrap the function that computes a batch; call `start` to begin.

        Args:
            compute: returns a result for every sentence. It runs in the worker's thread and must often call its last
                argument, which raises an error when no request waits for the batch any more.
            worker: runs `compute`.
            limits: of a batch and of the queue. A single request may exceed the queue's limits if the queue is empty.
            kind: of the worker's calls of `compute`.
            on_batch: called with the number of sentences of every batch, and its seconds, pauses included.
        """
        self._compute, self._worker, self._limits = compute, worker, limits
        self._kind, self.on_batch = kind, on_batch
        self._jobs: set[_Job] = set()  # jobs that a request waits for
        self._waiting: deque[_Job] = deque()  # jobs with sentences that are in no batch yet
        self._submitted = asyncio.Event()
        self._rate = 0.0  # running average of subwords per second
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

    async def submit(self, sentences: Sequence[Sentence], options: SentenceOptions) -> list[Ranked]:
        """Return the translations of sentences; if the caller is cancelled, its sentences leave the queue."""
        if not sentences:
            return []
        queue = [*self.waiting, *sentences]
        is_full = len(queue) > self._limits.waiting_texts or count_chars(queue) > self._limits.waiting_chars
        if is_full and self._waiting:
            raise OverloadedError("too many texts are waiting", self.retry_after)
        job = _Job(options, sentences, asyncio.get_running_loop().create_future())
        self._jobs.add(job)
        self._waiting.append(job)
        self._submitted.set()
        try:
            return await job.future
        finally:
            self._jobs.discard(job)
            with suppress(ValueError):  # all its sentences are in batches
                self._waiting.remove(job)

    @property
    def is_running(self) -> bool:
        """Whether submitted sentences will be computed."""
        return self._task is not None and not self._task.done()

    @property
    def waiting(self) -> list[Sentence]:
        """The sentences that are in no batch yet."""
        return [sentence for job in self._waiting for sentence in job.sentences[job.begun :]]

    @property
    def retry_after(self) -> int:
        """Estimated seconds until the queue is empty, from the speed of the last batches."""
        subwords = sum(sentence.subwords for sentence in self.waiting)
        seconds = math.ceil(subwords / self._rate) if self._rate else 1
        return min(max(seconds, 1), _LONGEST_WAIT)

    async def _run(self) -> None:
        max_delay = self._limits.max_delay if self._limits.max_batch > 1 else 0.0
        while True:
            await self._wait_for(1)
            with suppress(TimeoutError):
                async with asyncio.timeout(max_delay):
                    await self._wait_for(self._limits.max_batch)
            if batch := self._take():
                await self._answer(batch)

    async def _wait_for(self, count: int) -> None:
        """Wait until the queue has this many sentences."""
        while len(self.waiting) < count:
            self._submitted.clear()
            await self._submitted.wait()

    def _take(self) -> _Batch:
        """Take the next batch from the queue: sentences, in turn, of all jobs with the first job's options."""
        self._waiting = deque(job for job in self._waiting if not job.future.done())  # neither failed nor cancelled
        turns = deque(job for job in self._waiting if job.options == self._waiting[0].options)
        is_shared = self._kind is not Kind.SHORT and self._worker.expects_short
        most = _SHARED_SUBWORDS if is_shared else _BATCH_SUBWORDS
        batch: _Batch = []
        subwords = 0
        while turns and len(batch) < self._limits.max_batch and subwords < most:
            job = turns.popleft()
            batch.append((job, job.begun))
            subwords += job.sentences[job.begun].subwords
            job.begun += 1
            if job.begun < len(job.sentences):
                turns.append(job)
        served = dict.fromkeys(job for job, _ in batch)
        unfinished = [job for job in served if job.begun < len(job.sentences)]
        self._waiting = deque([job for job in self._waiting if job not in served] + unfinished)
        return batch

    async def _answer(self, batch: _Batch) -> None:
        """Compute a batch; after an error, compute its halves, so that a request fails only if its own sentences do."""
        batch = [(job, index) for job, index in batch if not job.future.done()]
        if not batch:
            return
        try:
            results = await self._compute_batch(batch)
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
                job.future.set_result([result for _, result in sorted(job.results.items())])

    async def _compute_batch(self, batch: _Batch) -> Sequence[Ranked]:
        sentences = [job.sentences[index] for job, index in batch]

        def check() -> None:
            self._worker.pause()
            if all(job.future.done() for job, _ in batch):
                raise TooLateError("nobody waits any more", 1)

        start = time.monotonic()
        texts = [sentence.text for sentence in sentences]
        results = await self._worker.run(self._compute, batch[0][0].options, texts, check, kind=self._kind)
        seconds = max(time.monotonic() - start, 1e-6)  # pauses included, as clients see it
        rate = sum(sentence.subwords for sentence in sentences) / seconds
        self._rate = rate if not self._rate else 0.8 * self._rate + 0.2 * rate
        self.on_batch(len(batch), seconds)
        return results


def count_chars(sentences: Sequence[Sentence]) -> int:
    """Return the characters of sentences."""
    return sum(len(sentence.text) for sentence in sentences)
