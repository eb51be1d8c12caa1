"""Requests' bodies, JSON or forms, to checked values, within bounds of size and time; knows no model."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, Field, ValidationError
from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

_DRAIN = 1.0  # seconds for which a body that is too large is still read, so that its sender hears of it
_MOST_FIELDS = 16  # beside the texts

M = TypeVar("M", bound=BaseModel)


class ApiError(Exception):
    """What a client is told instead of an answer."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


class DetectRequest(BaseModel):
    """Asks for the language of a text."""

    q: str = Field(min_length=1, description="Text")
    api_key: str | None = None


class TranslateRequest(BaseModel):
    """Asks for translations, as LibreTranslate is asked."""

    q: str | list[str] = Field(description="Text or texts to translate")
    source: str = Field(min_length=1, description="Language of the text, or auto")
    target: str = Field(min_length=1, description="Language of the translation")
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(default=0, ge=0, description="Further translations wanted")
    api_key: str | None = None

    @property
    def texts(self) -> list[str]:
        """The texts, be they one or many."""
        return [self.q] if isinstance(self.q, str) else self.q


class ExplainRequest(BaseModel):
    """Asks what the model attends to while it translates a sentence."""

    source: str = Field(min_length=1, description="A sentence")
    target: str | None = Field(default=None, description="Its translation; none: the model's own")
    layer: int = Field(default=0, ge=0, description="Layer to walk through, from 0")
    head: int = Field(default=0, ge=0, description="Its head, from 0")
    api_key: str | None = None


async def read_request(request: Request, shape: type[M], max_bytes: int, max_fields: int, seconds: float) -> M:
    """Read a request's body and check its fields.

    Args:
        request: whose body was not read.
        shape: fields and their types.
        max_bytes: of the body.
        max_fields: texts in a form.
        seconds: within which it has to arrive.

    Raises:
        ApiError: it is too large, too slow, or not as it should be.
        ClientDisconnect: the client is gone.
    """
    try:
        async with asyncio.timeout(seconds):
            body = await _read_body(request, max_bytes)
    except TimeoutError:
        raise ApiError(408, "the request's body did not arrive in time", {"Connection": "close"}) from None
    values = await _parse(request.headers, body, max_fields + _MOST_FIELDS)
    try:
        json.dumps(values, ensure_ascii=False).encode()  # JSON can spell halves of characters, which nothing can write
        return shape.model_validate(values)
    except UnicodeEncodeError:
        raise ApiError(400, "Invalid request: the body has half a surrogate pair") from None
    except ValidationError as error:
        raise ApiError(400, _in_words(error)) from None


async def _read_body(request: Request, max_bytes: int) -> bytes:
    """Read no more than max_bytes; what is beyond is thrown away as it comes."""
    body = bytearray()
    stream = request.stream()
    async for chunk in stream:
        body += chunk
        if len(body) > max_bytes:
            body.clear()
            with suppress(TimeoutError, ClientDisconnect):
                async with asyncio.timeout(_DRAIN):
                    async for _ in stream:
                        pass
            raise ApiError(413, f"the request is larger than {max_bytes} bytes", {"Connection": "close"})
    return bytes(body)


async def _parse(headers: Headers, body: bytes, max_fields: int) -> dict[str, Any]:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if kind == "application/json":
            values = json.loads(body)
            if not isinstance(values, dict):
                raise ApiError(400, "Invalid JSON format")
            return values
        if kind == "application/x-www-form-urlencoded":
            pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=max_fields)
            return _fields(pairs)
        if kind == "multipart/form-data":
            parser = MultiPartParser(
                headers, _once(body), max_files=0, max_fields=max_fields, max_part_size=len(body) + 1
            )
            return _fields([(name, value) for name, value in (await parser.parse()).multi_items() if str(value)])
    except (ValueError, RecursionError, MultiPartException):
        raise ApiError(400, f"Invalid request: the body is not {kind} in UTF-8") from None
    raise ApiError(415, "Invalid request: send application/json or a form")


async def _once(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make values of a form's fields; q given several times is a list, of others the first counts."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name == "q":
            value = value.replace("\r\n", "\n")  # how forms write line ends
            values["q"] = (
                [*([values["q"]] if isinstance(values["q"], str) else values["q"]), value] if "q" in values else value
            )
        else:
            values.setdefault(name, value)
    return values


def _in_words(error: ValidationError) -> str:
    """Tell the first thing that is wrong; never repeats what was sent."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    name = str(first["loc"][0]) if first["loc"] else "body"
    if first["type"] in ("missing", "string_too_short"):
        return f"Invalid request: missing {name} parameter"
    return f"Invalid request: {name}: {first['msg']}"
