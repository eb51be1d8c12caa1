"""Writes docs/why.ipynb from docs/why.md; with --run, first runs the code of why.md and draws its pictures.

    python -m docs._ext.why          # the notebook alone
    python -m docs._ext.why --run    # data/model gives the outputs and the pictures

In why.md, a `python` block is a code cell. A `text` block directly after a `python` block is the output of this cell.
Everything else is Markdown.
"""

import argparse
import contextlib
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).resolve().parents[1]
TEXT, NOTEBOOK, PICTURES = DOCS / "why.md", DOCS / "why.ipynb", DOCS / "pictures"
_CODE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)


class Cell(NamedTuple):
    """A cell of the notebook: Markdown, or code and its printed output."""

    kind: str
    source: str
    output: str = ""


def cells(text: str) -> list[Cell]:
    """Return the cells of a Markdown text, in order."""
    found, end = [], 0
    for match in _CODE.finditer(text):
        found += [Cell("markdown", text[end : match.start()].strip("\n")), Cell("code", match[1], match[2] or "")]
        end = match.end()
    found.append(Cell("markdown", text[end:].strip("\n")))
    return [cell for cell in found if cell.source]


def notebook(text: str) -> str:
    """Return a Markdown text as a notebook (nbformat 4.5) in JSON."""
    plain = {
        "cells": [_plain(number, cell) for number, cell in enumerate(cells(text))],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"


def with_outputs(text: str, outputs: Sequence[str]) -> str:
    """Return a Markdown text with new outputs after its `python` blocks; an empty output adds no `text` block."""
    left = iter(outputs)

    def block(match: re.Match[str]) -> str:
        output = next(left)
        return f"```python\n{match[1]}```\n" + (f"\n```text\n{output}```\n" if output else "")

    return _CODE.sub(block, text)


def run(text: str) -> tuple[list[str], dict[str, Any]]:
    """Run all `python` blocks in order; return the printed output of each, and all names that the blocks define."""
    names: dict[str, Any] = {"__name__": "why"}
    outputs = []
    for number, cell in enumerate(one for one in cells(text) if one.kind == "code"):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(cell.source, f"why.md, block {number + 1}", "exec"), names)
        outputs.append(printed.getvalue())
    return outputs, names


def _plain(number: int, cell: Cell) -> dict[str, Any]:
    lines = cell.source.rstrip("\n").splitlines(keepends=True)
    plain: dict[str, Any] = {"cell_type": cell.kind, "id": f"cell-{number}", "metadata": {}, "source": lines}
    if cell.kind == "code":
        printed = {"name": "stdout", "output_type": "stream", "text": cell.output.splitlines(keepends=True)}
        plain |= {"execution_count": None, "outputs": [printed] if cell.output else []}
    return plain


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description="Write docs/why.ipynb from docs/why.md.")
    parser.add_argument("--run", action="store_true", help="run the code, write its outputs, draw the pictures")
    arguments = parser.parse_args()
    text = TEXT.read_text(encoding="utf-8")
    if arguments.run:
        from docs._ext.why_pictures import draw_all

        outputs, names = run(text)
        text = with_outputs(text, outputs)
        TEXT.write_text(text, encoding="utf-8")
        draw_all(names["translator"], PICTURES)
    NOTEBOOK.write_text(notebook(text), encoding="utf-8")


if __name__ == "__main__":
    main()
