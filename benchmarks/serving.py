"""Speed and memory of a server with many clients: with batches, without, beside documents and hostile clients."""

import asyncio
import itertools
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch

from benchmarks.attacks import CHARACTERS, KEY, post, read_answer
from benchmarks.command import Options, Results, Table
from benchmarks.data import read_test
from benchmarks.processes import REPOSITORY, memory_of
from benchmarks.server_process import ServerProcess
from seq2seq.errors import UserError
from seq2seq.settings.bundle import read_config

WARM_UP = 3.0  # seconds before the measurement
HEALTH_INTERVAL = 0.1  # seconds between two requests for /health
OPTIONS = {"batches": (), "one at a time": ("--max-batch", "1", "--timeout", "600")}  # of the server; long queues
TEXTS = 50  # most texts of a document that is a list of texts
DOCUMENT_CLIENTS = (0, 1, 4)  # clients with documents beside the ordinary clients
ATTACKS = ("white space", "codecs", "idle connections", "subwords", "bad requests", "documents")


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `serving`."""

    data: Path | None = None  # folder with test.tsv, whose sentences the clients send; by default the bundled text
    model: Path  # bundle that the server loads
    clients: int = 32  # ordinary clients; each sends its next sentence after the answer to the previous one
    seconds: float = 60.0  # seconds of measurement in each case


@dataclass
class Tally:
    """The results of ordinary clients, and what was seen of the server meanwhile."""

    latencies: list[float] = field(default_factory=list)  # seconds of each answer within the measurement
    errors: list[str] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)  # of the server (MB), every second
    health: list[float] = field(default_factory=list)  # seconds of each answer of /health


def run(plan: Plan, device: torch.device) -> Results:
    """Measure a new server process in each case; beside an attack, measure the same server without it first."""
    sentences = [source for source, _ in read_test(plan.data)]
    _, config = read_config(plan.model / "config.json")
    languages = {"source": config.src_lang, "target": config.tgt_lang}
    bodies = [json.dumps({"q": sentence, **languages}).encode() for sentence in sentences]
    common = ("--device", str(device), "--threads", str(torch.get_num_threads()))
    documents = [json.dumps({**values, **languages}).encode() for values in document_values(sentences)]
    values: dict[str, Any] = {"beside documents": measure_documents(plan, common, bodies, documents)}
    for name, options in OPTIONS.items():
        with ServerProcess(plan.model, *common, *options, SEQ2SEQ_API_KEY=KEY) as server:
            values[name] = summarise(asyncio.run(ask(plan, server, bodies)), plan.seconds)
            values[name] |= {"log_bytes": server.log_bytes, "exit_status": server.stop()}
    for name in ATTACKS:
        with ServerProcess(plan.model, *common, SEQ2SEQ_API_KEY=KEY) as server:
            before = summarise(asyncio.run(ask(plan, server, bodies)), plan.seconds)
            attack = start_attack(name, server.url, languages, WARM_UP + plan.seconds)
            values[name] = summarise(asyncio.run(ask(plan, server, bodies)), plan.seconds)
            values[name] |= {"before": before, "attack": end_attack(attack)}
            values[name] |= {"log_bytes": server.log_bytes, "exit_status": server.stop()}
    return values, [
        speed_table(values, plan),
        document_table(values["beside documents"], plan),
        attack_table(values, plan),
    ]


def document_values(sentences: Sequence[str]) -> list[dict[str, Any]]:
    """Return requests with as much as a request may have: a text, a page of HTML, and a list of texts."""
    several = list(itertools.islice(itertools.cycle(sentences), CHARACTERS))
    page = "".join(f"<p>{sentence}</p>" for sentence in several)[:CHARACTERS]
    lengths = itertools.accumulate(len(sentence) for sentence in several)
    texts = [sentence for sentence, length in zip(several, lengths, strict=True) if length <= CHARACTERS][:TEXTS]
    return [{"q": " ".join(several)[:CHARACTERS]}, {"q": page, "format": "html"}, {"q": texts}]


def measure_documents(
    plan: Plan, options: Sequence[str], bodies: Sequence[bytes], documents: Sequence[bytes]
) -> dict[str, Any]:
    """Measure the ordinary clients beside each number of clients with documents, all on one server."""
    values: dict[str, Any] = {}
    with ServerProcess(plan.model, *options, SEQ2SEQ_API_KEY=KEY) as server:
        for count in DOCUMENT_CLIENTS:
            ordinary, slow = asyncio.run(ask_beside(plan, server, bodies, documents, count))
            values[f"{count}"] = {**summarise(ordinary, plan.seconds), "documents": summarise(slow, plan.seconds)}
    return values


def start_attack(name: str, url: str, languages: dict[str, str], seconds: float) -> "subprocess.Popen[str]":
    """Start the program with the hostile clients."""
    command = [sys.executable, "-m", "benchmarks.attacks", name, url, json.dumps(languages), str(seconds)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end_attack(attack: "subprocess.Popen[str]") -> dict[str, int]:
    """Wait for the end of the hostile clients, and return what they counted."""
    output, errors = attack.communicate(timeout=120)
    if attack.returncode:
        raise UserError((errors.strip().splitlines() or ["the hostile clients failed"])[-1].removeprefix("error: "))
    return json.loads(output)


def summarise(tally: Tally, seconds: float) -> dict[str, Any]:
    """Return the results of a case; memory is given at the start, in the middle and at the end."""
    median, slow = np.quantile(tally.latencies or [0.0], (0.5, 0.95)).tolist()
    memory = tally.memory or [0.0]
    return {
        "answers": len(tally.latencies),
        "errors": len(tally.errors),
        "first_errors": tally.errors[:3],
        "sentences_per_second": round(len(tally.latencies) / seconds, 1),
        "p50_ms": round(1000 * median),
        "p95_ms": round(1000 * slow),
        "slowest_health_ms": round(1000 * max(tally.health, default=0.0)),
        "memory_mb": [round(memory[index], 1) for index in (0, len(memory) // 2, -1)],
    }


async def ask(plan: Plan, server: ServerProcess, bodies: Sequence[bytes]) -> Tally:
    """Run the ordinary clients for the plan's time, each beginning with another body; return their results."""
    tally = Tally()
    begin = time.perf_counter() + WARM_UP
    end = begin + plan.seconds
    tasks = [
        asyncio.create_task(keep_asking(server.url, bodies, number * len(bodies) // plan.clients, begin, end, tally))
        for number in range(plan.clients)
    ]
    prober = threading.Thread(target=probe_health, args=(server.url, begin, end, tally))
    prober.start()
    while time.perf_counter() < end:
        await asyncio.sleep(min(1.0, max(0.0, end - time.perf_counter())))
        if time.perf_counter() >= begin:
            tally.memory.append(memory_of(server.process.pid))
    for task in tasks:  # a client that still waits does not count as an error
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.to_thread(prober.join)
    return tally


async def ask_beside(
    plan: Plan, server: ServerProcess, bodies: Sequence[bytes], documents: Sequence[bytes], count: int
) -> tuple[Tally, Tally]:
    """Run the ordinary clients and `count` clients with documents; return the results of both."""
    slow, begin = Tally(), time.perf_counter() + WARM_UP
    tasks = [
        asyncio.create_task(keep_asking(server.url, documents, number, begin, begin + plan.seconds, slow))
        for number in range(count)
    ]
    ordinary = await ask(plan, server, bodies)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return ordinary, slow


def probe_health(url: str, begin: float, end: float, tally: Tally) -> None:
    """Ask for /health again and again, each time on a new connection, between the times `begin` and `end`."""
    time.sleep(max(0.0, begin - time.perf_counter()))
    while (start := time.perf_counter()) < end:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=30) as answer:
                answer.read()
        except OSError as error:
            tally.errors.append(f"/health: {error!r}")
        tally.health.append(time.perf_counter() - start)
        time.sleep(HEALTH_INTERVAL)


async def keep_asking(url: str, bodies: Sequence[bytes], first: int, begin: float, end: float, tally: Tally) -> None:
    """Send the bodies in turn, beginning with number `first`, each after the answer to the previous one.

    The tally gets the latencies of answers between `begin` and `end`, and all errors.
    """
    reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
    try:
        for body in itertools.islice(itertools.cycle(bodies), first, None):
            start = time.perf_counter()
            writer.write(post(url, "/translate", body))
            status, content = await read_answer(reader)
            now = time.perf_counter()
            answer = json.loads(content)
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


def speed_table(values: dict[str, Any], plan: Plan) -> Table:
    """Return a table with a row for each case without an attack."""
    rows = [
        [
            name,
            f"{values[name]['sentences_per_second']:,.1f}",
            f"{values[name]['p50_ms']:,}",
            f"{values[name]['p95_ms']:,}",
            str(values[name]["errors"]),
            " → ".join(f"{memory:,.0f}" for memory in values[name]["memory_mb"]),
        ]
        for name in OPTIONS
    ]
    header = ["serving", "sentences/s", "p50 (ms)", "p95 (ms)", "errors", "memory: start → middle → end (MB)"]
    return Table(f"{plan.clients} clients for {plan.seconds:g} s", header, rows)


def document_table(values: dict[str, Any], plan: Plan) -> Table:
    """Return a table with a row for each number of clients with documents."""
    alone = values[f"{DOCUMENT_CLIENTS[0]}"]["p50_ms"]
    rows = [
        [
            count,
            f"{case['p50_ms']:,}",
            f"{case['p95_ms']:,}",
            f"{case['p50_ms'] / max(alone, 1):.2f}",
            f"{case['sentences_per_second']:,.1f}",
            f"{60 * case['documents']['sentences_per_second']:,.1f}",
            f"{case['documents']['p50_ms']:,}",
            f"{case['errors']} / {case['documents']['errors']}",
        ]
        for count, case in values.items()
    ]
    header = ["clients with documents", "p50 (ms)", "p95 (ms)", "p50 ratio", "sentences/s", "documents/min"]
    header += ["document p50 (ms)", "errors: sentences / documents"]
    return Table(f"{plan.clients} clients with a sentence, beside clients with documents", header, rows)


def attack_table(values: dict[str, Any], plan: Plan) -> Table:
    """Return a table with a row for each attack: the ordinary clients' times before it → beside it."""
    rows = []
    for name in ATTACKS:
        before, beside = values[name]["before"], values[name]
        rows.append(
            [
                name,
                f"{before['p50_ms']:,} → {beside['p50_ms']:,}",
                f"{before['p95_ms']:,} → {beside['p95_ms']:,}",
                f"{beside['p95_ms'] / max(before['p95_ms'], 1):.2f}",
                str(beside["errors"]),
                f"{before['slowest_health_ms']:,} → {beside['slowest_health_ms']:,}",
                f"{before['memory_mb'][0]:,.0f} → {beside['memory_mb'][-1]:,.0f}",
                f"{beside['log_bytes']:,}",
            ]
        )
    header = ["attack", "p50 (ms)", "p95 (ms)", "p95 ratio", "errors", "slowest /health (ms)", "memory (MB)"]
    header += ["log (bytes)"]
    title = f"{plan.clients} ordinary clients: {plan.seconds:g} s without → {plan.seconds:g} s with the attack"
    return Table(title, header, rows)
