"""HTML pages with inline scripts and styles, and the page of an explanation."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from string import Template
from typing import Any

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "(\./|\.\./viewer/)([\w-]+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|const|class) (\w+)", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)
_STYLES = ("viewer.css", "page.css")


def write_page(data: dict[str, Any]) -> str:
    """Return the page of one sentence: an HTML document that a browser can open from a file, without network.

    The page's Content-Security-Policy allows only its own script and style sheet, by their hashes.

    Args:
        data: `Assembly.data`; "walks" and "beams" may be empty.
    """
    title = html.escape(f"Attention: {data['explanation']['source']}")
    return fill("page.html", _STYLES, title, "page", data=embed(data))


def fill(template: str, style_sheets: Sequence[str], title: str, entry: str | None = None, **values: str) -> str:
    """Return a page's HTML, as `frame` does.

    Args:
        template: file of `viewer/`: the content of <body>, with a placeholder for each of `values`.
        style_sheets: files of `viewer/`.
        title: HTML, so the caller must escape texts in it.
        entry: entry module of `viewer/`, for `script`; None: the page may not run any script.
        values: HTML for each placeholder, so the caller must escape texts in them.
    """
    body = Template(_read(template)).substitute(values)
    return frame(body, [*map(_read, style_sheets)], title, [script(entry)] if entry else [])


def frame(body: str, style_sheets: Sequence[str], title: str, scripts: Sequence[str], *, worker: bool = False) -> str:
    """Return a page's HTML, whose Content-Security-Policy allows only these style sheets and scripts, by their hashes.

    Args:
        body: content of <body>.
        style_sheets: CSS.
        title: HTML, as body.
        scripts: JavaScript; the last one is a module at the end of the page, the others run before anything is drawn.
        worker: whether the page may start a Web Worker from its own text.
    """
    styles = "\n".join(style_sheets)
    head = "".join(f"\n<script>{code}</script>" for code in scripts[:-1])
    body += "".join(f'<script type="module">{code}</script>\n' for code in scripts[-1:])
    rules = {
        "default-src": "'none'",
        "script-src": " ".join(map(_hash, scripts)) or "'none'",
        "style-src": _hash(styles),
    }
    rules |= {"worker-src": "blob:"} if worker else {}
    rules |= {"base-uri": "'none'", "form-action": "'none'"}
    policy = "; ".join(f"{name} {value}" for name, value in rules.items())
    return Template(_read("frame.html")).substitute(policy=policy, title=title, styles=styles, head=head, body=body)


def embed(data: object) -> str:
    """Return JSON for a script element; no text in the JSON can end the element or begin a comment."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@lru_cache(maxsize=8)
def script(entry: str, folder: str = "apps/explain/viewer") -> str:
    """Return the entry module and all its imports as one script, in order of dependency.

    Browsers do not import modules from file://, so each module becomes a function that returns its exports. The modules
    must write `import { a, b } from "./file.js";` (or "../viewer/file.js"), and `export` before a function, class or
    constant; no two of them have one name.
    """
    parts: dict[str, str] = {}

    def add(name: str, folder: str) -> None:
        if name in parts:
            return
        source = (files("seq2seq") / folder / f"{name}.js").read_text(encoding="utf-8")
        for _, prefix, needed in _IMPORT.findall(source):
            add(needed, folder if prefix == "./" else "apps/explain/viewer")
        names = ", ".join(name for _, name in _EXPORT.findall(source))
        body = _EXPORT.sub(r"\1 \2", _IMPORT.sub(r"const \1 = \3_js;", source))
        left = _LEFT.search(body)
        assert left is None, f"{name}.js cannot be inlined: {left and left.group()}"
        parts[name] = f"const {name}_js = (() => {{\n{body}\nreturn {{ {names} }};\n}})();\n"

    add(entry, folder)
    return "\n".join(parts.values())


@lru_cache(maxsize=32)
def _read(name: str) -> str:
    return (files("seq2seq.apps.explain") / "viewer" / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    """Return the hash by which a Content-Security-Policy allows an inline script or style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
