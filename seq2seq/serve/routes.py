"""The routes that need the model: /translate, /detect, /explain; knows no page."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from seq2seq.serve.answers import DetectAnswer, ExplainAnswer, TranslateAnswer, described
from seq2seq.serve.batching import TooLateError
from seq2seq.serve.languages import Detection
from seq2seq.serve.requests import ApiError, DetectRequest, ExplainRequest, TranslateRequest, read_request
from seq2seq.serve.service import Service

_ERRORS = (400, 403, 408, 413, 415, 429, 500, 503)  # statuses that each of these routes may answer with


class _Explanation(Response):
    """An explanation, which may be large: it counts as at work until its client has taken it."""

    media_type = "application/json"

    def __init__(self, content: bytes, service: Service) -> None:
        super().__init__(content)
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._service.end_explanation()


def add_work(app: FastAPI, service: Service) -> None:
    """Add what the model is needed for."""
    limits = service.limits

    @app.post("/translate", openapi_extra=_body(TranslateRequest), responses=described(TranslateAnswer, *_ERRORS))
    async def translate(request: Request) -> Response:
        deadline = service.deadline()
        wanted = await read_request(request, TranslateRequest, limits.body_limit, limits.batch_limit, limits.timeout)
        service.check_key(wanted.api_key, request)
        _check(wanted, service)
        answer = await _in_time(request, _translate(wanted, service), service, deadline)
        return JSONResponse({key: value[0] for key, value in answer.items()} if isinstance(wanted.q, str) else answer)

    @app.post("/detect", openapi_extra=_body(DetectRequest), responses=described(DetectAnswer, *_ERRORS, 501))
    async def detect(request: Request) -> Response:
        deadline = service.deadline()
        wanted = await read_request(request, DetectRequest, limits.body_limit, 1, limits.timeout)
        service.check_key(wanted.api_key, request)
        if service.detect is None:
            raise ApiError(501, "this server cannot detect languages: the extra langid is not installed there")
        _check_length(wanted.q, limits.char_limit)
        work = service.markup_worker.run(service.detect, wanted.q)
        return JSONResponse(await _in_time(request, work, service, deadline))

    @app.post("/explain", openapi_extra=_body(ExplainRequest), responses=described(ExplainAnswer, *_ERRORS, 501))
    async def explain(request: Request) -> Response:
        deadline = service.deadline()
        wanted = await read_request(request, ExplainRequest, limits.body_limit, 1, limits.timeout)
        service.check_key(wanted.api_key, request)
        if not service.can_explain:
            raise ApiError(501, "this server's engine cannot explain: serve with --engine pytorch")
        for text in (wanted.source, wanted.target or ""):
            _check_length(text, limits.explain_chars)
        service.begin_explanation()
        try:
            (found,) = await _in_time(request, service.explainer.submit([wanted], "explanation"), service, deadline)
        except BaseException:
            service.end_explanation()
            raise
        return _Explanation(found, service)


def _check(wanted: TranslateRequest, service: Service) -> None:
    """Refuse what is too much, or in another language.

    Raises:
        ApiError: it is.
    """
    limits, translator = service.limits, service.translator
    if not wanted.q:
        raise ApiError(400, "Invalid request: missing q parameter")
    if (count := len(wanted.texts)) > limits.batch_limit:
        raise ApiError(400, f"Invalid request: request ({count}) exceeds text limit ({limits.batch_limit})")
    _check_length("".join(wanted.texts), limits.char_limit)
    if wanted.alternatives > service.most_alternatives:
        raise ApiError(400, f"Invalid request: alternatives must be at most {service.most_alternatives}")
    if wanted.source not in (translator.src_lang, "auto"):
        raise ApiError(400, f"{wanted.source:.20} is not supported: the source is {translator.src_lang}")
    if wanted.target != translator.tgt_lang:
        raise ApiError(400, f"{wanted.target:.20} is not supported: the target is {translator.tgt_lang}")


def _check_length(text: str, limit: int) -> None:
    if len(text) > limit:
        raise ApiError(400, f"Invalid request: request ({len(text)}) exceeds text limit ({limit})")


async def _translate(wanted: TranslateRequest, service: Service) -> dict[str, list[Any]]:
    """Translate a request's texts; gives lists of as many items."""
    ranked = await service.texts.translate(wanted.texts, 1 + wanted.alternatives, is_html=wanted.format == "html")
    answer: dict[str, list[Any]] = {"translatedText": [best[0] for best in ranked]}
    if wanted.alternatives:
        answer["alternatives"] = [best[1:] for best in ranked]
    if wanted.source == "auto":
        answer["detectedLanguage"] = [await _detected(text, service) for text in wanted.texts]
    return answer


async def _detected(text: str, service: Service) -> Detection:
    """The likeliest language; where it cannot be told, the model's own, with no confidence."""
    if service.detect is not None and (found := await service.markup_worker.run(service.detect, text)):
        return found[0]
    return {"confidence": 0.0, "language": service.translator.src_lang}


async def _in_time(request: Request, work: Coroutine[Any, Any, Any], service: Service, deadline: float) -> Any:
    """Wait for work until the deadline (by the event loop's clock), but no longer than the client does.

    Raises:
        ClientDisconnect: the client is gone; the work is given up.
        TooLateError: the deadline has passed; the work is given up.
        Exception: what the work raises.
    """

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(leave())
    try:
        seconds = deadline - asyncio.get_running_loop().time()
        done, _ = await asyncio.wait((working, leaving), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if working in done:
            return working.result()
        if leaving in done:
            raise ClientDisconnect
        raise TooLateError("the server could not answer in time", service.retry_after)
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


def _body(shape: type[BaseModel]) -> dict[str, Any]:
    """Tell OpenAPI of a body that the route reads by itself."""
    schema = shape.model_json_schema()
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}
