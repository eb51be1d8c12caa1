"""The routes that need the model: /translate, /detect, /explain; knows no page."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from seq2seq.serve.languages import Detection
from seq2seq.serve.requests import ApiError, DetectRequest, ExplainRequest, TranslateRequest, read_request
from seq2seq.serve.service import Service
from seq2seq.serve.translating import translate_all


def add_work(app: FastAPI, service: Service) -> None:
    """Add what the model is needed for."""
    limits = service.limits

    @app.post("/translate", openapi_extra=_body(TranslateRequest))
    async def translate(request: Request) -> Response:
        deadline = service.deadline()
        wanted = await read_request(request, TranslateRequest, limits.body_limit, limits.batch_limit, limits.timeout)
        service.check_key(wanted.api_key, request)
        _check(wanted, service)
        work = translate_all(
            service.batcher,
            wanted.texts,
            n_best=1 + wanted.alternatives,
            is_html=wanted.format == "html",
            deadline=deadline,
        )
        ranked = await _while_connected(request, work)
        answer: dict[str, Any] = {"translatedText": [best[0] for best in ranked]}
        if wanted.alternatives:
            answer["alternatives"] = [best[1:] for best in ranked]
        if wanted.source == "auto":
            answer["detectedLanguage"] = [await _detected(text, service) for text in wanted.texts]
        return JSONResponse({key: value[0] for key, value in answer.items()} if isinstance(wanted.q, str) else answer)

    @app.post("/detect", openapi_extra=_body(DetectRequest))
    async def detect(request: Request) -> Response:
        wanted = await read_request(request, DetectRequest, limits.body_limit, 1, limits.timeout)
        service.check_key(wanted.api_key, request)
        if service.detect is None:
            raise ApiError(501, "this server cannot detect languages: the extra langid is not installed there")
        _check_length(wanted.q, limits.char_limit)
        return JSONResponse(await asyncio.to_thread(service.detect, wanted.q))

    @app.post("/explain", openapi_extra=_body(ExplainRequest))
    async def explain(request: Request) -> Response:
        deadline = service.deadline()
        wanted = await read_request(request, ExplainRequest, limits.body_limit, 1, limits.timeout)
        service.check_key(wanted.api_key, request)
        if not service.can_explain:
            raise ApiError(501, "this server's engine cannot explain: serve with --engine pytorch")
        for text in (wanted.source, wanted.target or ""):
            _check_length(text, limits.explain_chars)
        (found,) = await _while_connected(request, service.explainer.submit([wanted], "explanation", deadline))
        return Response(found, media_type="application/json")


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


async def _detected(text: str, service: Service) -> Detection:
    """The likeliest language; where it cannot be told, the model's own, with no confidence."""
    if service.detect is not None and (found := await asyncio.to_thread(service.detect, text)):
        return found[0]
    return {"confidence": 0.0, "language": service.translator.src_lang}


async def _while_connected(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """Wait for work, but no longer than the client does.

    Raises:
        ClientDisconnect: it is gone; the work is given up.
        Exception: what the work raises.
    """

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(leave())
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


def _body(shape: type[BaseModel]) -> dict[str, Any]:
    """Tell OpenAPI of a body that the route reads by itself."""
    schema = shape.model_json_schema()
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}
