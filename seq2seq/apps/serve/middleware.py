"""The outermost middleware: it counts requests, refuses requests from other origins, and sets security headers."""

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seq2seq.apps.serve.service import Service

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
_PAGES = ("/page/", "/viewer/")  # files that a browser may keep, if it asks before each use whether they have changed
CLEANUP = "seq2seq.cleanup"  # key of a request's scope: the ExitStack that is closed when the answer has been sent
CLIENT_GONE = 499  # nginx's status for a client that disconnects
_CHUNK = 65_536  # most bytes of an answer that wait for the client
_ALWAYS_OPEN = ("/health", "/ready", "/metrics")
_ANY = "*"
_QUOTED_CHARS = 100  # most characters of a header that an error message repeats


class Front:
    """Middleware around the whole application."""

    def __init__(
        self, app: ASGIApp, service: Service, allowed_hosts: Sequence[str], allow_origins: Sequence[str]
    ) -> None:
        """Store the host names that clients may use, and the origins whose pages may send requests; '*': any."""
        self._app, self._service, self._metrics = app, service, service.metrics
        self._hosts = {_name_of(host) for host in allowed_hosts}
        self._origins = set(allow_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application, count the request, and add the security headers to the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, method = time.perf_counter(), 0, scope["method"]

        async def complete(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-cache" if scope["path"].startswith(_PAGES) else "no-store")
                await send(message)
            else:
                await _send_in_chunks(message, send)

        answered_method = "GET" if method == "HEAD" else method  # FastAPI's routes do not; uvicorn sends no body then
        path = scope["path"].rstrip("/") or "/"  # a client that posts does not follow a redirection to /translate
        scope = {**scope, "method": answered_method, "path": path, CLEANUP: ExitStack()}
        is_open = scope["path"] in _ALWAYS_OPEN
        refusal = self._refusal(scope, is_open)
        is_inside = refusal is None and not is_open
        self._service.inside += is_inside
        try:
            with scope[CLEANUP]:
                await (refusal or self._app)(scope, receive, complete)
        except Exception:
            if not status:
                answer = {"error": "something went wrong on the server: its log says what"}
                await JSONResponse(answer, 500)(scope, receive, complete)
            raise
        finally:
            self._service.inside -= is_inside
            path = getattr(scope.get("route"), "path", "other")
            method = method if method in ("GET", "HEAD", "POST") else "other"
            self._metrics.requests.labels(method, path, str(status or CLIENT_GONE)).inc()
            self._metrics.seconds.labels(path).observe(time.perf_counter() - start)

    def _refusal(self, scope: Scope, is_open: bool) -> JSONResponse | None:
        """Return the refusal: the server is full, its host is unknown, or another origin's page asks."""
        headers = Headers(scope=scope)
        host, origin = headers.get("host"), headers.get("origin")
        if self._service.inside >= self._service.limits.connections and not is_open:
            return self._refuse("full", 503, "too many requests at once", {"Retry-After": "1"})
        if host is not None and not self._is_known(name := _name_of(host)):
            name = name[:_QUOTED_CHARS] or "NAME"
            return self._refuse("host", 403, f"the server is not known as {name}: start it with --allowed-host {name}")
        if scope["method"] == "POST" and _is_cross_origin(headers) and not {origin, _ANY} & self._origins:
            name = "ORIGIN" if origin is None else origin[:_QUOTED_CHARS]
            advice = f"start the server with --allow-origin {name}, or let the proxy before it pass on the header Host"
            return self._refuse("origin", 403, f"pages of other origins may not ask: {advice}")
        return None

    def _refuse(self, reason: str, status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
        self._metrics.rejected.labels(reason).inc()
        return JSONResponse({"error": message}, status, headers)

    def _is_known(self, name: str) -> bool:
        """Return whether clients may use this host name: localhost, an allowed host, or any IP address.

        An attacker can point another name at this machine (DNS rebinding), but not an IP address.
        """
        if name == "localhost" or name.endswith(".localhost") or {name, _ANY} & self._hosts:
            return True
        with suppress(ValueError):
            return ip_address(name) is not None
        return False


class Cors(CORSMiddleware):
    """Starlette's middleware, whose refusals are errors like all others."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer a browser that asks whether a page of another origin may send a request."""
        answer = super().preflight_response(request_headers)
        if answer.status_code == 200:
            return answer
        return JSONResponse({"error": bytes(answer.body).decode()}, answer.status_code, self.preflight_headers)


def _is_cross_origin(headers: Headers) -> bool:
    """Return whether a browser sends a POST for another origin's page.

    The browser hides the answer from the page, but the server would do the work. Browsers report the origin in
    Sec-Fetch-Site (W3C, Fetch Metadata Request Headers), but over plain HTTP only to this machine. They send Origin
    with every POST. Other clients send neither header.
    """
    if site := headers.get("sec-fetch-site"):
        return site in ("cross-site", "same-site")
    origin = headers.get("origin")
    if origin is None:
        return False
    with suppress(ValueError):
        return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    return True


def _name_of(host: str) -> str:
    """Return the name or address of a host, without a port; empty: the host has no valid name."""
    with suppress(ValueError):
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    return ""


async def _send_in_chunks(message: Message, send: Send) -> None:
    """Send a body in chunks: `send` waits until the client has received the previous chunk."""
    body, more_body = message.get("body", b""), message.get("more_body", False)
    for start in range(0, max(len(body), 1), _CHUNK):
        end = start + _CHUNK
        await send({**message, "body": body[start:end], "more_body": more_body or end < len(body)})
