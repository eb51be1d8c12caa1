"""Speed and memory of a server with many clients: with batches, without, and beside hostile clients."""

import asyncio
import itertools
import json
import select
import socket
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch

from benchmarks.command import Options, Results, Table
from benchmarks.data import read_test
from benchmarks.processes import memory_of
from benchmarks.server_process import ServerProcess
from seq2seq.settings.bundle import read_config

WARM_UP = 3.0  # seconds before the measurement
CHARACTERS, TAGS = 5_000, 200  # most characters of a request, and most tags of a sentence, that the server accepts
PAUSE = 0.5  # seconds between checks whether the server has disconnected a client that never reads
CASES: dict[str, tuple[str, ...]] = {  # options of the server
    "batches": (),
    "one at a time": ("--max-batch", "1", "--timeout", "600"),  # its queues are long
    "batches, with hostile clients": (),
}


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `serving`."""

    data: Path  # folder with test.tsv, whose sentences the clients send
    model: Path  # bundle that the server loads
    clients: int = 64  # ordinary clients; each sends its next sentence after the answer to the previous one
    unread: int = 40  # hostile clients that ask for an explanation and never read it; 0: no case with hostile clients
    seconds: float = 60.0  # seconds of measurement in each case


@dataclass
class Tally:
    """The results of clients."""

    latencies: list[float] = field(default_factory=list)  # seconds of each answer within the measurement
    errors: list[str] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)  # of the server (MB), every second
    disconnected: int = 0  # times that a client that never reads was disconnected


def run(plan: Plan, device: torch.device) -> Results:
    """Measure a new server process in each case.

    Raises:
        UserError: there are no sentences, the model is not a bundle, or this is not Linux.
    """
    sentences = [source for source, _ in read_test(plan.data)]
    _, config = read_config(plan.model / "config.json")
    common = ("--device", str(device), "--threads", str(torch.get_num_threads()))
    values: dict[str, Any] = {}
    for name, options in CASES.items():
        is_hostile, hostile = "hostile" in name, Tally()
        if is_hostile and not plan.unread:
            continue
        with ServerProcess(plan.model, *common, *options) as server:
            languages = {"source": config.src_lang, "target": config.tgt_lang}
            others = hostile_clients(plan.unread, server.url, languages, hostile) if is_hostile else []
            bodies = [json.dumps({"q": one, **languages}).encode() for one in sentences]
            values[name] = summarise(asyncio.run(ask(plan, server, bodies, others)), plan.seconds)
            values[name]["exit_status"] = server.stop()
        if is_hostile:
            documents = {"translated_documents": len(hostile.latencies), "refused_documents": len(hostile.errors)}
            values[name] |= {**documents, "disconnected": hostile.disconnected}
    return values, [table(values, plan)]


def summarise(tally: Tally, seconds: float) -> dict[str, Any]:
    """Return the results of ordinary clients; memory is given at the start, in the middle and at the end."""
    median, slow = np.quantile(tally.latencies or [0.0], (0.5, 0.95)).tolist()
    memory = tally.memory or [0.0]
    return {
        "answers": len(tally.latencies),
        "errors": len(tally.errors),
        "first_errors": tally.errors[:3],
        "sentences_per_second": round(len(tally.latencies) / seconds, 1),
        "p50_ms": round(1000 * median),
        "p95_ms": round(1000 * slow),
        "memory_mb": [round(memory[index], 1) for index in (0, len(memory) // 2, -1)],
    }


async def ask(
    plan: Plan, server: ServerProcess, bodies: Sequence[bytes], others: Sequence[Coroutine[Any, Any, None]]
) -> Tally:
    """Run all clients for the plan's time, and `others` beside them; return the results of the clients.

    Each client begins with another body.
    """
    tally = Tally()
    begin = time.perf_counter() + WARM_UP
    end = begin + plan.seconds
    clients = [
        keep_asking(server.url, bodies, number * len(bodies) // plan.clients, begin, end, tally)
        for number in range(plan.clients)
    ]
    tasks = [asyncio.create_task(client) for client in (*clients, *others)]
    while time.perf_counter() < end:
        await asyncio.sleep(min(1.0, max(0.0, end - time.perf_counter())))
        if time.perf_counter() >= begin:
            tally.memory.append(memory_of(server.process.pid))
    for task in tasks:  # a client that still waits does not count as an error
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return tally


def request(url: str, path: str, body: bytes) -> bytes:
    """Return an HTTP request that posts JSON."""
    head = f"POST {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def keep_asking(url: str, bodies: Sequence[bytes], first: int, begin: float, end: float, tally: Tally) -> None:
    """Send the bodies in turn, beginning with number `first`, each after the answer to the previous one.

    The tally gets the latencies of answers between `begin` and `end`, and all errors.
    """
    reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
    try:
        for body in itertools.islice(itertools.cycle(bodies), first, None):
            start = time.perf_counter()
            writer.write(request(url, "/translate", body))
            status, answer = await _read_answer(reader)
            now = time.perf_counter()
            if status != 200 or "translatedText" not in answer:
                tally.errors.append(f"{status} {answer}")
            elif begin <= now < end:
                tally.latencies.append(now - start)
    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
        tally.errors.append(repr(error))
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def _read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    return int(head.split(" ", 2)[1]), json.loads(await reader.readexactly(length))


def hostile_documents() -> list[str]:
    """Return the costliest HTML: a refused sentence with 1,250 tags, and sentences with the most tags allowed."""
    sentence = "".join(f"<b>W{number}</b> " for number in range(TAGS // 2)) + "end. "
    return ["<b>w" * (CHARACTERS // 4), ("<p>" + sentence * (CHARACTERS // len(sentence) + 1))[:CHARACTERS]]


def hostile_clients(unread: int, url: str, languages: dict[str, str], tally: Tally) -> list[Coroutine[Any, Any, None]]:
    """Return one client that sends costly documents, and `unread` clients that never read their answers.

    In the tally, refused documents count as errors.
    """
    bodies = [json.dumps({"q": one, "format": "html", **languages}).encode() for one in hostile_documents()]
    never = [never_read(url, tally) for _ in range(unread)]
    return [keep_asking(url, bodies, 0, 0.0, float("inf"), tally), *never]


async def never_read(url: str, tally: Tally) -> None:
    """Ask for an explanation and do not read it; reconnect when the server disconnects."""
    body = json.dumps({"source": "The big dog sees a small cat. " * 3}).encode()
    loop = asyncio.get_running_loop()
    while True:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            try:
                await loop.sock_connect(client, (urlsplit(url).hostname, urlsplit(url).port))
                await loop.sock_sendall(client, request(url, "/explain", body))
                poll = select.poll()
                poll.register(client, select.POLLRDHUP)  # the other end has closed, even if data is unread
                while not poll.poll(0):
                    await asyncio.sleep(PAUSE)
            except OSError:
                await asyncio.sleep(PAUSE)
            tally.disconnected += 1


def table(values: dict[str, Any], plan: Plan) -> Table:
    """Return a table with one row per case."""
    rows = [
        [
            name,
            f"{one['sentences_per_second']:,.1f}",
            f"{one['p50_ms']:,}",
            f"{one['p95_ms']:,}",
            str(one["errors"]),
            " → ".join(f"{memory:,.0f}" for memory in one["memory_mb"]),
        ]
        for name, one in values.items()
    ]
    header = ["serving", "sentences/s", "p50 (ms)", "p95 (ms)", "errors", "memory: start → middle → end (MB)"]
    return Table(f"{plan.clients} clients for {plan.seconds:g} s", header, rows)
