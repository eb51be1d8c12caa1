"""The ASGI application: LibreTranslate's API, explanations, facts about the server, and the page."""

import asyncio
import hashlib
import hmac
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect

from seq2seq.apps.serve import messages
from seq2seq.apps.serve.batching import OverloadedError, RefusedError, TooLateError
from seq2seq.apps.serve.messages import AnyRequest, DetectRequest, ExplainRequest, TranslateRequest
from seq2seq.apps.serve.middleware import CLEANUP, CLIENT_GONE, Cors, Front
from seq2seq.apps.serve.service import Service
from seq2seq.apps.serve.translating import TranslatedText, sentences_of
from seq2seq.data.languages import base_language, language_name
from seq2seq.errors import UserError
from seq2seq.text.glossary import Glossary

R = TypeVar("R")

_PAGE = Path(__file__).parent / "page"
_VIEWER = Path(__file__).parents[1] / "explain/viewer"  # the JavaScript modules that draw explanations
_ABSENT = {  # routes of LibreTranslate, and the message of their error
    "/translate_file": "this server translates no files: use `seq2seq translate --input FILE`, or /translate for text",
    "/suggest": "this server takes no suggestions: send a glossary with a request, or train with better pairs",
}
_ERROR = {"application/json": {"schema": messages.ErrorAnswer.model_json_schema()}}
_ERRORS: dict[int | str, Any] = {"default": {"description": "An error", "content": _ERROR}}  # of every route


