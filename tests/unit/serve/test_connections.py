import asyncio
import logging
import resource
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from seq2seq.serve import server
from seq2seq.serve.server import Connection

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.fixture
def connected() -> Callable[..., Any]:
    """Run a scenario, a function of the two ends of a connection whose server waits 0.3 s for a request's head."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.5)  # an answer may take longer
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    def run(scenario: Callable[..., Awaitable[Any]], most: int | None = None) -> Any:
        async def all_of_it() -> Any:
            options: Any = {"timeout_keep_alive": 0.3, "limit_concurrency": most}
            config = uvicorn.Config(app, http=Connection, lifespan="off", log_config=None, **options)
            config.load()
            state = ServerState()
            loop = asyncio.get_running_loop()
            server = await loop.create_server(lambda: Connection(config, state, {}), "127.0.0.1", 0)
            async with server, asyncio.timeout(20):
                reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                try:
                    return await scenario(reader, writer)
                finally:
                    writer.close()

        return asyncio.run(all_of_it())

    return run


def test_a_connection_that_asks_nothing_is_closed(connected: Any):
    assert connected(lambda reader, writer: reader.read()) == b""


def test_a_head_that_drips_is_given_up(connected: Any):
    async def scenario(reader: Any, writer: Any) -> bytes:
        async def drip() -> None:
            for byte in b"GET / HTTP/1.1\r\nA: " + b"a" * 10_000:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            dripping.cancel()

    assert connected(scenario) == b""


@pytest.mark.slow
def test_who_asks_is_answered_however_long_it_takes_and_may_ask_again(connected: Any):
    async def scenario(reader: Any, writer: Any) -> list[bytes]:
        answers = []
        for _ in range(2):
            writer.write(REQUEST)
            answers.append(await reader.readuntil(b"ok"))
            await asyncio.sleep(0.1)
        return [*answers, await reader.read()]

    first, second, rest = connected(scenario)
    assert first.startswith(b"HTTP/1.1 200")
    assert second.startswith(b"HTTP/1.1 200")
    assert rest == b""


@pytest.mark.slow
def test_beyond_the_limit_the_longest_silent_connection_is_closed_and_none_at_work(connected: Any):
    async def scenario(reader: Any, writer: Any) -> Any:
        address = writer.get_extra_info("peername")
        working_reader, working = await asyncio.open_connection(*address)
        working.write(REQUEST)
        await asyncio.sleep(0.1)
        late_reader, late = await asyncio.open_connection(*address)
        with suppress(ConnectionError):
            assert await reader.read() == b""  # the silent one
        late.write(REQUEST)
        answers = [await each.readuntil(b"ok") for each in (working_reader, late_reader)]
        working.close()
        late.close()
        return answers

    answers = connected(scenario, most=2)
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)


@pytest.mark.slow
def test_a_connection_that_is_silent_after_an_answer_makes_room_too(connected: Any):
    async def scenario(reader: Any, writer: Any) -> bytes:
        address = writer.get_extra_info("peername")
        writer.write(REQUEST)
        await reader.readuntil(b"ok")
        working_reader, working = await asyncio.open_connection(*address)
        working.write(REQUEST)
        await asyncio.sleep(0.1)
        _, late = await asyncio.open_connection(*address)
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 0.1) == b""  # before the silence is too long
        answer = await working_reader.readuntil(b"ok")
        working.close()
        late.close()
        return answer

    assert connected(scenario, most=2).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_when_all_connections_are_at_work_some_more_are_answered(connected: Any):
    async def scenario(reader: Any, writer: Any) -> bytes:
        writer.write(REQUEST)
        await asyncio.sleep(0.1)
        other_reader, other = await asyncio.open_connection(*writer.get_extra_info("peername"))
        other.write(REQUEST)
        answer = await other_reader.readuntil(b"ok")
        other.close()
        return answer + await reader.readuntil(b"ok")

    assert connected(scenario, most=1).count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize(
    ("limit", "files", "expected"), [(500, (1024, 4096), 500), (500, (256, 1024), 500), (500, (64, 300), 150)]
)
def test_connections_take_at_most_half_of_the_files_that_may_be_open(
    monkeypatch: pytest.MonkeyPatch, limit: int, files: tuple[int, int], expected: int
):
    monkeypatch.setattr(resource, "getrlimit", lambda _: files)
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    assert server._most_connections(limit) == expected


def test_each_kind_of_message_is_logged_a_few_times_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    now = 100.0
    monkeypatch.setattr(server.time, "monotonic", lambda: now)
    bound = server.LogBound()
    caplog.handler.addFilter(bound)
    try:
        for number in range(121):
            logging.getLogger(f"any.library{number % 2}").warning("byte %r\x1b[2J\n" + "x" * number, number)
            now += 0.5
        logging.getLogger("any").warning("another")
    finally:
        caplog.handler.removeFilter(bound)
    *messages, last, other = caplog.messages
    assert messages == [f"byte {number}?[2J {'x' * number}".strip() for number in range(3)]
    assert last.endswith("x (117 more were left out)")
    assert other == "another"


def test_connections_that_come_together_each_close_another_one(connected: Any):
    async def scenario(reader: Any, writer: Any) -> int:
        address = writer.get_extra_info("peername")
        opened = [(reader, writer), *await asyncio.gather(*(asyncio.open_connection(*address) for _ in range(3)))]
        ends = [asyncio.create_task(end.read()) for end, _ in opened]
        done, _ = await asyncio.wait(ends, timeout=0.2)  # before the silence is too long
        for _, end in opened[1:]:
            end.close()
        await asyncio.wait(ends)
        return len(done)

    assert connected(scenario, most=2) == 2
