"""Compare an answer with its description in /openapi.json."""

from typing import Any

import httpx
from jsonschema import Draft202012Validator


def check_answer(api: dict[str, Any], answer: httpx.Response) -> None:
    """Refuse an answer that its route's description does not allow.

    Raises:
        KeyError: the description has no such route, method, status or media type.
        ValidationError: the body has another shape.
    """
    responses = api["paths"][answer.request.url.path][answer.request.method.lower()]["responses"]
    response = responses["200" if answer.is_success else "default"]
    kind = answer.headers["content-type"].partition(";")[0]
    schema = {**response["content"][kind]["schema"], "components": api["components"]}
    Draft202012Validator(schema).validate(answer.json() if kind == "application/json" else answer.text)