def create_app(
    service: Service,
    *,
    allowed_hosts: Sequence[str] = (),
    allow_origins: Sequence[str] = (),
) -> FastAPI:
    """Return the ASGI application around a service, which is stored in `state.service` of the application.

    Args:
        service: translates and explains.
        allowed_hosts: host names that clients may use for this server, besides localhost and IP addresses.
        allow_origins: origins of pages on other hosts that may send requests.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.stop()

    app = FastAPI(title="seq2seq", lifespan=lifespan, docs_url=None, redoc_url=None, responses=_ERRORS)
    app.router.redirect_slashes = False  # `Front` removes them
    app.state.service = service
    _add_errors(app, service)
    _add_work(app, service)
    _add_facts(app, service)
    if allow_origins:
        app.add_middleware(
            Cors,
            allow_origins=list(allow_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["Retry-After"],
        )
    app.add_middleware(Front, service=service, allowed_hosts=allowed_hosts, allow_origins=allow_origins)
    app.mount("/page", StaticFiles(directory=_PAGE), "page")
    app.mount("/viewer", StaticFiles(directory=_VIEWER), "viewer")
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
    """Add /translate, /detect and /explain, and the routes of LibreTranslate that say why they are not there."""

    @app.post(
        "/translate",
        response_model=messages.TranslateAnswer,
        response_model_exclude_unset=True,
        openapi_extra=messages.body_of(TranslateRequest),
    )
    async def translate(request: Request) -> dict[str, Any]:
        return await _answer(request, service, TranslateRequest, partial(_translate, service))

    @app.post("/detect", openapi_extra=messages.body_of(DetectRequest))
    async def detect(request: Request) -> list[messages.Detection]:
        return await _answer(request, service, DetectRequest, partial(_detect, service))

    @app.post("/explain", response_model=dict[str, Any], openapi_extra=messages.body_of(ExplainRequest))
    async def explain(request: Request) -> Response:
        async def work(fields: ExplainRequest) -> bytes:
            if service.explain is None:
                raise HTTPException(501, "this server's engine cannot explain: serve with --engine pytorch")
            for text in (fields.source, fields.target or ""):
                _check_length(text, service.limits.explain_chars)
            request.scope[CLEANUP].enter_context(service.explanation_slot())
            return await service.explain_as_json(fields)

        return Response(await _answer(request, service, ExplainRequest, work), media_type="application/json")

    async def refuse(request: Request) -> None:
        await messages.drain(request.stream())
        raise HTTPException(501, _ABSENT[request.scope["path"]], {"Connection": "close"})

    for path in _ABSENT:
        app.add_api_route(path, refuse, methods=["POST"], include_in_schema=False)


async def _answer(
    request: Request, service: Service, shape: type[AnyRequest], work: Callable[[AnyRequest], Coroutine[Any, Any, R]]
) -> R:
    """Read a request and return the result of `work`; cancel `work` after the timeout or if the client disconnects."""
    end = asyncio.get_running_loop().time() + service.limits.timeout
    fields = await _read_allowed(request, shape, service)

    async def wait_for_disconnect() -> NoReturn:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        raise ClientDisconnect

    tasks = asyncio.ensure_future(work(fields)), asyncio.ensure_future(wait_for_disconnect())
    try:
        seconds = end - asyncio.get_running_loop().time()
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
    if token := _bearer(request):  # before the body costs anything
        _check_key(token, service)
    fields = await messages.read_request(request, shape, service.limits)
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
    """Refuse a request that exceeds a limit, or asks for another language or an impossible combination."""
    limits, translator = service.limits, service.translator
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
    src, tgt = translator.src_lang, translator.tgt_lang
    if options.source not in (base_language(src), "auto") or options.target != base_language(tgt):
        pair = f"{options.source:.20} → {options.target:.20}"
        raise HTTPException(400, f"{pair} is not supported: this server translates {src} → {tgt}")


def _check_length(text: str, limit: int) -> None:
    if len(text) > limit:
        raise HTTPException(400, f"Invalid request: request ({len(text)}) exceeds text limit ({limit})")


async def _translate(service: Service, options: TranslateRequest) -> dict[str, Any]:
    """Return the fields of the answer, lists for a list of texts; auto leaves texts in the target language alone."""
    _check_options(options, service)
    glossary = Glossary(options.glossary) if options.glossary else None
    n_best, is_html, texts = 1 + options.alternatives, options.format == "html", options.texts
    detected = [await service.detect(text, is_html=is_html) for text in texts] if options.source == "auto" else []
    tgt_lang = service.translator.tgt_lang
    unchanged = {text for text, (language, _) in zip(texts, detected, strict=False) if language == tgt_lang}
    others = [text for text in texts if text not in unchanged]
    translations = iter(await service.texts.translate(others, n_best, is_html=is_html, glossary=glossary))
    translated = [TranslatedText([text], None) if text in unchanged else next(translations) for text in texts]
    answer: dict[str, list[Any]] = {"translatedText": [text.ranks[0] for text in translated]}
    if options.alternatives:
        answer["alternatives"] = [text.ranks[1:] for text in translated]
    if options.confidence:
        answer["confidence"] = [text.confidence and round(text.confidence, 4) for text in translated]
    if options.sentences:
        answer["sentences"] = [sentences_of(text) for text in texts]
    if options.source == "auto":
        answer["detectedLanguage"] = [{"language": code, "confidence": percent} for code, percent in detected]
    return {key: values[0] for key, values in answer.items()} if isinstance(options.q, str) else answer


async def _detect(service: Service, fields: DetectRequest) -> list[messages.Detection]:
    """Return the likeliest language of all texts together."""
    text = "\n".join(fields.texts)
    _check_length(text, service.limits.char_limit)
    language, confidence = await service.detect(text)
    return [messages.Detection(language=language, confidence=confidence)]


def _add_facts(app: FastAPI, service: Service) -> None:
    """Add the page, and the routes that do not need the model."""
    src, tgt = (messages.Language(code=code, name=language_name(code)) for code in service.texts.languages)

    @app.get("/languages")
    async def languages() -> list[messages.TranslatedLanguage]:
        targets = {src.code: [tgt.code], tgt.code: []}
        return [messages.TranslatedLanguage(**one.model_dump(), targets=targets[one.code]) for one in (src, tgt)]

    @app.get("/frontend/settings")
    async def settings() -> messages.SettingsAnswer:
        return messages.SettingsAnswer(
            charLimit=service.limits.char_limit,
            apiKeys=service.api_key is not None,
            keyRequired=service.api_key is not None,
            language={"source": src, "target": tgt},
            alternatives=service.most_alternatives,
            explainLimit=service.limits.explain_chars if service.explain is not None else 0,
        )

    @app.get("/health")
    @app.get("/ready")
    async def health() -> dict[str, str]:
        if trouble := service.trouble:
            raise StarletteHTTPException(503, trouble)  # Starlette's exception: does not count as a refused request
        return {"status": "ok"}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics(request: Request) -> Response:
        _check_key(_bearer(request), service)
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/", response_class=HTMLResponse)
    async def page() -> Response:
        text = (_PAGE / "index.html").read_text(encoding="utf-8")  # FileResponse might answer with a part of the file
        return HTMLResponse(text, headers={"Cache-Control": "no-cache"})
