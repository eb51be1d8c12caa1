"""The shapes of answers, which OpenAPI tells to programs; makes no answers."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, RootModel

_MEANINGS = {
    400: "The request is wrong.",
    403: "The key is wrong, or the page or the server's name is not known.",
    408: "The request did not arrive in time.",
    413: "The request is too large.",
    415: "The request is neither JSON nor a form.",
    429: "Too much is waiting: try again after Retry-After seconds.",
    500: "Something went wrong on the server.",
    501: "This server cannot do it.",
    503: "The server could not answer in time, or is being stopped.",
}
Part = Literal["encoder", "decoder", "cross"]


class _Answer(BaseModel):
    """An answer without any further fields."""

    model_config = ConfigDict(extra="forbid")


class ErrorAnswer(_Answer):
    """What went wrong, in words."""

    error: str


class DetectedLanguage(_Answer):
    """A language that a text may be in."""

    confidence: float
    language: str


class DetectAnswer(RootModel[list[DetectedLanguage]]):
    """The languages that a text may be in, likeliest first."""


class TranslateAnswer(_Answer):
    """Of one text its translation; of a list of texts a list. The other fields are there if they were asked for."""

    translatedText: str | list[str]  # noqa: N815
    alternatives: list[str] | list[list[str]] = []
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] = []  # noqa: N815


class ExplainedWord(_Answer):
    """A word and the numbers of its pieces."""

    text: str
    pieces: list[int]


class ExplainAnswer(_Answer):
    """What the model attends to; docs/attention.md tells every field."""

    version: int
    source: str
    target: str
    translated: bool
    architecture: Literal["transformer", "recurrent"]
    pieces: dict[Literal["source", "target_in", "target_out"], list[str]]
    words: dict[Literal["source", "target"], list[ExplainedWord]]
    attention: dict[Part, list[list[list[list[float]]]]]
    by_word: dict[Part, list[list[list[list[float]]]]]
    heads: dict[Part, list[list[dict[str, float]]]]
    alignment: list[tuple[int, int]]
    log_probs: list[float]
    walks: list[dict[str, Any]]
    beams: dict[str, Any]


class Language(_Answer):
    """A language by its code and its English name."""

    code: str
    name: str


class TranslatedLanguage(Language):
    """A language and the codes of those that it is translated into."""

    targets: list[str]


class LanguagesAnswer(RootModel[list[TranslatedLanguage]]):
    """The model's two languages, the source first."""


class SettingsAnswer(_Answer):
    """What a page needs to know of the server."""

    charLimit: int  # noqa: N815
    frontendTimeout: int  # noqa: N815
    apiKeys: bool  # noqa: N815
    keyRequired: bool  # noqa: N815
    suggestions: bool
    filesTranslation: bool  # noqa: N815
    supportedFilesFormat: list[str]  # noqa: N815
    language: dict[Literal["source", "target"], Language]
    alternatives: int
    explainLimit: int  # noqa: N815


class HealthAnswer(_Answer):
    """The server works."""

    status: Literal["ok"]


def described(shape: type[BaseModel] | str, *errors: int) -> dict[int | str, dict[str, Any]]:
    """Describe a route's answers to OpenAPI: with status 200 a shape, or text of a media type, and errors."""
    text = {"content": {shape: {"schema": {"type": "string"}}}} if isinstance(shape, str) else {"model": shape}
    told: dict[int | str, dict[str, Any]] = {200: {"description": "The answer.", **text}}
    return told | {status: {"description": _MEANINGS[status], "model": ErrorAnswer} for status in errors}
