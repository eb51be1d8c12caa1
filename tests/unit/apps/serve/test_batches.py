import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from serving import until

from seq2seq.apps.serve import worker as worker_module
from seq2seq.apps.serve.batching import Batcher, OverloadedError, Ranked, Sentence, SentenceOptions, TooLateError
from seq2seq.apps.serve.limits import Limits
from seq2seq.apps.serve.worker import Kind, Worker
from seq2seq.errors import UserError
from seq2seq.translate.types import Translation

KEYS = {"a": SentenceOptions(1), "b": SentenceOptions(2)}


async def submit(batcher: Batcher, numbers: list[int], key: str) -> list[int]:
    """Submit sentences of so many characters, one subword each; return the lengths of the translations."""
    sentences = [Sentence("x" * number, 1) for number in numbers]
    return [len(best[0].text) for best in await batcher.submit(sentences, KEYS[key])]


class Computer:
    """Doubles sentences; records the lengths in its batches, waits and fails on request."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[int]]] = []
        self.may_go = threading.Event()
        self.may_go.set()
        self.finished = 0

    def __call__(self, options: SentenceOptions, texts: list[str], check: Callable[[], None]) -> list[Ranked]:
        items = [len(text) for text in texts]
        self.batches.append(("a" if options == KEYS["a"] else "b", items))
        assert self.may_go.wait(20)
        check()
        self.finished += len(items)
        if 13 in items:
            raise RuntimeError("unlucky")
        if 17 in items:
            raise UserError("17 is refused")
        return [[Translation(2 * text, 0.0, 0.0, [])] for text in texts]


@pytest.fixture
def computer() -> Computer:
    return Computer()


@pytest.fixture
def run(computer: Computer) -> Callable[..., Any]:
    """Run a scenario with a batcher of the given bounds."""

    def start(scenario: Callable[[Any], Coroutine[Any, Any, Any]], **options: Any) -> Any:
        async def all_of_it() -> Any:
            worker = Worker()
            bounds = {"max_batch": 8, "max_delay": 0.002, "waiting_texts": 20, "waiting_chars": 1000, **options}
            batcher = Batcher(computer, worker, Limits(char_limit=1, **bounds))
            batcher.start()
            try:
                return await scenario(batcher)
            finally:
                computer.may_go.set()
                await batcher.stop()
                worker.close()

        return asyncio.run(all_of_it())

    return start


async def while_busy(batcher: Any, computer: Computer) -> Any:
    """Keep the model at work on one item until `may_go` is set."""
    computer.may_go.clear()
    first = asyncio.create_task(submit(batcher, [1], "a"))
    await until(lambda: bool(computer.batches))
    return first


def test_a_full_batch_does_not_wait(run: Any, computer: Computer):
    async def scenario(batcher: Any) -> Any:
        return await asyncio.gather(*(submit(batcher, [one], "a") for one in range(2, 10)))

    assert run(scenario, max_delay=100.0) == [[2 * one] for one in range(2, 10)]
    assert len(computer.batches) == 1


def test_what_comes_while_the_model_is_busy_is_gathered(run: Any, computer: Computer):
    async def scenario(batcher: Any) -> Any:
        first = await while_busy(batcher, computer)
        others = [asyncio.create_task(submit(batcher, [one], "a")) for one in range(2, 14) if one != 13]
        await until(lambda: len(batcher.waiting) == 11)
        computer.may_go.set()
        return await asyncio.gather(first, *others)

    assert run(scenario)[-1] == [24]
    assert [len(items) for _, items in computer.batches] == [1, 8, 3]


def test_only_equal_keys_are_computed_together(run: Any, computer: Computer):
    async def scenario(batcher: Any) -> Any:
        keys = ("a", "b", "a", "b")
        return await asyncio.gather(*(submit(batcher, [i], keys[i]) for i in range(4)))

    assert run(scenario) == [[0], [2], [4], [6]]
    assert computer.batches == [("a", [0, 2]), ("b", [1, 3])]


def test_nobody_waits_for_the_end_of_another_s_long_list(run: Any, computer: Computer):
    async def scenario(batcher: Any) -> Any:
        first = await while_busy(batcher, computer)
        long = asyncio.create_task(submit(batcher, list(range(20, 34)), "a"))
        await until(lambda: len(batcher.waiting) == 14)
        short = asyncio.create_task(submit(batcher, [5], "a"))
        await until(lambda: len(batcher.waiting) == 15)
        computer.may_go.set()
        return await asyncio.gather(first, long, short)

    assert run(scenario) == [[2], [2 * one for one in range(20, 34)], [10]]
    assert computer.batches[1][1] == [20, 5, 21, 22, 23, 24, 25, 26]


def test_a_failure_is_found_in_few_batches(run: Any, computer: Computer):
    async def scenario(batcher: Any) -> Any:
        asked = [*range(20, 35), 13]
        return await asyncio.gather(*(submit(batcher, [one], "a") for one in asked), return_exceptions=True)

    *good, broken = run(scenario, max_batch=16)
    assert good == [[2 * one] for one in range(20, 35)]
    assert isinstance(broken, RuntimeError)
    assert [len(items) for _, items in computer.batches] == [16, 8, 8, 4, 4, 2, 2, 1, 1]


@pytest.mark.parametrize("max_batch", [1, 2])
def test_a_failure_before_the_last_item_stops_nobody(run: Any, computer: Computer, max_batch: int):
    """The rest of a failed job, a full batch of it, once let the loop spin for ever, without a pause for anything."""

    async def scenario(batcher: Any) -> Any:
        failed = await asyncio.gather(submit(batcher, [13, 2, 4, 6], "a"), return_exceptions=True)
        assert not batcher.waiting
        return [*failed, await submit(batcher, [5], "a")]

    broken, other = run(scenario, max_batch=max_batch)
    assert isinstance(broken, RuntimeError)
    assert other == [10]
    assert [6] not in [items for _, items in computer.batches]


def test_who_leaves_while_a_batch_ends_stops_nobody(run: Any, computer: Computer):
    async def scenario(batcher: Any) -> Any:
        first = await while_busy(batcher, computer)
        leaving = asyncio.create_task(submit(batcher, [2, 3], "a"))
        await until(lambda: len(batcher.waiting) == 2)
        batcher._waiting[0].future.cancel()  # as when the client goes, before the one who waits hears of it
        assert batcher._take() == []
        assert not batcher.waiting
        computer.may_go.set()
        return await asyncio.gather(first, leaving, return_exceptions=True)

    first, left = run(scenario, max_batch=1)
    assert first == [2]
    assert isinstance(left, asyncio.CancelledError)


@pytest.mark.parametrize("too_many", [[1] * 4, [500]])
def test_a_full_queue_refuses_and_says_for_how_long(run: Any, computer: Computer, too_many: list[int]):
    async def scenario(batcher: Any) -> Any:
        first = await while_busy(batcher, computer)
        waiting = asyncio.create_task(submit(batcher, [200] * 3, "a"))
        await until(lambda: len(batcher.waiting) == 3)
        with pytest.raises(OverloadedError) as refused:
            await submit(batcher, too_many, "a")
        assert 1 <= refused.value.retry_after <= 60
        computer.may_go.set()
        await asyncio.gather(first, waiting)
        assert not batcher.waiting
        return await submit(batcher, [7], "a")

    assert run(scenario, waiting_texts=6, waiting_chars=1000) == [14]


def test_one_request_may_exceed_an_empty_queue(run: Any):
    async def scenario(batcher: Any) -> Any:
        return await submit(batcher, [1] * 50, "a")

    assert run(scenario, waiting_texts=6) == [2] * 50


def test_a_batch_is_limited_by_subwords_not_by_characters(run: Any, computer: Computer):
    """A few characters can be many subwords: an emoji has four or more."""

    async def scenario(batcher: Any) -> Any:
        first = await while_busy(batcher, computer)
        bombs = asyncio.create_task(batcher.submit([Sentence("x" * n, 1000) for n in range(2, 8)], KEYS["a"]))
        await until(lambda: len(batcher.waiting) == 6)
        computer.may_go.set()
        await asyncio.gather(first, bombs)

    run(scenario)
    assert [items for _, items in computer.batches] == [[1], [2, 3, 4], [5, 6, 7]]


@pytest.mark.parametrize(("is_expected", "sizes"), [(False, [2048, 2048]), (True, [512] * 8)])
def test_a_batch_of_longer_requests_is_small_while_short_ones_are_expected(is_expected: bool, sizes: list[int]):
    batches: list[int] = []

    def compute(options: SentenceOptions, texts: list[str], check: Callable[[], None]) -> list[Ranked]:
        batches.append(64 * len(texts))
        return [[Translation(text, 0.0, 0.0, [])] for text in texts]

    async def scenario() -> None:
        worker = Worker()
        batcher = Batcher(compute, worker, Limits(), kind=Kind.LONG)
        if is_expected:
            await worker.run(int)
        batcher.start()
        await batcher.submit([Sentence("x", 64)] * 64, SentenceOptions(1))
        await batcher.stop()
        worker.close()

    asyncio.run(scenario())
    assert batches == sizes


def test_what_nobody_waits_for_any_more_is_given_up_half_done(run, computer, caplog):
    async def scenario(batcher: Any) -> Any:
        computer.may_go.clear()
        leaving = asyncio.create_task(submit(batcher, [2, 3], "a"))
        await until(lambda: bool(computer.batches))
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        computer.may_go.set()
        return await submit(batcher, [5], "a")

    assert run(scenario) == [10]
    assert [items for _, items in computer.batches] == [[2, 3], [5]]
    assert computer.finished == 1
    assert not caplog.records


def test_stopping_answers_jobs_that_wait_and_jobs_at_work(run: Any, computer: Computer):
    async def scenario(batcher: Any) -> Any:
        first = await while_busy(batcher, computer)
        waiting = asyncio.create_task(submit(batcher, [2], "a"))
        await until(lambda: len(batcher.waiting) == 1)
        await batcher.stop()
        assert not batcher.is_running
        async with asyncio.timeout(20):
            return await asyncio.gather(first, waiting, return_exceptions=True)

    assert [type(answer) for answer in run(scenario)] == [TooLateError, TooLateError]


def test_a_call_that_progresses_is_not_stuck():
    async def scenario() -> tuple[float, float]:
        worker, may_go = Worker(), threading.Event()

        def call() -> float:
            assert may_go.wait(20)
            worker.pause()
            return worker.busy_seconds

        work = asyncio.create_task(worker.run(call))
        await until(lambda: worker.busy_seconds > 0.2)
        may_go.set()
        before, after = worker.busy_seconds, await work
        worker.close()
        return before, after

    before, after = asyncio.run(scenario())
    assert after < before


def test_the_worker_survives_an_exit_and_says_how_long_it_has_been_busy():
    async def scenario() -> Sequence[Any]:
        worker, wait = Worker(), threading.Event()
        with pytest.raises(RuntimeError, match="SystemExit"):
            await worker.run(Mock(side_effect=SystemExit(3)))
        assert worker.busy_seconds == 0
        call = asyncio.create_task(worker.run(wait.wait, 20))
        await until(lambda: worker.busy_seconds > 0.01)
        wait.set()
        done = await call, await worker.run(divmod, 17, 5)
        worker.close()
        return done

    assert asyncio.run(scenario()) == (True, (3, 2))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the worker sees."""
    now = [0.0]
    monkeypatch.setattr(worker_module.time, "monotonic", lambda: now[0])
    return now


