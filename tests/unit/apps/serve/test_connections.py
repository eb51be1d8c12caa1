import asyncio
import logging
import resource
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import uvicorn
from shouting import translate_texts
from uvicorn.server import ServerState

from seq2seq.apps.serve import server
from seq2seq.apps.serve.server import Connection

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.fixture
def run() -> Callable[..., Any]:
    """Run a scenario: its argument is a function that connects to a server that waits 0.3 s for a request's head."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.5)  # an answer may take longer
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    def run_scenario(scenario: Callable[..., Awaitable[Any]], most: int | None = None) -> Any:
        async def all_of_it() -> Any:
            options: Any = {"timeout_keep_alive": 0.3, "limit_concurrency": most}
            config = uvicorn.Config(app, http=Connection, lifespan="off", log_config=None, **options)
            config.load()
            state = ServerState()
            loop = asyncio.get_running_loop()
            server = await loop.create_server(lambda: Connection(config, state, {}), "127.0.0.1", 0)
            opened = ExitStack()

            async def connect(*, asks: bool = False) -> tuple[Any, Any]:
                reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                opened.callback(writer.close)
                if asks:
                    writer.write(REQUEST)
                    await asyncio.sleep(0.1)
                return reader, writer

            async with server, asyncio.timeout(20):
                with opened:
                    return await scenario(connect)

        return asyncio.run(all_of_it())

    return run_scenario


def test_a_connection_that_asks_nothing_is_closed(run: Any):
    async def scenario(connect: Any) -> bytes:
        reader, _ = await connect()
        return await reader.read()

    assert run(scenario) == b""


def test_a_head_that_drips_is_given_up(run: Any):
    async def scenario(connect: Any) -> bytes:
        reader, writer = await connect()

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

    assert run(scenario) == b""


@pytest.mark.slow
def test_who_asks_is_answered_however_long_it_takes_and_may_ask_again(run: Any):
    async def scenario(connect: Any) -> list[bytes]:
        reader, writer = await connect()
        answers = []
        for _ in range(2):
            writer.write(REQUEST)
            answers.append(await reader.readuntil(b"ok"))
            await asyncio.sleep(0.1)
        return [*answers, await reader.read()]

    first, second, rest = run(scenario)
    assert first.startswith(b"HTTP/1.1 200")
    assert second.startswith(b"HTTP/1.1 200")
    assert rest == b""


@pytest.mark.slow
@pytest.mark.parametrize("has_asked", [False, True])
def test_beyond_the_limit_the_longest_silent_connection_is_closed_and_none_at_work(run: Any, has_asked: bool):
    async def scenario(connect: Any) -> Any:
        silent, _ = await connect(asks=has_asked)
        if has_asked:
            await silent.readuntil(b"ok")
        working, _ = await connect(asks=True)
        late, writer = await connect()
        with suppress(ConnectionError):
            assert await asyncio.wait_for(silent.read(), 0.1) == b""  # before the silence is too long
        writer.write(REQUEST)
        return [await each.readuntil(b"ok") for each in (working, late)]

    answers = run(scenario, most=2)
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)


@pytest.mark.slow
def test_when_all_connections_are_at_work_some_more_are_answered(run: Any):
    async def scenario(connect: Any) -> bytes:
        readers = [(await connect(asks=True))[0] for _ in range(2)]
        return b"".join([await reader.readuntil(b"ok") for reader in readers])

    assert run(scenario, most=1).count(b"HTTP/1.1 200") == 2


def test_connections_that_come_together_each_close_another_one(run: Any):
    async def scenario(connect: Any) -> int:
        opened = [await connect(), *await asyncio.gather(*(connect() for _ in range(3)))]
        ends = [asyncio.create_task(reader.read()) for reader, _ in opened]
        done, _ = await asyncio.wait(ends, timeout=0.2)  # before the silence is too long
        for _, writer in opened:
            writer.close()
        await asyncio.wait(ends)
        return len(done)

    assert run(scenario, most=2) == 2


@pytest.mark.parametrize(
    ("limit", "files", "expected"), [(500, (1024, 4096), 500), (500, (256, 1024), 500), (500, (64, 300), 150)]
)
def test_connections_take_at_most_half_of_the_files_that_may_be_open(monkeypatch, limit, files, expected):
    monkeypatch.setattr(resource, "getrlimit", lambda _: files)
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    assert server._most_connections(limit) == expected


def test_each_kind_of_message_is_logged_a_few_times_a_minute_and_no_text_of_a_user(caplog, monkeypatch):
    now = 100.0
    monkeypatch.setattr(server.time, "monotonic", lambda: now)
    bound = server.LogBound()
    caplog.handler.addFilter(bound)
    try:
        for number in range(121):
            logging.getLogger(f"any.library{number % 2}").warning("byte %r\x1b[2J\n" + "x" * number, number)
            now += 0.5
        logging.getLogger("any").warning("another")
        translate_texts(["my secret {name}"], lambda texts, _: [(f"{text} {{added}}", None) for text in texts])
    finally:
        caplog.handler.removeFilter(bound)
    *messages, last, other = caplog.messages
    assert messages == [f"byte {number}?[2J {'x' * number}".strip() for number in range(3)]
    assert last.endswith("x (117 more were left out)")
    assert other == "another"
