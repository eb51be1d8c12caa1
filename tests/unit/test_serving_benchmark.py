import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from benchmarks import serving
from seq2seq.documents.keeping import cut_sentences
from seq2seq.serve.limits import Limits

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


def answer(status: str, body: bytes) -> Serve:
    async def give(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    return give


def ask(status: str, body: bytes) -> serving.Tally:
    async def scenario() -> serving.Tally:
        tally = serving.Tally()
        async with asyncio.timeout(20), serving_at(answer(status, body)) as url:
            now = time.perf_counter()
            client = asyncio.create_task(serving.keep_asking(url, [b"{}", b"[]"], 1, now, now + 60, tally))
            while not (len(tally.latencies) > 4 or len(tally.errors) > 4):
                await asyncio.sleep(0.001)
            client.cancel()
            await asyncio.gather(client, return_exceptions=True)
        return tally

    return asyncio.run(scenario())


def test_answers_are_timed_and_refusals_are_errors():
    tally = ask("200 OK", b'{"translatedText": "a"}')
    assert not tally.errors
    assert len(tally.latencies) > 4
    assert all(0 < seconds < 20 for seconds in tally.latencies)
    assert ask("429 Too Many", b'{"error": "Slowdown"}').errors[0] == "429 {'error': 'Slowdown'}"
    assert ask("200 OK", b"{}").errors[0] == "200 {}"


def test_numbers_are_summed_up():
    tally = serving.Tally([0.01 * i for i in range(1, 101)], ["x"], [1.0, 5.0, 2.0, 9.0, 3.04])
    found = serving.summarise(tally, 50.0)
    assert (found["answers"], found["errors"], found["sentences_per_second"]) == (100, 1, 2.0)
    assert (found["p50_ms"], found["p95_ms"]) == (505, 950)
    assert found["memory_mb"] == [1.0, 2.0, 3.0]  # at the start, in the middle and at the end
    assert serving.summarise(serving.Tally(), 5.0)["p95_ms"] == 0
    assert serving.summarise(serving.Tally(), 5.0)["memory_mb"] == [0.0, 0.0, 0.0]


def test_one_costly_document_is_refused_and_the_other_is_as_costly_as_may_be():
    limits = Limits()
    refused, accepted = serving.hostile_documents()
    for document in (refused, accepted):
        assert len(document) == limits.char_limit
    assert refused.count("<b>") == 1250 > limits.tag_limit
    assert accepted.partition(".")[0].count("b>") == limits.tag_limit
    assert len(cut_sentences(re.sub("<.*?>", "", accepted))) > 3


def test_a_client_that_never_reads_begins_anew_when_it_is_disconnected():
    async def scenario() -> tuple[int, bytes]:
        asked: list[bytes] = []

        async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readuntil(b"\r\n"))
            writer.write(b"x" * 100)
            await writer.drain()

        met = serving.Tally()
        async with asyncio.timeout(20), serving_at(drop) as url:
            client = asyncio.create_task(serving.never_read(url, met))
            while met.disconnected < 2:
                await asyncio.sleep(0.01)
            client.cancel()
            await asyncio.gather(client, return_exceptions=True)
        return len(asked), asked[0]

    count, first = asyncio.run(scenario())
    assert count >= 2
    assert first == b"POST /explain HTTP/1.1\r\n"
