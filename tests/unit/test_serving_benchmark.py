import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from benchmarks import attacks, serving
from seq2seq.serve.limits import Limits
from tests.thin import thin

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving_at(serve: Serve) -> AsyncIterator[str]:
    """The address of a server; at its end every connection is closed and waited for."""

    async def serve_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve_and_close, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.close()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:  # connections just accepted begin another
            await asyncio.gather(*others)


def test_every_attack_stays_within_the_limits_of_a_request():
    limits = Limits()
    for texts in (attacks.white_space_documents(), attacks.subword_texts(), attacks.costly_documents()):
        assert all(len(text) <= limits.char_limit for text in texts)
    refused, accepted = attacks.costly_documents()
    assert refused.count("<b>") > limits.tag_limit == accepted.partition(".")[0].count("b>")
    heads = [request.partition(b"\r\n\r\n") for request in attacks.codec_requests("http://127.0.0.1:1")]
    assert all(len(body) <= limits.body_limit and b"Authorization" not in head for head, _, body in heads)
    assert limits.connections * 2 < attacks.IDLE


def test_documents_are_as_large_as_a_request_may_be():
    limits = Limits()
    text, page, texts = (values["q"] for values in serving.document_values(["The cat sees the milk.", "Yes."]))
    assert len(text) == len(page) == limits.char_limit
    assert len(texts) == serving.TEXTS <= limits.batch_limit
    assert sum(map(len, texts)) <= limits.char_limit


@pytest.mark.parametrize("name", thin(serving.ATTACKS, ["idle connections"]))
def test_an_attack_counts_its_answers_or_disconnections(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attacks, "IDLE", 3)
    monkeypatch.setattr(attacks, "UNREAD", 2)
    monkeypatch.setattr(attacks, "PAUSE", 0.01)

    async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if name != "idle connections":
            await reader.readuntil(b"\r\n")
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async def scenario() -> Counter[str]:
        async with asyncio.timeout(20), serving_at(drop) as url:
            return await attacks.attack(name, url, {"source": "en", "target": "es"}, 0.2)

    counts = asyncio.run(scenario())
    assert counts["disconnected"] > 0
    assert (counts["400"] > 0) == (name != "idle connections")
