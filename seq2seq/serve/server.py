"""Runs the application on a socket until a signal ends it; knows no routes and no model."""

import asyncio
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from seq2seq.errors import UserError
from seq2seq.serve.service import Service

_SILENCE = 30  # seconds that a connection may be silent between requests, or take to send a request's head
_UNREAD = 10  # seconds in which a client must take a piece of its answer
_CLOSING = 5  # seconds in which connections close after the last answer


def listen(host: str, port: int) -> socket.socket:
    """Bind a socket to a port, without accepting connections yet. Port 0 takes a free port.

    Raises:
        UserError: host is no address of this machine, or the port is taken or not allowed.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        taken = socket.socket(family, kind, protocol)
        try:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(address)
        except BaseException:
            taken.close()
            raise
    except (OSError, OverflowError) as error:
        told = getattr(error, "strerror", None) or error
        raise UserError(f"cannot listen on {host} port {port} ({told}): give another --host or --port") from error
    return taken


def url_of(taken: socket.socket) -> str:
    """Return the URL by which a browser on this machine reaches the server."""
    host, port = taken.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(str(host), str(host))
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Connection(H11Protocol):
    """Closes when a request's head does not arrive in time, or when the client does not take its answer.

    uvicorn waits forever for a connection's first head, for the rest of any head, and for a client that does not read,
    so that a few hundred such connections would lock out all others. h11 bounds the size of a head; httptools does not.

    Attributes:
        write_timeout: seconds in which a client must take what was written; the server writes in small pieces.
    """

    write_timeout: float = _UNREAD
    _silence: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of the first head."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # so that `pause_writing` tells of every byte that waits
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Let the timer run from the first byte of a head to the last."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop both timers."""
        super().connection_lost(exc)
        self._stop()
        self._stop_writing_timer()

    def pause_writing(self) -> None:
        """Start the timer for the client to take what was written; in the end it drops the connection."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.write_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop that timer: the client has taken all that was written."""
        super().resume_writing()
        self._stop_writing_timer()

    def _stop_writing_timer(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._silence is None:
            self._silence = self.loop.call_later(self.timeout_keep_alive, self._give_up)

    def _stop(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def _give_up(self) -> None:
        self._silence = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class Server(uvicorn.Server):
    """Ends at SIGTERM or Ctrl-C after the present requests, and refuses new ones; ends at once at a second signal."""

    def __init__(self, config: uvicorn.Config, service: Service, on_start: Callable[[], object]) -> None:
        super().__init__(config)
        self._service, self._on_start = service, on_start
        self._closed_at: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, and call `on_start`."""
        await super().startup(sockets)
        self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Refuse new requests at the first signal, end at the second."""
        if self._closed_at is None:
            self._service.is_closing, self._closed_at = True, time.monotonic()
        else:
            self.should_exit = self.force_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Check, ten times a second, whether to end."""
        if self._closed_at is not None:
            is_over = time.monotonic() - self._closed_at > self._service.limits.timeout
            self.should_exit = self.should_exit or is_over or not self._service.inside
        return await super().on_tick(counter)


def run(app: FastAPI, taken: socket.socket, on_start: Callable[[], object]) -> None:
    """Serve on the socket of `listen` until a signal; then finish the present requests within the limit of time.

    on_start is called when connections are accepted.
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
        limit_concurrency=service.limits.connections,
        timeout_keep_alive=_SILENCE,
        timeout_graceful_shutdown=_CLOSING,
    )
    previous = signal.getsignal(signal.SIGTERM)
    try:
        Server(config, service, on_start).run(sockets=[taken])
    finally:
        signal.signal(signal.SIGTERM, previous)
        taken.close()
