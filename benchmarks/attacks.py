"""Hostile clients of a server, as a program of their own: `python -m benchmarks.attacks NAME URL LANGUAGES SECONDS`.

A program of their own does not slow down the ordinary clients that the benchmark measures. The program prints how many
answers the clients got by status, and how often the server disconnected them, as JSON.
"""

import asyncio
import itertools
import json
import resource
import select
import socket
import sys
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

KEY = "benchmark"  # the server's API key
CHARACTERS, TAGS, BODY = 5_000, 200, 89_000  # most of a request, of a sentence, and bytes of a body that are accepted
IDLE, UNREAD = 1_100, 40  # clients that stay connected without work, and clients that never read
SENDERS = 8  # clients that send requests one after the other, in each of the other attacks
FILES = IDLE + 64  # open files that the program needs
PAUSE = 0.5  # seconds until a client that sends or reads nothing connects again, and between checks of its connection
JSON = "application/json"

Client = Coroutine[Any, Any, None]


def post(url: str, path: str, body: bytes, media_type: str = JSON, key: str | None = KEY) -> bytes:
    """Return an HTTP request that posts a body."""
    head = f"POST {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nContent-Type: {media_type}\r\n"
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    return f"{head}{authorization}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the status and the body of an answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    return int(head.split(" ", 2)[1]), await reader.readexactly(length)


def white_space_documents() -> list[str]:
    """Return HTML with long runs of white space where a slow search for the encoding would go back and forth."""
    return [start + " " * (CHARACTERS - len(start)) for start in ("<meta charset=", '<p>a <meta charset="', "<meta ")]


def codec_requests(url: str) -> list[bytes]:
    """Return forms without a key, in encodings whose decoding in Python takes a time that grows with the square."""
    part = b'--b\r\nContent-Disposition: form-data; name="q"\r\n\r\n'
    body = part + b"-" * (BODY // 2) + b"a" * (BODY // 2 - 200) + b"\r\n--b--\r\n"
    kinds = [f"multipart/form-data; boundary=b; charset={codec}" for codec in ("punycode", "idna", "utf-7")]
    return [post(url, "/translate", body, kind, key=None) for kind in kinds]


def subword_texts() -> list[str]:
    """Return sentences of few characters and many subwords."""
    return ["😀" * 200, "ﷺ" * 190]


def costly_documents() -> list[str]:
    """Return the costliest HTML: a refused sentence with 1,250 tags, and sentences with the most tags allowed."""
    sentence = "".join(f"<b>W{number}</b> " for number in range(TAGS // 2)) + "end. "
    return ["<b>w" * (CHARACTERS // 4), ("<p>" + sentence * (CHARACTERS // len(sentence) + 1))[:CHARACTERS]]


def attackers(name: str, url: str, languages: dict[str, str], counts: Counter[str]) -> Sequence[Client]:
    """Return the clients of an attack; `counts` gets the statuses of their answers, and their disconnections."""

    def translate(texts: Sequence[str], **options: str) -> list[bytes]:
        bodies = [json.dumps({"q": text, **languages, **options}).encode() for text in texts]
        return [post(url, "/translate", body) for body in bodies]

    if name == "idle connections":
        request = f"GET /health HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode()
        return [stay_idle(url, request if number % 2 else b"", counts) for number in range(IDLE)]
    senders = {
        "white space": lambda: translate(white_space_documents(), format="html"),
        "codecs": lambda: codec_requests(url),
        "subwords": lambda: translate(subword_texts()),
        "bad requests": lambda: [post(url, "/translate", body) for body in (b"{}", b"[", b'{"q": 1}')],
        "documents": lambda: translate(costly_documents(), format="html"),
    }
    requests = senders[name]()
    if name == "documents":
        return [keep_sending(url, requests, 0, counts), *(never_read(url, counts) for _ in range(UNREAD))]
    return [keep_sending(url, requests, number, counts) for number in range(SENDERS)]


async def keep_sending(url: str, requests: Sequence[bytes], first: int, counts: Counter[str]) -> None:
    """Send requests in turn, beginning with number `first`; reconnect when the server disconnects."""
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
            try:
                for request in itertools.islice(itertools.cycle(requests), first, None):
                    writer.write(request)
                    status, _ = await read_answer(reader)
                    counts[str(status)] += 1
                    first += 1
            finally:
                writer.transport.abort()
        counts["disconnected"] += 1
        await asyncio.sleep(0)


async def stay_idle(url: str, request: bytes, counts: Counter[str]) -> None:
    """Connect, send a request or nothing, and stay connected; reconnect when the server disconnects."""
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
            try:
                writer.write(request)
                await reader.read()
            finally:
                writer.transport.abort()
        counts["disconnected"] += 1
        await asyncio.sleep(PAUSE)


async def never_read(url: str, counts: Counter[str]) -> None:
    """Ask for an explanation and do not read it; reconnect when the server disconnects."""
    body = json.dumps({"source": "The big dog sees a small cat. " * 3}).encode()
    loop = asyncio.get_running_loop()
    while True:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            try:
                await loop.sock_connect(client, (urlsplit(url).hostname, urlsplit(url).port))
                await loop.sock_sendall(client, post(url, "/explain", body))
                poll = select.poll()
                poll.register(client, select.POLLRDHUP)  # the other end has closed, even if data is unread
                while not poll.poll(0):
                    await asyncio.sleep(PAUSE)
            except OSError:
                await asyncio.sleep(PAUSE)
            counts["disconnected"] += 1


def raise_file_limit() -> None:
    """Let this process open as many files as the attack of idle connections needs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        sys.exit(f"error: {IDLE} idle connections need {FILES} open files, {hard} are allowed: raise `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))


async def attack(name: str, url: str, languages: dict[str, str], seconds: float) -> Counter[str]:
    """Run an attack for this many seconds; return the counts of its clients."""
    counts: Counter[str] = Counter()
    tasks = [asyncio.create_task(client) for client in attackers(name, url, languages, counts)]
    done, _ = await asyncio.wait(tasks, timeout=seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:  # a client that has ended has failed
        task.result()
    return counts


if __name__ == "__main__":
    attack_name, server_url, codes, duration = sys.argv[1:]
    raise_file_limit()
    print(json.dumps(asyncio.run(attack(attack_name, server_url, json.loads(codes), float(duration)))))
