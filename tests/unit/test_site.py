"""The documentation site: its table of contents, and the parts that docs/_ext/reference.py generates."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import reference
import typer

from seq2seq.cli import app
from tests.documented import FENCED, PAGES, REPOSITORY

DOCS = REPOSITORY / "docs"
NAMES = {path.relative_to(DOCS).with_suffix("").as_posix() for path in PAGES}
PACKAGES_WITHOUT_PAGE = {"cli", "serve"}  # docs/reference/commands.md and docs/serving.md are about these


def entries() -> Iterator[str]:
    """Yield the names of all pages that a table of contents lists."""
    for path in PAGES:
        for language, block in FENCED.findall(path.read_text(encoding="utf-8")):
            if language == "{toctree}":
                lines = [line for line in block.splitlines() if line and not line.startswith(":")]
                yield from ((path.parent / line).relative_to(DOCS).as_posix() for line in lines)


def commands(command: Any, name: str = "seq2seq") -> Iterator[str]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name
    for part, subcommand in (inner or {}).items():
        yield from commands(subcommand, f"{name} {part}")


def test_a_table_of_contents_lists_every_page_once() -> None:
    assert sorted(entries()) == sorted(NAMES - {"index"}), "list the page in docs/index.md"


def test_no_line_of_prose_is_left_out_as_a_comment() -> None:
    prose = {path.name: FENCED.sub("", path.read_text(encoding="utf-8")) for path in PAGES}
    assert [name for name, text in prose.items() if re.search(r"^[ \t]*%", text, re.M)] == []


def test_every_package_has_a_page() -> None:
    packages = {path.parent.name for path in (REPOSITORY / "seq2seq").glob("*/__init__.py")}
    pages = {name.removeprefix("reference/python/") for name in NAMES if name.startswith("reference/python/")}
    assert pages == packages - PACKAGES_WITHOUT_PAGE | {"core", "index"}


def test_the_reference_has_every_command_and_option() -> None:
    text = reference.commands_markdown()
    assert re.findall(r"^## (.*)$", text, re.M) == list(commands(typer.main.get_command(app)))
    assert len(re.findall(r"^\| `--debug` \|", text, re.M)) >= 10
    assert "| `--early-stopping / --no-early-stopping` |" in text
    assert not re.search(r"\[/?(bold|dim)\]", text)  # markup of the terminal


@pytest.mark.slow
def test_the_live_page_is_the_published_model(tmp_path: Path) -> None:
    app: Any = SimpleNamespace(outdir=str(tmp_path), builder=SimpleNamespace(format="html"))
    for _ in range(2):  # a site is built again and again
        reference.write_live_page(app, None)
    page = (tmp_path / reference.LIVE_PAGE).read_text(encoding="utf-8")
    assert "<title>English to Spanish</title>" in page
    assert f'src="{reference.LIVE_PAGE}#' in (DOCS / "live.md").read_text(encoding="utf-8")
