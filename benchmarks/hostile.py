"""Measure a server's ordinary clients, alone and beside clients that send costly documents or never read answers."""

import asyncio
import json
import select
import socket
from collections.abc import Coroutine, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks import serving
from benchmarks.server_process import ServerProcess
from benchmarks.tables import Table
from seq2seq.errors import UserError
from seq2seq.settings.bundle import read_config

_CHARACTERS = 5_000  # most characters of a request
_TAGS = 200  # most tags of a sentence
_PAUSE = 0.5  # seconds between checks whether the server has disconnected a client that never reads


@dataclass(frozen=True, kw_only=True)
class Plan(serving.Plan):
    """The size of the load."""

    unread: int = 40  # number of clients that ask for an explanation and never read it


@dataclass
class Hostility:
    """The results of the hostile clients."""

    documents: serving.Tally = field(default_factory=serving.Tally)  # refused documents count as errors
    disconnected: int = 0  # number of times that a client that never reads was disconnected


def run(plan: Plan, model: Path, sentences: Sequence[str], device: str, threads: int) -> dict[str, Any]:
    """Measure a new server process without hostile clients, then another one with them, both with default limits.

    Raises:
        UserError: there are no sentences, model is not a bundle, or this is not Linux.
    """
    if not sentences:
        raise UserError("there is no sentence to translate: give --data with a test.tsv that has some")
    _, config = read_config(model / "config.json")
    languages = config.src_lang, config.tgt_lang
    found: dict[str, Any] = {}
    for name in ("without", "with"):
        with ServerProcess(model, "--device", device, "--threads", str(threads)) as server:
            hostility = Hostility()
            others = _hostile_clients(plan, server.url, languages, hostility) if name == "with" else []
            tally = asyncio.run(serving.ask(plan, server, sentences, languages, others))
            found[name] = {**serving.summarise(tally, plan.seconds), "memory_mb": memory_over_time(tally.memory)}
            if name == "with":
                found[name]["hostile"] = {
                    "documents_translated": len(hostility.documents.latencies),
                    "documents_refused": len(hostility.documents.errors),
                    "first_refusals": hostility.documents.errors[:3],
                    "disconnected": hostility.disconnected,
                }
            found[name]["exit_status"] = server.stop()
    return {"plan": asdict(plan), **found, "tables": [_table(found, plan)]}


def hostile_documents() -> list[str]:
    """Return the costliest HTML: a refused sentence with 1,250 tags, and sentences with the most tags allowed."""
    sentence = "".join(f"<b>W{number}</b> " for number in range(_TAGS // 2)) + "end. "
    return ["<b>w" * (_CHARACTERS // 4), ("<p>" + sentence * (_CHARACTERS // len(sentence) + 1))[:_CHARACTERS]]


def memory_over_time(memory: Sequence[float]) -> dict[str, float]:
    """Return memory (megabytes) at the start, in the middle and at the end; 0: not measured."""
    seen = list(memory) or [0.0]
    return {"start": round(seen[0], 1), "middle": round(seen[len(seen) // 2], 1), "end": round(seen[-1], 1)}


def _hostile_clients(
    plan: Plan, url: str, languages: tuple[str, str], hostility: Hostility
) -> list[Coroutine[Any, Any, None]]:
    asked = [
        {"q": one, "format": "html", "source": languages[0], "target": languages[1]} for one in hostile_documents()
    ]
    bodies = [json.dumps(one).encode() for one in asked]
    never = [never_read(url, hostility) for _ in range(plan.unread)]
    return [serving.keep_asking(url, bodies, 0, 0.0, float("inf"), hostility.documents), *never]


async def never_read(url: str, hostility: Hostility) -> None:
    """Ask for an explanation and do not read it; reconnect when the server disconnects."""
    place = urlsplit(url)
    body = json.dumps({"source": "The big dog sees a small cat. " * 3}).encode()
    head = f"POST /explain HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    while True:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(client, (place.hostname, place.port))
                await asyncio.get_running_loop().sock_sendall(client, request)
                while not is_disconnected(client):
                    await asyncio.sleep(_PAUSE)
            except OSError:
                await asyncio.sleep(_PAUSE)
            hostility.disconnected += 1


def is_disconnected(client: socket.socket) -> bool:
    """Return whether the other end has closed a connection, even if data is unread; Linux only."""
    poll = select.poll()
    poll.register(client, select.POLLRDHUP)
    return bool(poll.poll(0))


def _table(found: dict[str, Any], plan: Plan) -> dict[str, Any]:
    rows = [
        [
            name,
            f"{one['sentences_per_second']:,.1f}",
            f"{one['p50_ms']:,}",
            f"{one['p95_ms']:,}",
            str(one["errors"]),
            " → ".join(f"{one['memory_mb'][when]:,.0f}" for when in ("start", "middle", "end")),
        ]
        for name, one in found.items()
    ]
    title = f"{plan.clients} ordinary clients for {plan.seconds:g} s, without and with hostile ones: one that sends"
    title += f" costly documents, {plan.unread} that never read"
    header = ["hostile", "sentences/s", "p50 (ms)", "p95 (ms)", "errors", "memory: start → middle → end (MB)"]
    return asdict(Table(title, header, rows))
