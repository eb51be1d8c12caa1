"""The ASGI application: LibreTranslate's API, explanations, facts about the server, and the page."""

import asyncio
import hashlib
import hmac
import itertools
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import Scope

from seq2seq.apps.serve.batching import OverloadedError, RefusedError, TooLateError
from seq2seq.apps.serve.messages import (
    EXPLANATION,
    TEXT,
    AnyRequest,
    Detection,
    DetectRequest,
    ExplainRequest,
    HealthAnswer,
    Language,
    SettingsAnswer,
    TranslateAnswer,
    TranslatedLanguage,
    TranslateRequest,
    body_of,
    errors,
    read_request,
    success,
)
from seq2seq.apps.serve.middleware import CLEANUP, CLIENT_GONE, Front
from seq2seq.apps.serve.service import Service
from seq2seq.apps.serve.translating import sentences_of
from seq2seq.errors import UserError
from seq2seq.settings.languages import language_name
from seq2seq.text.glossary import Glossary

R = TypeVar("R")

_PAGE = Path(__file__).parent / "page"
_WORK_ERRORS = (400, 408, 413, 415, 429, 503)  # error statuses of routes that need the model, besides 403 and 500


def create_app(
    service: Service,
    *,
    allowed_hosts: Sequence[str] = (),
    allow_origins: Sequence[str] = (),
    viewer: Path | None = None,
) -> FastAPI:
    """Return the ASGI application around a service, which is stored in `state.service` of the application.

    Args:
        service: translates and explains.
        allowed_hosts: host names that clients may use for this server, besides localhost and IP addresses.
        allow_origins: origins of pages on other hosts that may send requests.
        viewer: folder of the JavaScript modules that draw explanations; None: they are not served.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.stop()

    app = FastAPI(title="seq2seq", lifespan=lifespan, docs_url=None, redoc_url=None, responses=errors(403, 500))
    app.state.service = service
    _add_errors(app, service)
    _add_work(app, service)
    _add_facts(app, service)
    if allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(allow_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["Retry-After"],
        )
    app.add_middleware(Front, service=service, allowed_hosts=allowed_hosts, allow_origins=allow_origins)
    app.mount("/page", _Files(directory=_PAGE), "page")
    if viewer is not None:
        app.mount("/viewer", _Files(directory=viewer), "viewer")
    return app


def _add_errors(app: FastAPI, service: Service) -> None:
    """Answer errors as LibreTranslate does, with a status and {"error": message}; `Front` answers unexpected errors."""
    rejected = service.metrics.rejected

    @app.exception_handler(StarletteHTTPException)
    async def answer_http_error(_: Request, error: StarletteHTTPException) -> Response:
        if isinstance(error, HTTPException):  # a refused request; an unknown path raises Starlette's own exception
            rejected.labels(f"{error.status_code}").inc()
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @app.exception_handler(RefusedError)
    async def answer_refusal(_: Request, error: RefusedError) -> Response:
        is_full = isinstance(error, OverloadedError)
        rejected.labels("full" if is_full else "late").inc()
        message = f"Slowdown: {error}" if is_full else str(error)
        return JSONResponse({"error": message}, 429 if is_full else 503, {"Retry-After": str(error.retry_after)})

    @app.exception_handler(UserError)
    async def answer_user_error(_: Request, error: UserError) -> Response:
        rejected.labels("400").inc()
        return JSONResponse({"error": " ".join(str(error).split())}, 400)

    @app.exception_handler(ClientDisconnect)
    async def answer_disconnect(_: Request, error: ClientDisconnect) -> Response:
        rejected.labels("gone").inc()
        return Response(status_code=CLIENT_GONE)


def _add_work(app: FastAPI, service: Service) -> None:
    """Add /translate, /detect and /explain."""
    limits = service.limits

    @app.post(
        "/translate",
        response_model=TranslateAnswer,
        response_model_exclude_unset=True,
        openapi_extra=body_of(TranslateRequest),
        responses=errors(*_WORK_ERRORS),
    )
    async def translate(request: Request) -> dict[str, Any]:
        deadline = _deadline(service)
        options = await _read_allowed(request, TranslateRequest, service)
        _check_options(options, service)
        answer = await _in_time(request, deadline, service, _translate(options, service))
        return {key: values[0] for key, values in answer.items()} if isinstance(options.q, str) else answer

    @app.post("/detect", openapi_extra=body_of(DetectRequest), responses=errors(*_WORK_ERRORS, 501))
    async def detect(request: Request) -> list[Detection]:
        deadline = _deadline(service)
        text = (await _read_allowed(request, DetectRequest, service)).q
        if service.detect is None:
            raise HTTPException(501, "this server cannot detect languages: the extra langid is not installed there")
        _check_length(text, limits.char_limit)
        return await _in_time(request, deadline, service, _detect(text, service))

    @app.post(
        "/explain",
        response_class=Response,
        openapi_extra=body_of(ExplainRequest),
        responses={**errors(*_WORK_ERRORS, 501), **success("application/json", EXPLANATION)},
    )
    async def explain(request: Request) -> Response:
        deadline = _deadline(service)
        fields = await _read_allowed(request, ExplainRequest, service)
        if service.explain is None:
            raise HTTPException(501, "this server's engine cannot explain: serve with --engine pytorch")
        for text in (fields.source, fields.target or ""):
            _check_length(text, limits.explain_chars)
        request.scope[CLEANUP].enter_context(service.explanation_slot())
        content = await _in_time(request, deadline, service, service.explain_as_json(fields))
        return Response(content, media_type="application/json")


def _deadline(service: Service) -> float:
    """Return the deadline of a request that arrives now, by the event loop's clock (seconds)."""
    return asyncio.get_running_loop().time() + service.limits.timeout


