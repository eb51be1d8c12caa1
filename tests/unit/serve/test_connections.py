import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from seq2seq.serve.server import Connection

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.fixture
def connected() -> Callable[..., Any]:
    """Run a scenario, a function of the two ends of a connection whose server waits 0.3 s for a request's head."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.5)  # an answer may take longer
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    def run(scenario: Callable[..., Awaitable[Any]]) -> Any:
        async def all_of_it() -> Any:
            config = uvicorn.Config(app, http=Connection, lifespan="off", log_config=None, timeout_keep_alive=0.3)  # type: ignore[arg-type]
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
