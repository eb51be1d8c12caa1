"""Holds an answer against what /openapi.json says of it."""

from typing import Any

import httpx
from jsonschema import Draft202012Validator


def check_answer(api: dict[str, Any], answer: httpx.Response) -> None:
    """Refuse an answer that its route's description does not have.

    Raises:
        KeyError: the description has no such route, method, status or media type.
        ValidationError: the body has another shape.
    """
    told = api["paths"][answer.request.url.path][answer.request.method.lower()]["responses"][str(answer.status_code)]
    kind = answer.headers["content-type"].partition(";")[0]
    schema = {**told["content"][kind]["schema"], "components": api["components"]}
    Draft202012Validator(schema).validate(answer.json() if kind == "application/json" else answer.text)