async def _in_time(request: Request, deadline: float, service: Service, work: Coroutine[Any, Any, R]) -> R:
    """Return the result of `work`; cancel the work at the deadline, or when the client disconnects."""

    async def wait_for_disconnect() -> NoReturn:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        raise ClientDisconnect

    tasks = asyncio.ensure_future(work), asyncio.ensure_future(wait_for_disconnect())
    try:
        seconds = deadline - asyncio.get_running_loop().time()
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                return task.result()
        raise TooLateError("the server could not answer in time", service.retry_after)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read_allowed(request: Request, shape: type[AnyRequest], service: Service) -> AnyRequest:
    """Read a request with the API key, which is in the header Authorization: Bearer or in the field api_key."""
    token = _bearer(request)
    if token:  # before the body costs anything
        _check_key(token, service)
    fields = await read_request(request, shape, service.limits)
    if not token:
        _check_key(fields.api_key, service)
    return fields


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _check_key(key: str | None, service: Service) -> None:
    """Refuse a request without the API key."""
    if service.api_key is None:
        return
    if not key:
        raise HTTPException(400, "an API key is needed: ask whoever runs this server")
    digests = (hashlib.sha256(text.encode(errors="replace")).digest() for text in (key, service.api_key))
    if not hmac.compare_digest(*digests):
        raise HTTPException(403, "Invalid API key")


def _check_options(options: TranslateRequest, service: Service) -> None:
    """Refuse a request that exceeds a limit, is empty, or asks for another language or an impossible combination."""
    limits, translator = service.limits, service.translator
    if not options.q:
        raise HTTPException(400, "Invalid request: missing q parameter")
    if (count := len(options.texts)) > limits.batch_limit:
        raise HTTPException(400, f"Invalid request: request ({count}) exceeds text limit ({limits.batch_limit})")
    _check_length("".join([*options.texts, *itertools.chain(*options.glossary.items())]), limits.char_limit)
    for name in ("sentences", "confidence"):
        if getattr(options, name) and options.format == "html":
            raise HTTPException(400, f"Invalid request: {name}=true needs format=text")
    if options.confidence and translator.calibration is None:
        raise HTTPException(501, "this model is not calibrated, so it gives no confidence")
    if options.alternatives > service.most_alternatives:
        raise HTTPException(400, f"Invalid request: alternatives must be at most {service.most_alternatives}")
    if options.source not in (translator.src_lang, "auto"):
        raise HTTPException(400, f"{options.source:.20} is not supported: the source is {translator.src_lang}")
    if options.target != translator.tgt_lang:
        raise HTTPException(400, f"{options.target:.20} is not supported: the target is {translator.tgt_lang}")


