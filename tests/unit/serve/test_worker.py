import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from serving import until

from seq2seq.serve import worker as worker_module
from seq2seq.serve.batching import Batcher, Ranked, Ranking, Sentence, SentenceOptions
from seq2seq.serve.limits import Limits
from seq2seq.serve.worker import Worker


def test_a_batch_that_progresses_is_not_stuck():
    async def scenario() -> tuple[float, float]:
        worker, may_go = Worker(), threading.Event()
        began = threading.Event()

        def compute(options: SentenceOptions, texts: list[str], check: Callable[[], None]) -> list[Ranked]:
            began.set()
            assert may_go.wait(20)
            check()
            progressed.append(worker.busy_seconds)
            return [[Ranking(text)] for text in texts]

        progressed: list[float] = []
        batcher = Batcher(compute, worker, Limits())
        batcher.start()
        work = asyncio.create_task(batcher.submit([Sentence("a", 1)], SentenceOptions(1)))
        await until(lambda: began.is_set() and worker.busy_seconds > 0.2)
        before = worker.busy_seconds
        may_go.set()
        await work
        await batcher.stop()
        worker.close()
        return before, progressed[0]

    before, after = asyncio.run(scenario())
    assert after < before


def test_the_worker_survives_an_exit_and_says_how_long_it_has_been_busy():
    def leave() -> None:
        raise SystemExit(3)

    async def scenario() -> Sequence[Any]:
        worker, wait = Worker(), threading.Event()
        with pytest.raises(RuntimeError, match="SystemExit"):
            await worker.run(leave)
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


def in_turn(clock: list[float], costly: Callable[[Worker, Callable[[str], None]], None], count: int) -> str:
    """Have costly and six ordinary calls, twice as long, wait at the same time; the order in which they worked."""
    order: list[str] = []

    def work(name: str) -> None:
        order.append(name)
        clock[0] += 0.125 if name == "c" else 0.25

    async def scenario() -> None:
        worker, may_go = Worker(), threading.Event()
        calls: list[asyncio.Task[Any]] = [asyncio.create_task(worker.run(may_go.wait, 20))]
        calls += [asyncio.create_task(worker.run(costly, worker, work, is_costly=True)) for _ in range(count)]
        calls += [asyncio.create_task(worker.run(work, "o")) for _ in range(6)]
        await asyncio.sleep(0)  # all of them wait now
        may_go.set()
        async with asyncio.timeout(20):
            await asyncio.gather(*calls)
        worker.close()

    asyncio.run(scenario())
    return "".join(order)


def test_costly_calls_have_a_fifth_of_the_time_while_others_wait(clock: list[float]):
    assert in_turn(clock, lambda worker, work: work("c"), 5) == "coocoocoocc"


def test_others_go_first_wherever_a_costly_call_pauses(clock: list[float]):
    def costly(worker: Worker, work: Callable[[str], None]) -> None:
        for _ in range(5):
            work("c")
            worker.pause()

    assert in_turn(clock, costly, 1) == "coocoocoocc"
