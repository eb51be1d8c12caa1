"""Compare servers with and without batches: the same clients use first one server process, then the other."""

import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.server_process import ServerProcess
from benchmarks.tables import Table
from seq2seq.errors import UserError
from seq2seq.settings.bundle import read_config

_PATIENCE = 600  # seconds that an answer may take; a server without batches has long queues


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of the load."""

    clients: int = 64  # number of clients; each sends its next request after an answer
    seconds: float = 60.0  # seconds of measurement per server
    warmup: float = 3.0  # seconds before the measurement


@dataclass
class Tally:
    """The results of the clients."""

    latencies: list[float] = field(default_factory=list)  # seconds of each answer within the measurement
    errors: list[str] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)  # resident memory (MB), every second


def run(plan: Plan, model: Path, sentences: Sequence[str], device: str, threads: int) -> dict[str, Any]:
    """Measure a server with batches, then a server without.

    Raises:
        UserError: there are no sentences, or model is not a bundle.
    """
    if not sentences:
        raise UserError("there is no sentence to translate: give --data with a test.tsv that has some")
    _, config = read_config(model / "config.json")
    languages = config.src_lang, config.tgt_lang
    kinds = {"batches": (), "one at a time": ("--max-batch", "1")}
    found: dict[str, Any] = {}
    for name, options in kinds.items():
        more = ("--device", device, "--threads", str(threads), "--timeout", str(_PATIENCE), *options)
        with ServerProcess(model, *more) as server:
            tally = asyncio.run(ask(plan, server, sentences, languages))
            found[name] = {**summarise(tally, plan.seconds), "exit_status": server.stop()}
    ratio = found["batches"]["sentences_per_second"] / max(found["one at a time"]["sentences_per_second"], 1e-9)
    return {"plan": asdict(plan), **found, "ratio": round(ratio, 2), "tables": [_table(found, ratio, plan)]}


def summarise(tally: Tally, seconds: float) -> dict[str, Any]:
    """Return the results of a server; memory is given as means of the first and last third of the time, and maximum."""
    latencies = sorted(tally.latencies)
    third = max(1, len(tally.memory) // 3)
    memory = tally.memory or [0.0]
    return {
        "answers": len(latencies),
        "errors": len(tally.errors),
        "first_errors": tally.errors[:3],
        "sentences_per_second": round(len(latencies) / seconds, 1),
        "p50_ms": round(1000 * quantile(latencies, 0.5)),
        "p95_ms": round(1000 * quantile(latencies, 0.95)),
        "memory_mb": {
            "first_third": round(statistics.mean(memory[:third]), 1),
            "last_third": round(statistics.mean(memory[-third:]), 1),
            "most": round(max(memory), 1),
        },
    }


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile of sorted values at this share; 0 without values."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


async def ask(
    plan: Plan,
    server: ServerProcess,
    sentences: Sequence[str],
    languages: tuple[str, str],
    others: Sequence[Coroutine[Any, Any, None]] = (),
) -> Tally:
    """Run all clients for the plan's time, and `others` beside them; return the results of the clients.

    Each client begins with another sentence.
    """
    tally = Tally()
    bodies = [json.dumps({"q": one, "source": languages[0], "target": languages[1]}).encode() for one in sentences]
    begin = time.perf_counter() + plan.warmup
    end = begin + plan.seconds
    clients = [
        asyncio.create_task(keep_asking(server.url, bodies, number * len(bodies) // plan.clients, begin, end, tally))
        for number in range(plan.clients)
    ]
    clients += [asyncio.create_task(other) for other in others]
    while time.perf_counter() < end:
        await asyncio.sleep(min(1.0, max(0.0, end - time.perf_counter())))
        if time.perf_counter() >= begin:
            tally.memory.append(resident_megabytes(server.process.pid))
    for client in clients:  # a client that still waits does not count as an error
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    return tally


async def keep_asking(url: str, bodies: Sequence[bytes], first: int, begin: float, end: float, tally: Tally) -> None:
    """Send the bodies in turn, beginning with number `first`, each after the answer to the previous one.

    The tally gets the latencies of answers between `begin` and `end`, and all errors.
    """
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        for body in itertools.islice(itertools.cycle(bodies), first, None):
            start = time.perf_counter()
            head = f"POST /translate HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
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


def resident_megabytes(pid: int) -> float:
    """Return the resident memory of a process (megabytes).

    Raises:
        UserError: this is not Linux.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError("memory is read from /proc, which only Linux has: run this benchmark there") from error
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmRSS"))


def _table(found: dict[str, Any], ratio: float, plan: Plan) -> dict[str, Any]:
    rows = [
        [
            name,
            f"{one['sentences_per_second']:,.1f}",
            f"{one['p50_ms']:,}",
            f"{one['p95_ms']:,}",
            str(one["errors"]),
            f"{one['memory_mb']['first_third']:,.0f} → {one['memory_mb']['last_third']:,.0f}",
        ]
        for name, one in found.items()
    ]
    title = f"{plan.clients} clients for {plan.seconds:g} s; batches give {ratio:.2f} × the sentences"
    header = ["serving", "sentences/s", "p50 (ms)", "p95 (ms)", "errors", "memory, first → last third (MB)"]
    return asdict(Table(title, header, rows))