def _check_length(text: str, limit: int) -> None:
    if len(text) > limit:
        raise HTTPException(400, f"Invalid request: request ({len(text)}) exceeds text limit ({limit})")


async def _translate(options: TranslateRequest, service: Service) -> dict[str, list[Any]]:
    """Return the fields of the answer, each a list with one item per text."""
    glossary = Glossary(options.glossary) if options.glossary else None
    n_best, is_html = 1 + options.alternatives, options.format == "html"
    translated = await service.texts.translate(options.texts, n_best, is_html=is_html, glossary=glossary)
    answer: dict[str, list[Any]] = {"translatedText": [text.ranks[0] for text in translated]}
    if options.alternatives:
        answer["alternatives"] = [text.ranks[1:] for text in translated]
    if options.confidence:
        answer["confidence"] = [text.confidence and round(text.confidence, 4) for text in translated]
    if options.sentences:
        answer["sentences"] = [sentences_of(text) for text in options.texts]
    if options.source == "auto":
        answer["detectedLanguage"] = [await _detected(text, service) for text in options.texts]
    return answer


async def _detect(text: str, service: Service) -> list[Detection]:
    """Return the likeliest languages; an empty list if the server cannot detect any."""
    if service.detect is None:
        return []
    languages = await service.markup_worker.run(service.detect, text)
    return [Detection(language=language, confidence=confidence) for language, confidence in languages]


async def _detected(text: str, service: Service) -> Detection:
    """Return the likeliest language, or the model's source language with confidence 0 if none can be detected."""
    detections = await _detect(text, service)
    return detections[0] if detections else Detection(confidence=0.0, language=service.translator.src_lang)


def _add_facts(app: FastAPI, service: Service) -> None:
    """Add the page, and the routes that do not need the model."""
    limits = service.limits
    src, tgt = (
        Language(code=code, name=language_name(code))
        for code in (service.translator.src_lang, service.translator.tgt_lang)
    )

    @app.get("/languages", responses=errors(503))
    async def languages() -> list[TranslatedLanguage]:
        return [
            TranslatedLanguage(**src.model_dump(), targets=[tgt.code]),
            TranslatedLanguage(**tgt.model_dump(), targets=[]),
        ]

    @app.get("/frontend/settings", responses=errors(503))
    async def settings() -> SettingsAnswer:
        return SettingsAnswer(
            charLimit=limits.char_limit,
            apiKeys=service.api_key is not None,
            keyRequired=service.api_key is not None,
            language={"source": src, "target": tgt},
            alternatives=service.most_alternatives,
            explainLimit=limits.explain_chars if service.explain is not None else 0,
        )

    @app.get("/health", responses=errors(503))
    @app.get("/ready", responses=errors(503))
    async def health() -> HealthAnswer:
        if trouble := service.trouble:
            raise StarletteHTTPException(503, trouble)  # Starlette's exception: does not count as a refused request
        return HealthAnswer()

    @app.get("/metrics", response_class=Response, responses={**errors(400), **success("text/plain", TEXT)})
    async def metrics(request: Request) -> Response:
        _check_key(_bearer(request), service)
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/", response_class=Response, responses={**errors(503), **success("text/html", TEXT)})
    async def page() -> Response:
        text = (_PAGE / "index.html").read_text(encoding="utf-8")  # FileResponse might answer with a part of the file
        return HTMLResponse(text, headers={"Cache-Control": "no-cache"})


class _Files(StaticFiles):
    """Static files; browsers check before each use whether a file has changed."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response
