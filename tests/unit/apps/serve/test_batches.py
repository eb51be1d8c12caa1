import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any
from unittest.mock import Mock

import pytest
from serving import until

from seq2seq.apps.serve import worker as worker_module
from seq2seq.apps.serve.batching import Batcher, OverloadedError, Ranked, Sentence, SentenceOptions, TooLateError
from seq2seq.apps.serve.limits import Limits
from seq2seq.apps.serve.worker import Kind, Worker
from seq2seq.translate.types import Translation


class Computer:
    """Doubles sentences; records the lengths in its batches, waits, and fails at a sentence of 13 characters."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.may_go = threading.Event()
        self.may_go.set()
        self.finished = 0

    def __call__(self, options: SentenceOptions, texts: list[str], check: Callable[[], None]) -> list[Ranked]:
        self.batches.append([len(text) for text in texts])
        assert self.may_go.wait(20)
        check()
        self.finished += len(texts)
        if 13 in self.batches[-1]:
            raise RuntimeError("unlucky")
        return [[Translation(2 * text, 0.0, 0.0, [])] for text in texts]


@pytest.fixture
def computer() -> Computer:
    return Computer()


@pytest.fixture
def run(computer: Computer) -> Callable[..., Any]:
    """Run a scenario, a function of a batcher with the given bounds and of its worker."""

    def start(scenario: Callable[..., Coroutine[Any, Any, Any]], kind: Kind = Kind.SHORT, **bounds: Any) -> Any:
        async def all_of_it() -> Any:
            worker = Worker()
            limits = {"max_batch": 8, "max_delay": 0.002, "waiting_texts": 20, "waiting_chars": 1000, **bounds}
            batcher = Batcher(computer, worker, Limits(char_limit=1, **limits), kind=kind)
            batcher.start()
            try:
                async with asyncio.timeout(20):
                    return await scenario(batcher, worker)
            finally:
                computer.may_go.set()
                await batcher.stop()
                worker.close()

        return asyncio.run(all_of_it())

    return start


def submit(batcher: Batcher, *lengths: int, n_best: int = 1, subwords: int = 1) -> "asyncio.Task[list[Ranked]]":
    """Submit sentences of so many characters, each with so many subwords."""
    sentences = [Sentence("x" * length, subwords) for length in lengths]
    return asyncio.create_task(batcher.submit(sentences, SentenceOptions(n_best)))


async def keep_busy(batcher: Batcher, computer: Computer) -> Any:
    """Keep the model at work on a sentence until `may_go` is set."""
    computer.may_go.clear()
    task = submit(batcher, 1)
    await until(lambda: bool(computer.batches))
    return task


@pytest.fixture
def ask(run: Any, computer: Computer) -> Callable[..., list[Any]]:
    """Submit requests at the same time, each a list of lengths; return the translations' lengths, or the errors."""

    def call(*requests: list[int], is_busy: bool = False, subwords: int = 1, **bounds: Any) -> list[Any]:
        async def scenario(batcher: Batcher, _: Worker) -> list[Any]:
            if is_busy:
                await keep_busy(batcher, computer)
            tasks = [submit(batcher, *request, subwords=subwords) for request in requests]
            await asyncio.sleep(0)  # all requests are in the queue now
            computer.may_go.set()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert not batcher.waiting
            return answers

        answers = run(scenario, **bounds)
        return [
            answer if isinstance(answer, Exception) else [len(best[0].text) for best in answer] for answer in answers
        ]

    return call


def test_a_full_batch_does_not_wait(ask: Any, computer: Computer):
    assert ask(*([length] for length in range(2, 10)), max_delay=100.0) == [[2 * one] for one in range(2, 10)]
    assert len(computer.batches) == 1


def test_what_comes_while_the_model_is_busy_is_gathered(ask: Any, computer: Computer):
    assert ask(*([length] for length in range(20, 31)), is_busy=True)[-1] == [60]
    assert [len(batch) for batch in computer.batches] == [1, 8, 3]


def test_only_sentences_with_equal_options_are_computed_together(run: Any, computer: Computer):
    async def scenario(batcher: Any, _: Worker) -> None:
        await asyncio.gather(*(submit(batcher, length, n_best=1 + length % 2) for length in range(4)))

    run(scenario)
    assert computer.batches == [[0, 2], [1, 3]]


def test_nobody_waits_for_the_end_of_another_s_long_list(ask: Any, computer: Computer):
    assert ask([*range(20, 34)], [5], is_busy=True) == [[2 * one for one in range(20, 34)], [10]]
    assert computer.batches[1] == [20, 5, 21, 22, 23, 24, 25, 26]


def test_a_failure_is_found_in_few_batches(ask: Any, computer: Computer):
    *good, broken = ask(*([length] for length in range(20, 35)), [13], max_batch=16)
    assert good == [[2 * one] for one in range(20, 35)]
    assert isinstance(broken, RuntimeError)
    assert [len(batch) for batch in computer.batches] == [16, 8, 8, 4, 4, 2, 2, 1, 1]


