"""Clients that ask over real sockets and never read what they are answered."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from serving import FakeTranslator, until
from uvicorn.server import ServerState

from seq2seq.apps.serve.app import create_app
from seq2seq.apps.serve.limits import Limits
from seq2seq.apps.serve.server import Connection
from seq2seq.apps.serve.service import Service

pytestmark = pytest.mark.slow

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


def test_an_explanation_that_is_too_large_is_refused(ask: Any):
    big = lambda _: {"big": "x" * 1000}  # noqa: E731
    asked = lambda client: client.post("/explain", json={"source": "a"})  # noqa: E731
    answer = ask(asked, explain=big, limits=Limits(explanation_bytes=500))
    assert answer.status_code == 400
    assert "has 1010 bytes, at most 500 are sent" in answer.json()["error"]
