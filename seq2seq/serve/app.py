"""The ASGI application: an API as LibreTranslate's, facts about the server, and the page; loads no model."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import Scope

from seq2seq.errors import UserError
from seq2seq.serve.answers import HealthAnswer, LanguagesAnswer, SettingsAnswer, described
from seq2seq.serve.batching import OverloadedError, RefusedError
from seq2seq.serve.callers import Callers
from seq2seq.serve.front import CLIENT_GONE, Front
from seq2seq.serve.languages import Detect, language_name
from seq2seq.serve.limits import Limits
from seq2seq.serve.metrics import CONTENT_TYPE
from seq2seq.serve.requests import ApiError
from seq2seq.serve.routes import add_work
from seq2seq.serve.service import Explain, Service
from seq2seq.serve.translating import Translates

PAGE = Path(__file__).parent / "page"
_ANY_ERRORS = (403, 500, 503)  # statuses that any route may answer with
_TYPING_PAUSE = 300  # milliseconds after which a page translates what was typed

log = logging.getLogger(__name__)


def create_app(
    translator: Translates,
    *,
    limits: Limits | None = None,
    most_alternatives: int = 4,
    explain: Explain | None = None,
    detect: Detect | None = None,
    api_key: str | None = None,
    allowed_hosts: Sequence[str] = (),
    allow_origins: Sequence[str] = (),
    viewer: Path | None = None,
) -> FastAPI:
    """Make the ASGI application; its `state.service` has the gate, the queues and the counts.

    Args:
        translator: what translates.
        limits: of requests, batches and waiting.
        most_alternatives: further translations that a request may want; at most the translator's beam - 1.
        explain: gives an explanation as plain values; None: there are none.
        detect: tells a text's language; None: it cannot be told.
        api_key: that requests must have; None: anybody may ask.
        allowed_hosts: names by which the server is reached, besides localhost and addresses.
        allow_origins: of pages on other hosts that may ask.
        viewer: folder of the modules that draw explanations.
    """
    limits = limits or Limits()
    service = Service(
        translator,
        limits,
        most_alternatives=most_alternatives,
        explain=explain,
        detect=detect,
        api_key=api_key,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.stop()

    app = FastAPI(title="seq2seq", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    _add_errors(app, service)
    add_work(app, service)
    _add_facts(app, service)
    if allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(allow_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["Retry-After"],
        )
    callers = Callers(allowed_hosts, allow_origins)
    app.add_middleware(Front, gate=service.gate, metrics=service.metrics, callers=callers)
    _add_page(app, viewer)
    return app


def _add_errors(app: FastAPI, service: Service) -> None:
    """Tell what goes wrong as LibreTranslate does: a status and {"error": words}; what nobody foresaw `Front` tells."""
    rejected = service.metrics.rejected

    async def told(_: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        rejected.labels(f"{error.status}").inc()
        return JSONResponse({"error": error.message}, error.status, error.headers)

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, RefusedError)
        is_full = isinstance(error, OverloadedError)
        rejected.labels("full" if is_full else "late").inc()
        message = f"Slowdown: {error}" if is_full else str(error)
        return JSONResponse({"error": message}, 429 if is_full else 503, {"Retry-After": str(error.retry_after)})

    async def mistaken(_: Request, error: Exception) -> Response:
        rejected.labels("400").inc()
        return JSONResponse({"error": " ".join(str(error).split())}, 400)

    async def gone(_: Request, error: Exception) -> Response:
        rejected.labels("gone").inc()
        return Response(status_code=CLIENT_GONE)

    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    handlers: list[tuple[type[Exception], Callable[[Request, Exception], Awaitable[Response]]]] = [
        *((ApiError, told), (RefusedError, refused), (UserError, mistaken), (ClientDisconnect, gone)),
        (HTTPException, http),
    ]
    for kind, handler in handlers:
        app.add_exception_handler(kind, handler)


def _add_facts(app: FastAPI, service: Service) -> None:
    """Add what is answered without the model."""
    translator, limits = service.translator, service.limits
    src, tgt = ({"code": one, "name": language_name(one)} for one in (translator.src_lang, translator.tgt_lang))

    @app.get("/languages", responses=described(LanguagesAnswer, *_ANY_ERRORS))
    async def languages() -> Response:
        return JSONResponse([{**src, "targets": [tgt["code"]]}, {**tgt, "targets": []}])

    @app.get("/frontend/settings", responses=described(SettingsAnswer, *_ANY_ERRORS))
    async def settings() -> Response:
        return JSONResponse(
            {
                "charLimit": limits.char_limit,
                "frontendTimeout": _TYPING_PAUSE,
                "apiKeys": service.has_key,
                "keyRequired": service.has_key,
                "suggestions": False,
                "filesTranslation": False,
                "supportedFilesFormat": [],
                "language": {"source": src, "target": tgt},
                "alternatives": service.most_alternatives,
                "explainLimit": limits.explain_chars if service.can_explain else 0,
            }
        )

    @app.get("/health", responses=described(HealthAnswer, *_ANY_ERRORS))
    async def health() -> Response:
        if trouble := service.trouble:
            return JSONResponse({"error": trouble}, 503)
        return JSONResponse({"status": "ok"})

    @app.get("/ready", responses=described(HealthAnswer, *_ANY_ERRORS))
    async def ready() -> Response:
        if service.gate.is_closed:
            return JSONResponse({"error": "the server is being stopped"}, 503)
        return await health()

    @app.get("/metrics", response_class=Response, responses=described("text/plain", 400, 403, 500))
    async def metrics(request: Request) -> Response:
        service.check_key(None, request)
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)


class _Files(StaticFiles):
    """Files that browsers ask for anew whenever they changed."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


def _add_page(app: FastAPI, viewer: Path | None) -> None:
    @app.get("/", response_class=Response, responses=described("text/html", *_ANY_ERRORS))
    async def page() -> Response:
        text = (PAGE / "index.html").read_text(encoding="utf-8")  # not FileResponse, which may answer with a part
        return HTMLResponse(text, headers={"Cache-Control": "no-cache"})

    app.mount("/page", _Files(directory=PAGE), "page")
    if viewer is not None:
        app.mount("/viewer", _Files(directory=viewer), "viewer")