def in_turn(clock: list[float], kinds: str, work: Callable[[Worker, Callable[[], None]], None]) -> str:
    """Have 24 calls of each of these kinds (s, l) wait at the same time; the order in which they worked."""
    order: list[str] = []

    def step(letter: str) -> None:
        order.append(letter)
        clock[0] += 1 / 64

    async def scenario() -> None:
        worker, may_go = Worker(), threading.Event()
        calls: list[asyncio.Task[Any]] = [asyncio.create_task(worker.run(may_go.wait, 20))]
        calls += [
            asyncio.create_task(worker.run(work, worker, partial(step, letter), kind=Kind("sl".index(letter))))
            for letter in kinds
            for _ in range(24)
        ]
        await asyncio.sleep(0)  # all of them wait now
        may_go.set()
        async with asyncio.timeout(20):
            await asyncio.gather(*calls)
        worker.close()

    asyncio.run(scenario())
    return "".join(order)


def one_step(worker: Worker, step: Callable[[], None]) -> None:
    step()


def three_steps(worker: Worker, step: Callable[[], None]) -> None:
    for _ in range(3):
        step()
        worker.pause()


@pytest.mark.parametrize("work", [one_step, three_steps])
@pytest.mark.parametrize("kinds", ["sl", "ls"])
def test_long_calls_have_a_quarter_of_the_time_while_short_ones_wait(clock, kinds, work):
    order = in_turn(clock, kinds, work)
    both = order[: order.rindex("s") + 1]
    assert len(both) - both.count("s") == pytest.approx(len(both) / 4, abs=3)
    assert max(map(len, both.replace("s", " ").split())) <= 2  # no short call waits for long


def test_a_kind_saves_up_no_time_while_it_has_no_calls(clock: list[float]):
    async def scenario() -> list[str]:
        worker, order = Worker(), []

        def step(letter: str) -> None:
            order.append(letter)
            clock[0] += 1 / 64

        for _ in range(9):
            await worker.run(step, "l", kind=Kind.LONG)
        await worker.run(step, "s")
        may_go = threading.Event()
        calls: list[asyncio.Task[Any]] = [asyncio.create_task(worker.run(may_go.wait, 20, kind=Kind.LONG))]
        calls += [asyncio.create_task(worker.run(step, "l", kind=Kind.LONG)) for _ in range(2)]
        calls += [asyncio.create_task(worker.run(step, "s")) for _ in range(9)]
        await asyncio.sleep(0)
        may_go.set()
        await asyncio.gather(*calls)
        worker.close()
        return order[10:]

    assert "l" in asyncio.run(scenario())[:5]
