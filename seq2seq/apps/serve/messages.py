"""Requests and answers, as OpenAPI describes them, and how a request is read, without a model."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

from fastapi import HTTPException, Request
from pydantic import AfterValidator, BaseModel, Field, Json, StringConstraints, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from seq2seq.apps.serve.limits import Limits
from seq2seq.data.languages import base_language

_DRAIN_TIMEOUT = 1.0  # seconds for which the rest of an unwanted body is read
_LISTS = ("without", "average")  # fields of a form that are lists, even with one value


class KeyedRequest(BaseModel):
    """A request for work; the key may also be in the header Authorization."""

    api_key: str | None = None


AnyRequest = TypeVar("AnyRequest", bound=KeyedRequest)


class DetectRequest(KeyedRequest):
    """A request for the language of a text, or of all texts of a list together."""

    q: str | list[str] = Field(description="Text or texts")

    @property
    def texts(self) -> list[str]:
        """The texts as a list, also for a single text."""
        return [self.q] if isinstance(self.q, str) else self.q


Code = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(base_language)]
Phrase = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Terms = dict[Phrase, Phrase]


class TranslateRequest(DetectRequest):
    """A request for translations, with LibreTranslate's fields."""

    source: Code = Field(description="Language of the text, such as en or en-US, or auto")
    target: Code = Field(description="Language of the translation")
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(default=0, ge=0, description="Number of further translations")
    sentences: bool = Field(default=False, description="Whether to return the sentences of the text, too (not of HTML)")
    confidence: bool = Field(default=False, description="Whether to return how likely it is acceptable (not of HTML)")
    glossary: Terms | Json[Terms] = Field(default={}, description="Terms and their translations; in a form, as JSON")


Name = Annotated[str, StringConstraints(max_length=40)]  # see `seq2seq.apps.explain.interventions`: encoder.2.head.3


class ExplainRequest(KeyedRequest):
    """A request for the model's attention while it translates a sentence."""

    source: str = Field(min_length=1, description="A sentence")
    target: str | None = Field(default=None, description="Its translation; none: the model's own")
    layer: int = Field(default=0, ge=0, description="Layer to walk through, from 0")
    head: int = Field(default=0, ge=0, description="Its head, from 0")
    without: list[Name] = Field(default=[], max_length=200, description="Parts of the model that are switched off")
    average: list[Name] = Field(default=[], max_length=200, description="Heads that take the same of all they may see")
    word: int = Field(default=0, ge=0, description="A word of the translation, from 0, to compare with `other`")
    other: str | None = Field(default=None, max_length=100, description="Another word in its place; none: no contrast")
    temperature: float = Field(default=1.0, ge=0.001, le=1000, description="Divisor of all scores besides √c")


class ErrorAnswer(BaseModel):
    """An error message."""

    error: str


class Detection(BaseModel):
    """A possible language of a text."""

    confidence: float  # percent
    language: str  # code


class TranslateAnswer(BaseModel):
    """A text's translation, or a list for a list of texts; other fields are present if the request asks for them."""

    translatedText: str | list[str]  # noqa: N815
    alternatives: list[str] | list[list[str]] = []
    detectedLanguage: Detection | list[Detection] = []  # noqa: N815
    sentences: list[str] | list[list[str]] = []
    confidence: float | list[float | None] | None = None  # from 0 to 1, of the least sure sentence


class Language(BaseModel):
    """A language by its code and its English name."""

    code: str
    name: str


class TranslatedLanguage(Language):
    """A language and the codes of the languages that it is translated into."""

    targets: list[str]


class SettingsAnswer(BaseModel):
    """The server's settings for a page."""

    charLimit: int  # noqa: N815
    frontendTimeout: int = 300  # noqa: N815  (milliseconds after the last keystroke until the page translates)
    apiKeys: bool  # noqa: N815
    keyRequired: bool  # noqa: N815
    suggestions: bool = False
    filesTranslation: bool = False  # noqa: N815
    supportedFilesFormat: list[str] = []  # noqa: N815
    language: dict[Literal["source", "target"], Language]
    alternatives: int
    explainLimit: int  # noqa: N815


def body_of(shape: type[BaseModel]) -> dict[str, Any]:
    """Return OpenAPI's description of the body of a route that calls `read_request`."""
    schema = shape.model_json_schema()
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    return {"requestBody": {"content": {kind: {"schema": schema} for kind in kinds}}}


