"""HTML pages with inline scripts and styles, and the page of a sentence with all that is shown of it."""

import base64
import contextlib
import hashlib
import html
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.resources import files
from string import Template
from typing import Any

from seq2seq.apps.explain.explanation import DECIMALS, PARTS, Explanation, explain, plain, require_engine
from seq2seq.apps.explain.interventions import Interventions, changed, contrast
from seq2seq.apps.explain.steps import beam_steps, head_steps
from seq2seq.errors import UserError
from seq2seq.model.transformer import Transformer
from seq2seq.model.variants.trace import aligning_layer
from seq2seq.settings.search import SearchConfig
from seq2seq.translate.translator import Translator

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "(\./|\.\./viewer/)([\w-]+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|const|class) (\w+)", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def write_page(data: dict[str, Any]) -> str:
    """Return `Assembly.data`, whose "walks" and "beams" may be empty, as an HTML document that needs no network."""
    title = html.escape(f"Attention: {data['explanation']['source']}")
    return fill("page.html", ("viewer.css", "page.css"), title, "page", data=embed(data))


def fill(template: str, style_sheets: Sequence[str], title: str, entry: str | None = None, **values: str) -> str:
    """Return a page's HTML, as `frame` does, from files of `viewer/`; without entry, the page may not run any script.

    title, and the values for the placeholders of the template, are HTML: the caller must escape texts in them.
    """
    body = Template(_read(template)).substitute(values)
    return frame(body, [*map(_read, style_sheets)], title, script(entry) if entry else "")


def frame(body: str, style_sheets: Sequence[str], title: str, code: str, *, worker: bool = False) -> str:
    """Return a page's HTML, whose Content-Security-Policy allows only these styles and this code, by their hashes.

    body and title are HTML. The code is a module at the end of the page; empty: none. With worker, the page may start a
    Web Worker from its own text.
    """
    styles = "\n".join(style_sheets)
    body += f'<script type="module">{code}</script>\n' if code else ""
    rules = {
        "default-src": "'none'",
        "script-src": _hash(code) if code else "'none'",
        "style-src": _hash(styles),
    }
    rules |= {"worker-src": "blob:"} if worker else {}
    rules |= {"base-uri": "'none'", "form-action": "'none'"}
    policy = "; ".join(f"{name} {value}" for name, value in rules.items())
    return Template(_read("frame.html")).substitute(policy=policy, title=title, styles=styles, body=body)


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


@dataclass(frozen=True)
class Assembly:
    """Everything that is shown of one sentence.

    Attributes:
        translator: the translator that is explained; with interventions, the changed one.
        explanation: its attention, as tensors.
        data: JSON values, as in a page: "explanation" (the fields of attention.json), "walks" (the steps of some heads)
            "beams" (the steps of the search; may be empty), and "contrast" if it was asked for.
    """

    translator: Translator
    explanation: Explanation
    data: dict[str, Any]


def assemble(
    translator: Translator,
    source: str,
    target: str | None = None,
    interventions: Interventions | None = None,
    settings: SearchConfig | None = None,
    *,
    head: tuple[int, int] | None = None,
    with_beams: bool = True,
    instead: tuple[int, str] | None = None,
) -> Assembly:
    """Explain a sentence, compare a changed model with the unchanged one, and show the steps of heads and of a search.

    Args:
        translator: must have one model and the PyTorch engine.
        source: one sentence.
        target: a translation; None: the best one that the model finds.
        interventions: changes to the model. If they change anything, `data["explanation"]` also has `interventions`,
            and `unchanged` with the unchanged model's `target` and the log-probability of this target (`log_prob`,
            nats).
        settings: settings of the search; None: the translator's settings.
        head: layer and head, from 0, whose steps are shown in every part of the model that has this layer; None: all
            heads of the first encoder layer, the first decoder layer and the aligning cross-attention.
        instead: a target word's index, and a word to compare it with; None: `data` has no "contrast".
        with_beams: whether the steps of the search are shown. They are empty if the settings ask for a search that has
            no steps to show.
    """
    explained = changed(translator, interventions, source) if interventions else translator
    explanation = explain(explained, source, target, settings=settings)
    shown = explanation.to_plain()
    if interventions:
        usual = explain(translator, source, target, settings=settings)
        unchanged = {"target": usual.subject.target, "log_prob": round(math.fsum(usual.log_probs), DECIMALS)}
        shown |= {"interventions": asdict(interventions), "unchanged": unchanged}
    walks = [head_steps(explained, explanation.subject, *names).to_plain() for names in _heads_to_show(explained, head)]
    beams: dict[str, Any] = {}
    if with_beams:
        with contextlib.suppress(UserError):  # sampling and mbr have no steps to show
            beams = beam_steps(explained, source, settings)
    data = {"explanation": shown, "walks": walks, "beams": beams}
    if instead is not None:
        data["contrast"] = plain(contrast(explained, explanation.subject, *instead), DECIMALS)
    return Assembly(explained, explanation, data)


def _heads_to_show(translator: Translator, head: tuple[int, int] | None) -> Iterator[tuple[str, int, int]]:
    """Yield part, layer and head of the heads whose steps are shown; only a Transformer has such heads."""
    _, model = require_engine(translator)
    if not isinstance(model, Transformer):
        return
    num_decoder = len(model.decoder_layers)
    if head is None:
        for part, layer in {"encoder": 0, "decoder": 0, "cross": aligning_layer(num_decoder)}.items():
            yield from ((part, layer, number) for number in range(model.config.num_heads))
        return
    sizes = {"encoder": len(model.encoder_layers), "decoder": num_decoder, "cross": num_decoder}
    for part in [part for part, size in sizes.items() if head[0] < size] or PARTS:
        yield part, *head
