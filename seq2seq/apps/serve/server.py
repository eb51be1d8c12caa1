"""Run the application on a socket until a signal ends it, without knowledge of routes or models."""

import asyncio
import logging
import math
import resource
import socket
import time
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from seq2seq.apps.serve.service import Service
from seq2seq.errors import UserError, shorten

_SILENCE_TIMEOUT = 30  # seconds that a connection may be idle between requests, or take to send a request's headers
_READING_TIMEOUT = 10  # seconds in which a client must receive a chunk of its answer
_CLOSING_TIMEOUT = 5  # seconds for connections to close after the last answer
_SPARE_CONNECTIONS = 64  # besides `Limits.connections`, so that /health is answered when all of these are at work
_ACCEPTED_AT_ONCE = 8  # connections accepted before the event loop serves others and closes silent ones
_KERNEL_QUEUE = 4096  # connections that wait in the kernel to be accepted: beyond them, clients wait for seconds
_LOG_RECORDS, _LOG_SECONDS = 3, 60  # most records of a kind in this many seconds
_QUOTING = ("seq2seq.apps.documents", "seq2seq.translate.segmenter")  # loggers whose warnings quote a text


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to a port but does not accept connections yet; port 0: any free port."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except BaseException:
            listener.close()
            raise
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot listen on {host} port {port} ({reason}): give another --host or --port") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of the server for a browser on this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(str(host), str(host))
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Connection(H11Protocol):
    """A connection that closes if a request's headers do not arrive in time, or if the client does not read its answer.

    uvicorn has no such timeouts: it waits forever for the headers of a connection's first request, for the rest of any
    headers, and for a client that does not read. A few hundred such connections would lock out all other clients. h11
    bounds the size of the headers; httptools does not. A connection above `limit_concurrency` closes the one that has
    been silent longest; uvicorn would answer every request with 503 instead, whatever its path.

    Attributes:
        write_timeout: seconds in which a client must receive what was written; the server writes in small chunks.
    """

    write_timeout: float = _READING_TIMEOUT
    _reading_timer: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of the first request's headers."""
        limit, self.limit_concurrency = self.limit_concurrency, None  # uvicorn's own rule
        super().connection_made(transport)
        # Timers of this server's silent connections. All timers are equally long, so the first one ends first.
        self._silent: dict[Connection, asyncio.TimerHandle] = vars(self.server_state).setdefault("silent", {})
        transport.set_write_buffer_limits(high=0)  # so that every waiting byte calls `pause_writing`
        if limit is not None and len(self.connections) > limit:
            self._make_room(limit + _SPARE_CONNECTIONS)
        self._update_silence_timer()

    def _make_room(self, limit: int) -> None:
        """Drop the connection that has been silent longest; if all are at work, drop this one if it exceeds `limit`."""
        oldest = next(iter(self._silent), None)
        if oldest is not None:
            oldest._stop_silence_timer()  # so that the next connection drops another one
            oldest.transport.abort()
        elif len(self.connections) > limit:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Start the timer when a request's headers begin to arrive; stop it when they are complete."""
        super().data_received(data)
        self._update_silence_timer()

    def on_response_complete(self) -> None:
        """Start the timer of the next request's headers."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._update_silence_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer of silence; that of reading may end, since it finds the connection closed."""
        super().connection_lost(exc)
        self._stop_silence_timer()

    def pause_writing(self) -> None:
        """Start the timer of the client's reading; when the time is over, the timer drops the connection."""
        super().pause_writing()
        self._reading_timer = self.loop.call_later(self.write_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the timer of the client's reading: the client has received everything."""
        super().resume_writing()
        self._reading_timer.cancel()

    def _update_silence_timer(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_silence_timer()
        elif self not in self._silent:
            self._silent[self] = self.loop.call_later(self.timeout_keep_alive, self.transport.close)

    def _stop_silence_timer(self) -> None:
        if timer := self._silent.pop(self, None):
            timer.cancel()


class Server(uvicorn.Server):
    """A server that ends with exit status 0 at SIGTERM or Ctrl-C: after its open requests, at a second signal at once.

    uvicorn would end the process by the signal itself, and take a second SIGTERM for the first one.
    """

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], object]) -> None:
        super().__init__(config)
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, and call `on_start`."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_KERNEL_QUEUE)  # asyncio also takes the queue's length for the number to accept at once
        self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Accept no connections after the first signal; end at the second."""
        self.force_exit, self.should_exit = self.should_exit, True


def run(app: FastAPI, listener: socket.socket, on_start: Callable[[], object]) -> None:
    """Serve on the socket of `listen` until a signal; then finish the open requests within the limit of time.

    on_start is called when the server accepts connections.
    """
    service: Service = app.state.service
    config = uvicorn.Config(
        app,
        http=Connection,
        access_log=False,
        log_config=None,
        log_level="warning",
        lifespan="on",
        ws="none",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_most_connections(service.limits.connections),
        backlog=_ACCEPTED_AT_ONCE,
        timeout_keep_alive=_SILENCE_TIMEOUT,
        timeout_graceful_shutdown=math.ceil(service.limits.timeout) + _CLOSING_TIMEOUT,
    )
    bound = LogBound()
    logging.captureWarnings(True)
    for handler in logging.getLogger().handlers:
        handler.addFilter(bound)
    with listener:
        Server(config, on_start).run(sockets=[listener])


def _most_connections(limit: int) -> int:
    """Return how many connections may be open: at most half of the files that this process may have open."""
    files, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < 2 * limit:
        files = 2 * limit if hard == resource.RLIM_INFINITY else min(2 * limit, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(1, min(limit, files // 2))


class LogBound(logging.Filter):
    """Passes a few records of each kind a minute, in one line each: clients can cause thousands of them.

    A kind is the line of code that logs, whichever library has it: its messages may quote what clients send. No warning
    that quotes a text passes: users' texts belong in no log.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[tuple[str, int], tuple[float, int]] = {}  # start of a kind's minute, and its records since

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record; the first record of a minute tells how many were left out before."""
        if record.levelno < logging.ERROR and record.name.startswith(_QUOTING):
            return False
        kind, now = (record.pathname, record.lineno), time.monotonic()
        start, count = self._kinds.get(kind, (now, 0))
        message = shorten(record.getMessage())
        if now - start >= _LOG_SECONDS:
            left_out = max(0, count - _LOG_RECORDS)
            message += f" ({left_out:,} more were left out)" if left_out else ""
            start, count = now, 0
        self._kinds[kind] = start, count + 1
        record.msg, record.args = message, None
        return count < _LOG_RECORDS