async def read_request(request: Request, shape: type[AnyRequest], limits: Limits) -> AnyRequest:
    """Read a request from its query string and its body, within the limits of size and time, and check its fields."""
    _, parameters = parse_options_header(request.headers.get("content-type"))
    if parameters.get(b"charset", b"utf-8").lower() not in (b"utf-8", b"utf8"):  # some of Python's codecs are slow
        raise HTTPException(415, "Invalid request: send it in UTF-8", {"Connection": "close"})
    encoding = request.headers.get("content-encoding", "").strip()
    if encoding.lower() not in ("", "identity", "utf-8"):
        raise HTTPException(415, f"Invalid request: send it without {encoding:.20} encoding", {"Connection": "close"})
    try:
        async with asyncio.timeout(limits.timeout):
            body = await _read_body(request, limits.body_limit)
    except TimeoutError:
        raise HTTPException(408, "the request's body did not arrive in time", {"Connection": "close"}) from None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    parts = [await _parse(request, request.scope["query_string"], "a query string"), await _parse(request, body, kind)]
    # Many clients send every field: one that is null or empty has its default. Only a text may be empty.
    pairs = (pair for fields in parts for pair in fields.items())
    values = {name: value for name, value in pairs if value is not None and (value != "" or name == "q")}
    try:
        json.dumps(values, ensure_ascii=False).encode()  # JSON can hold half a surrogate pair, UTF-8 cannot
        return shape.model_validate(values)
    except UnicodeEncodeError:
        raise HTTPException(400, "Invalid request: the body has half a surrogate pair") from None
    except ValidationError as error:
        raise HTTPException(400, _in_words(error)) from None


async def _read_body(request: Request, max_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in (stream := request.stream()):
        body += chunk
        if len(body) > max_bytes:
            body.clear()
            await drain(stream)
            raise HTTPException(413, f"the request is larger than {max_bytes} bytes", {"Connection": "close"})
    return bytes(body)


async def drain(stream: AsyncIterator[bytes]) -> None:
    """Read the rest of a body for a moment, so that its sender gets the answer."""
    with suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(_DRAIN_TIMEOUT):
            async for _ in stream:
                pass


async def _parse(request: Request, body: bytes, kind: str) -> dict[str, Any]:
    if not body:
        return {}
    try:
        if kind.endswith(("/json", "+json")):
            values = json.loads(body)
            if not isinstance(values, dict):
                raise HTTPException(400, "Invalid JSON format")
            return values
        text = body.decode()  # the parser of multipart would read other bytes as Latin-1
        if kind in ("application/x-www-form-urlencoded", "a query string"):
            return _fields(parse_qsl(text, keep_blank_values=True, errors="strict"))
        if kind == "multipart/form-data":

            async def stream() -> AsyncGenerator[bytes, None]:
                yield body

            limits = {"max_files": 0, "max_fields": len(body), "max_part_size": len(body) + 1}
            form = await MultiPartParser(request.headers, stream(), **limits).parse()
            return _fields(form.multi_items())
    except MultiPartException as error:  # a file, or no boundary
        raise HTTPException(400, f"Invalid request: {error.message}") from None
    except (ValueError, RecursionError):
        raise HTTPException(400, f"Invalid request: expected {kind} in UTF-8") from None
    raise HTTPException(415, "Invalid request: send application/json or a form")


def _fields(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a form's values: q[], q[0], those of _LISTS and several q are lists; of other fields, the first counts."""
    values, lists = dict[str, Any](), {*_LISTS}
    for field, value in pairs:
        name, bracket, _ = field.partition("[")
        if bracket or (name == "q" and name in values):
            lists.add(name)
        values.setdefault(name, []).append(value.replace("\r\n", "\n"))  # forms write \r\n
    return {name: found if name in lists else found[0] for name, found in values.items()}


def _in_words(error: ValidationError) -> str:
    """Return a description of the first error, without the sent value."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    name = str(first["loc"][0]) if first["loc"] else "body"
    if first["type"] in ("missing", "string_too_short"):
        return f"Invalid request: missing {name} parameter"
    return f"Invalid request: {name}: {first['msg']}"
