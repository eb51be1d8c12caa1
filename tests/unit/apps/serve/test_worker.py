import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from serving import until

from seq2seq.apps.serve import worker as worker_module
from seq2seq.apps.serve.worker import Kind, Worker


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
    """Have 24 calls of each of these kinds (s, d, l) wait at the same time; the order in which they worked."""
    order: list[str] = []

    def step(letter: str) -> None:
        order.append(letter)
        clock[0] += 1 / 64

    async def scenario() -> None:
        worker, may_go = Worker(), threading.Event()
        calls: list[asyncio.Task[Any]] = [asyncio.create_task(worker.run(may_go.wait, 20))]
        calls += [
            asyncio.create_task(worker.run(work, worker, partial(step, letter), kind=Kind("sdl".index(letter))))
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
@pytest.mark.parametrize("kinds", ["sd", "ds", "sl", "lds"])
def test_all_longer_calls_together_have_a_quarter_of_the_time_while_short_ones_wait(clock, kinds, work):
    order = in_turn(clock, kinds, work)
    both = order[: order.rindex("s") + 1]
    assert len(both) - both.count("s") == pytest.approx(len(both) / 4, abs=3)
    assert max(map(len, both.replace("s", " ").split())) <= 2  # no short call waits for long
    assert {kind: both.count(kind) > 2 for kind in kinds} == dict.fromkeys(kinds, True)  # nothing starves


def test_a_kind_saves_up_no_time_while_it_has_no_calls(clock: list[float]):
    async def scenario() -> list[str]:
        worker, order = Worker(), []

        def step(letter: str) -> None:
            order.append(letter)
            clock[0] += 1 / 64

        for _ in range(9):
            await worker.run(step, "d", kind=Kind.DOCUMENT)
        await worker.run(step, "s")
        may_go = threading.Event()
        calls: list[asyncio.Task[Any]] = [asyncio.create_task(worker.run(may_go.wait, 20, kind=Kind.LONG))]
        calls += [asyncio.create_task(worker.run(step, "d", kind=Kind.DOCUMENT)) for _ in range(2)]
        calls += [asyncio.create_task(worker.run(step, "s")) for _ in range(9)]
        await asyncio.sleep(0)
        may_go.set()
        await asyncio.gather(*calls)
        worker.close()
        return order[10:]

    assert "d" in asyncio.run(scenario())[:5]
