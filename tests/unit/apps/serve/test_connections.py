"""Clients that ask over real sockets and never read what they are answered."""

import asyncio
import json
import logging
import resource
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from serving import FakeTranslator, until
from shouting import translate_texts
from uvicorn.server import ServerState

from seq2seq.apps.serve import server
from seq2seq.apps.serve.app import create_app
from seq2seq.apps.serve.limits import Limits
from seq2seq.apps.serve.server import Connection
from seq2seq.apps.serve.service import Service

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


SIZE = 15_000_000  # bytes of an answer: more than the system keeps for a socket
CHUNK = 65_536  # bytes that the server writes at a time


class ImpatientConnection(Connection):
    write_timeout = 1.5


def big_app(**limits: int) -> FastAPI:
    return create_app(Service(FakeTranslator(), Limits(**limits), explain=lambda _: {"big": "x" * SIZE}))


async def with_server(app: FastAPI, scenario: Any, **options: int) -> Any:
    """Run a scenario, a function of the server's address and state; options are those of its sockets."""
    config = uvicorn.Config(app, http=ImpatientConnection, lifespan="off", log_config=None, timeout_keep_alive=1)
    config.load()
    state = ServerState()
    create = lambda: ImpatientConnection(config, state, {})  # noqa: E731
    async with app.router.lifespan_context(app), asyncio.timeout(60):
        server = await asyncio.get_running_loop().create_server(create, "127.0.0.1", 0)
        for name, value in options.items():
            server.sockets[0].setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        async with server:
            return await scenario(server.sockets[0].getsockname(), state)


@contextmanager
def askers(address: Any, count: int) -> Iterator[list[socket.socket]]:
    """Clients that have sent a request."""
    body = json.dumps({"source": "a"}).encode()
    head = f"POST /explain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    clients = [socket.create_connection(address) for _ in range(count)]
    try:
        for client in clients:
            client.sendall(head.encode() + b"\r\n\r\n" + body)
        yield clients
    finally:
        for client in clients:
            client.close()


@pytest.mark.slow
def test_clients_that_never_read_hold_little_and_are_let_go():
    app = big_app(explanations=20)

    async def scenario(address: Any, state: ServerState) -> tuple[int, int]:
        with askers(address, 8):
            service = app.state.service
            await until(lambda: len(state.connections) == 8 and service.inside == 8)
            most = 0
            async with asyncio.timeout(40):
                while state.connections:
                    waiting = [connection.transport.get_write_buffer_size() for connection in state.connections]
                    most = max(most, *waiting)
                    await asyncio.sleep(0.01)
            await until(lambda: service.inside == 0)
            return most, service.explanations

    most, waiting = asyncio.run(with_server(app, scenario))
    assert 0 < most <= 2 * CHUNK
    assert waiting == 0


@pytest.mark.slow
def test_explanations_that_are_not_taken_leave_no_room_for_more_until_they_are_let_go():
    app = big_app(explanations=2)

    async def scenario(address: Any, state: ServerState) -> list[bytes]:
        with askers(address, 2):
            await until(lambda: is_writing(state, 2))
            with askers(address, 3) as clients:
                refused = [await asyncio.to_thread(client.recv, 12) for client in clients]
            await until(lambda: app.state.service.inside == 0)
        with askers(address, 1) as (reading,):
            reading.setblocking(False)
            loop = asyncio.get_running_loop()
            answer = b""
            while not answer.endswith(b"}"):
                answer += await loop.sock_recv(reading, 1_000_000)
        return [*refused, answer]

    *refused, answer = asyncio.run(with_server(app, scenario))
    assert refused == [b"HTTP/1.1 429"] * 3
    assert answer.startswith(b"HTTP/1.1 200")
    assert len(answer.partition(b"\r\n\r\n")[2]) == SIZE + len('{"big":""}')


@pytest.mark.slow
def test_a_small_answer_that_is_not_taken_closes_the_connection_too():
    """The application is done with it at once; a part of it waits in the server."""

    async def scenario(address: Any, state: ServerState) -> int:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            client.connect(address)
            client.sendall(b"GET /small HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await until(lambda: is_writing(state, 1))
            waiting = max(connection.transport.get_write_buffer_size() for connection in state.connections)
            await until(lambda: not state.connections)
            return waiting

    app = big_app()
    app.add_api_route("/small", lambda: "x" * (CHUNK - 100))
    assert 0 < asyncio.run(with_server(app, scenario, SO_SNDBUF=1024)) < CHUNK


def is_writing(state: ServerState, count: int) -> bool:
    """Whether the answers of so many connections wait for their clients."""
    return sum(connection.transport.get_write_buffer_size() > 0 for connection in state.connections) == count


@pytest.mark.slow
def test_an_explanation_that_is_too_large_is_refused(ask: Any):
    big = lambda _: {"big": "x" * 1000}  # noqa: E731
    asked = lambda client: client.post("/explain", json={"source": "a"})  # noqa: E731
    answer = ask(asked, explain=big, limits=Limits(explanation_bytes=500))
    assert answer.status_code == 400
    assert "has 1010 bytes, at most 500 are sent" in answer.json()["error"]
