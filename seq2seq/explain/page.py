"""One HTML file that shows an explanation: everything inlined, nothing fetched. Knows no model and no translator."""

import base64
import hashlib
import html
import json
import re
from functools import lru_cache
from importlib.resources import files
from string import Template
from typing import Any

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([\w-]+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|const|class) (\w+)", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)
_STYLES = ("viewer.css", "page.css")


def write_page(explanation: dict[str, Any], walks: list[dict[str, Any]], beams: dict[str, Any]) -> str:
    """Give the page of one sentence, a whole HTML document that a browser opens from a file, without any network.

    Its Content-Security-Policy lets run the one script and the style sheet that it was written with, and nothing else.

    Args:
        explanation: what `Explanation.to_plain` gives.
        walks: of the attentions to be followed step by step, what `steps.walk` gives; may be empty.
        beams: what `steps.watch_beams` gives; may be empty.
    """
    script, styles = _script("page"), "\n".join(map(_read, _STYLES))
    rules = {"default-src": "'none'", "script-src": _hash(script), "style-src": _hash(styles)}
    rules |= {"base-uri": "'none'", "form-action": "'none'"}
    return Template(_read("page.html")).substitute(
        policy="; ".join(f"{name} {value}" for name, value in rules.items()),
        title=html.escape(f"Attention: {explanation['source']}"),
        styles=styles,
        script=script,
        data=_embed({"explanation": explanation, "walks": walks, "beams": beams}),
    )


def _embed(data: object) -> str:
    """JSON that ends no script element and begins no comment, whatever text is in it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@lru_cache(maxsize=8)
def _script(entry: str) -> str:
    """The module entry and all that it needs as one script, in the order in which they need each other.

    Modules cannot be imported from file://, so each becomes a function that returns what it exports. They have to
    write `import { a, b } from "./file.js";`, and `export` before a function, class or constant.
    """
    parts: dict[str, str] = {}

    def add(name: str) -> None:
        if name in parts:
            return
        source = _read(f"{name}.js")
        for _, needed in _IMPORT.findall(source):
            add(needed)
        names = ", ".join(name for _, name in _EXPORT.findall(source))
        body = _EXPORT.sub(r"\1 \2", _IMPORT.sub(r"const \1 = \2_js;", source))
        left = _LEFT.search(body)
        assert left is None, f"{name}.js cannot be inlined: {left and left.group()}"
        parts[name] = f"const {name}_js = (() => {{\n{body}\nreturn {{ {names} }};\n}})();\n"

    add(entry)
    return "\n".join(parts.values())


@lru_cache(maxsize=32)
def _read(name: str) -> str:
    return (files("seq2seq.explain") / "viewer" / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    """How a Content-Security-Policy names an inline script or style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
