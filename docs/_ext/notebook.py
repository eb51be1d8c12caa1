"""Turn a page into a Jupyter notebook.

A `python` block is a code cell. A `text` block directly after it is the cell's output. Everything else is Markdown.
"""

import json
import re
from typing import Any, NamedTuple

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


def _plain(number: int, cell: Cell) -> dict[str, Any]:
    lines = cell.source.rstrip("\n").splitlines(keepends=True)
    plain: dict[str, Any] = {"cell_type": cell.kind, "id": f"cell-{number}", "metadata": {}, "source": lines}
    if cell.kind == "code":
        printed = {"name": "stdout", "output_type": "stream", "text": cell.output.splitlines(keepends=True)}
        plain |= {"execution_count": None, "outputs": [printed] if cell.output else []}
    return plain
