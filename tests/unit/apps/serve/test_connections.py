"""Clients that ask over real sockets, slowly or too many at once, and never read what they are answered."""

import asyncio
import logging
import resource
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from serving import FakeTranslator, until
from shouting import translate_texts
from uvicorn.server import ServerState

from seq2seq.apps.serve import server
from seq2seq.apps.serve.app import create_app
from seq2seq.apps.serve.limits import Limits
from seq2seq.apps.serve.server import Connection
from seq2seq.apps.serve.service import Service

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
EXPLAIN = b"POST /explain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n"
EXPLAIN += b'{"source": "a"}'
SIZE = 15_000_000  # bytes of an explanation: more than the system keeps for a socket
CHUNK = 65_536  # bytes that the server writes at a time


class ImpatientConnection(Connection):
    write_timeout = 1.5


slow_app = FastAPI()


@slow_app.get("/", response_class=PlainTextResponse)
async def answer_late() -> str:
    await asyncio.sleep(0.5)  # longer than the server waits for a request's head
    return "ok"


def run(scenario: Callable[..., Awaitable[Any]], app: FastAPI = slow_app, most: int | None = None) -> Any:
    """Run a scenario, a function of the server's state and of a function that connects and sends a request."""

    async def all_of_it() -> Any:
        options: Any = {"timeout_keep_alive": 0.3, "limit_concurrency": most}
        config = uvicorn.Config(app, http=ImpatientConnection, lifespan="off", log_config=None, **options)
        config.load()
        state, opened = ServerState(), ExitStack()
        create = lambda: ImpatientConnection(config, state, {})  # noqa: E731
        server = await asyncio.get_running_loop().create_server(create, "127.0.0.1", 0)

        async def connect(request: bytes = b"") -> tuple[Any, Any]:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            opened.callback(writer.close)
            writer.write(request)
            await asyncio.sleep(0.1 if request == REQUEST else 0)
            return reader, writer

        async with app.router.lifespan_context(app), server, asyncio.timeout(60):
            with opened:
                return await scenario(state, connect)

    return asyncio.run(all_of_it())


@pytest.mark.parametrize("head", [b"", b"GET / HTTP/1.1\r\nA: " + b"a" * 10_000])
def test_a_head_that_does_not_come_or_drips_is_given_up(head: bytes):
    async def scenario(state: ServerState, connect: Any) -> bytes:
        reader, writer = await connect()

        async def drip() -> None:
            for byte in head:
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
def test_who_asks_is_answered_however_long_it_takes_and_may_ask_again():
    async def scenario(state: ServerState, connect: Any) -> list[bytes]:
        reader, writer = await connect()
        answers = []
        for _ in range(2):
            writer.write(REQUEST)
            answers.append((await reader.readuntil(b"ok"))[:12])
            await asyncio.sleep(0.1)
        return [*answers, await reader.read()]

    assert run(scenario) == [b"HTTP/1.1 200", b"HTTP/1.1 200", b""]


@pytest.mark.slow
@pytest.mark.parametrize("has_asked", [False, True])
def test_beyond_the_limit_the_longest_silent_connection_is_closed_and_none_at_work(has_asked: bool):
    async def scenario(state: ServerState, connect: Any) -> list[bytes]:
        silent, _ = await connect(REQUEST if has_asked else b"")
        if has_asked:
            await silent.readuntil(b"ok")
        working, _ = await connect(REQUEST)
        late, writer = await connect()
        with suppress(ConnectionError):
            assert await asyncio.wait_for(silent.read(), 0.1) == b""  # before the silence is too long
        writer.write(REQUEST)
        return [(await each.readuntil(b"ok"))[:12] for each in (working, late)]

    assert run(scenario, most=2) == [b"HTTP/1.1 200"] * 2


@pytest.mark.slow
def test_when_all_connections_are_at_work_some_more_are_answered():
    async def scenario(state: ServerState, connect: Any) -> list[bytes]:
        readers = [(await connect(REQUEST))[0] for _ in range(2)]
        return [(await reader.readuntil(b"ok"))[:12] for reader in readers]

    assert run(scenario, most=1) == [b"HTTP/1.1 200"] * 2


def test_connections_that_come_together_each_close_another_one():
    async def scenario(state: ServerState, connect: Any) -> int:
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


def explaining(explanations: int) -> FastAPI:
    """Return a server's application that may make so many explanations at a time, each of SIZE bytes."""
    limits = Limits(explanations=explanations)
    return create_app(Service(FakeTranslator(), limits, explain=lambda _: {"big": "x" * SIZE}))


def unsent(state: ServerState) -> list[int]:
    """Return the bytes that wait for each client that does not read."""
    sizes = (connection.transport.get_write_buffer_size() for connection in state.connections)
    return [size for size in sizes if size]


@pytest.mark.slow
def test_clients_that_never_read_hold_little_and_are_let_go():
    app = explaining(20)
    service = app.state.service

    async def scenario(state: ServerState, connect: Any) -> int:
        await asyncio.gather(*(connect(EXPLAIN) for _ in range(8)))
        await until(lambda: service.inside == 8)
        most = 0
        while state.connections:
            most = max([most, *unsent(state)])
            await asyncio.sleep(0.01)
        await until(lambda: service.inside == 0)
        return most

    assert 0 < run(scenario, app) <= 2 * CHUNK
    assert service.explanations == 0


@pytest.mark.slow
def test_explanations_that_are_not_taken_leave_no_room_for_more_until_they_are_let_go():
    app = explaining(2)

    async def scenario(state: ServerState, connect: Any) -> list[bytes]:
        await asyncio.gather(connect(EXPLAIN), connect(EXPLAIN))
        await until(lambda: len(unsent(state)) == 2)
        statuses = [await (await connect(EXPLAIN))[0].read(12) for _ in range(3)]
        await until(lambda: app.state.service.inside == 0)
        reader, _ = await connect(EXPLAIN)
        statuses.append((await reader.readuntil(b"\r\n\r\n"))[:12])
        assert len(await reader.readexactly(SIZE + len('{"big":""}'))) > SIZE
        return statuses

    assert run(scenario, app) == [b"HTTP/1.1 429"] * 3 + [b"HTTP/1.1 200"]
