"""What every request meets first: counting, security headers, no pages of strangers, and a closed door at the end."""

import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seq2seq.serve.callers import Callers, StrangerError
from seq2seq.serve.metrics import Metrics

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
CLIENT_GONE = 499  # nginx's number
_CHUNK = 65_536  # bytes of an answer that wait for its client, at most
_ALWAYS_OPEN = ("/health", "/ready", "/metrics")


class Gate:
    """Who is inside, and whether anybody else is let in."""

    def __init__(self) -> None:
        self.is_closed = False
        self.inside = 0  # requests at work


class Front:
    """Middleware around the whole application."""

    def __init__(self, app: ASGIApp, gate: Gate, metrics: Metrics, callers: Callers) -> None:
        self.app, self.gate, self.metrics, self.callers = app, gate, metrics, callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; count it and complete its answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def complete(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                await send(message)
            else:
                await _send_in_chunks({**message, "body": b""} if method == "HEAD" else message, send)

        method = scope["method"]
        if method == "HEAD":  # a GET without the body; FastAPI's routes do not know it
            scope = {**scope, "method": "GET"}
        is_open = scope["path"] in _ALWAYS_OPEN
        if self.gate.is_closed and not is_open:
            self.metrics.rejected.labels("stopping").inc()
            headers = {"Retry-After": "5", "Connection": "close"}
            await JSONResponse({"error": "the server is being stopped"}, 503, headers)(scope, receive, complete)
            return
        try:
            self.callers.check(scope["method"], Headers(scope=scope))
        except StrangerError as error:
            self.metrics.rejected.labels(error.reason).inc()
            await JSONResponse({"error": str(error)}, 403)(scope, receive, complete)
            return
        self.gate.inside += not is_open
        try:
            await self.app(scope, receive, complete)
        except Exception:
            if not status:
                answer = {"error": "something went wrong on the server: its log says what"}
                await JSONResponse(answer, 500)(scope, receive, complete)
            raise
        finally:
            self.gate.inside -= not is_open
            path = getattr(scope.get("route"), "path", "other")
            method = method if method in ("GET", "HEAD", "POST") else "other"
            self.metrics.requests.labels(method, path, str(status or CLIENT_GONE)).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - start)


async def _send_in_chunks(message: Message, send: Send) -> None:
    """Send a body piece by piece: `send` waits until the client has taken the piece before."""
    body, more_body = message.get("body", b""), message.get("more_body", False)
    for start in range(0, max(len(body), 1), _CHUNK):
        end = start + _CHUNK
        await send({**message, "body": body[start:end], "more_body": more_body or end < len(body)})
