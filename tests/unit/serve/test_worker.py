import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from serving import until

from seq2seq.serve.batching import Batcher
from seq2seq.serve.worker import Worker


def test_a_batch_that_progresses_is_not_stuck():
    async def scenario() -> tuple[float, float]:
        worker, may_go = Worker(), threading.Event()
        began = threading.Event()

        def compute(key: str, items: list[int], check: Callable[[], None]) -> list[int]:
            began.set()
            assert may_go.wait(20)
            check()
            progressed.append(worker.busy_seconds)
            return items

        progressed: list[float] = []
        batcher = Batcher(compute, worker, max_batch=2, max_delay=0.0, max_items=9, max_size=9, size=lambda item: 1)
        batcher.start()
        work = asyncio.create_task(batcher.submit([1], "a"))
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