@pytest.mark.parametrize("max_batch", [1, 2])
def test_a_failure_before_the_last_item_stops_nobody(ask: Any, computer: Computer, max_batch: int):
    """The rest of a failed job, a full batch of it, once let the loop spin for ever, without a pause for anything."""
    broken, other = ask([13, 2, 4, 6], [5], max_batch=max_batch)
    assert isinstance(broken, RuntimeError)
    assert other == [10]
    assert [6] not in computer.batches


@pytest.mark.parametrize("too_many", [[1] * 4, [500]])
def test_a_full_queue_refuses_and_says_for_how_long(ask: Any, too_many: list[int]):
    waiting, refused = ask([200] * 3, too_many, is_busy=True, waiting_texts=6)
    assert waiting == [400] * 3
    assert isinstance(refused, OverloadedError)
    assert 1 <= refused.retry_after <= 60


def test_one_request_may_exceed_an_empty_queue(ask: Any):
    assert ask([1] * 50, waiting_texts=6) == [[2] * 50]


def test_a_batch_is_limited_by_subwords_not_by_characters(ask: Any, computer: Computer):
    """A few characters can be many subwords: an emoji has four or more."""
    ask([*range(2, 8)], is_busy=True, subwords=1000)
    assert computer.batches == [[1], [2, 3, 4], [5, 6, 7]]


@pytest.mark.parametrize(("is_expected", "sizes"), [(False, [2048, 2048]), (True, [512] * 8)])
def test_a_batch_of_longer_requests_is_small_while_short_ones_are_expected(run, computer, is_expected, sizes):
    async def scenario(batcher: Any, worker: Worker) -> None:
        if is_expected:
            await worker.run(int)
        await submit(batcher, *[1] * 64, subwords=64)

    run(scenario, kind=Kind.LONG, max_batch=64)
    assert [64 * len(batch) for batch in computer.batches] == sizes


def test_what_nobody_waits_for_any_more_is_given_up_half_done(run, computer, caplog):
    async def scenario(batcher: Any, _: Worker) -> None:
        computer.may_go.clear()
        leaving = submit(batcher, 2, 3)
        await until(lambda: bool(computer.batches))
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        computer.may_go.set()
        await submit(batcher, 5)

    run(scenario)
    assert computer.batches == [[2, 3], [5]]
    assert computer.finished == 1
    assert not caplog.records


def test_stopping_answers_jobs_that_wait_and_jobs_at_work(run: Any, computer: Computer):
    async def scenario(batcher: Any, _: Worker) -> Any:
        first = await keep_busy(batcher, computer)
        waiting = submit(batcher, 2)
        await until(lambda: bool(batcher.waiting))
        await batcher.stop()
        assert not batcher.is_running
        return await asyncio.gather(first, waiting, return_exceptions=True)

    assert [type(answer) for answer in run(scenario)] == [TooLateError, TooLateError]


def test_the_worker_survives_an_exit_and_says_how_long_it_has_been_busy():
    async def scenario() -> None:
        worker, may_go = Worker(), threading.Event()

        def call() -> float:
            assert may_go.wait(20)
            worker.pause()
            return worker.busy_seconds

        with pytest.raises(RuntimeError, match="SystemExit"):
            await worker.run(Mock(side_effect=SystemExit(3)))
        assert worker.busy_seconds == 0
        work = asyncio.create_task(worker.run(call))
        await until(lambda: worker.busy_seconds > 0.2)
        may_go.set()
        assert await work < 0.2  # it has made progress
        assert await worker.run(divmod, 17, 5) == (3, 2)
        worker.close()

    asyncio.run(scenario())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the worker sees."""
    now = [0.0]
    monkeypatch.setattr(worker_module.time, "monotonic", lambda: now[0])
    return now


def in_turn(clock: list[float], kinds: str, steps: int = 1, before: str = "") -> str:
    """Have a call of each of these kinds (s, l) wait at the same time, after others; the order in which they worked."""
    order: list[str] = []

    async def scenario() -> None:
        worker, may_go = Worker(), threading.Event()

        def work(letter: str) -> None:
            for number in range(steps):
                if number:
                    worker.pause()
                order.append(letter)
                clock[0] += 1 / 64

        def call(letter: str) -> Coroutine[Any, Any, None]:
            return worker.run(work, letter, kind=Kind("sl".index(letter)))

        for letter in before:
            await call(letter)
        calls = [asyncio.ensure_future(one) for one in (worker.run(may_go.wait, 20), *map(call, kinds))]
        await asyncio.sleep(0)  # all of them wait now
        may_go.set()
        async with asyncio.timeout(20):
            await asyncio.gather(*calls)
        worker.close()

    asyncio.run(scenario())
    return "".join(order[len(before) :])


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("kinds", ["s" * 24 + "l" * 24, "l" * 24 + "s" * 24])
def test_long_calls_have_a_quarter_of_the_time_while_short_ones_wait(clock: list[float], kinds: str, steps: int):
    order = in_turn(clock, kinds, steps)
    both = order[: order.rindex("s") + 1]
    assert len(both) - both.count("s") == pytest.approx(len(both) / 4, abs=3)
    assert max(map(len, both.replace("s", " ").split())) <= 2  # no short call waits for long


def test_a_kind_saves_up_no_time_while_it_has_no_calls(clock: list[float]):
    assert "l" in in_turn(clock, "ll" + "s" * 9, before="l" * 9 + "s")[:5]
