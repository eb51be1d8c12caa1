"""A Sphinx extension that generates parts of the site: the commands, the modules, and the live model.

`reference/commands.md` and the pages in `reference/python/` contain a title and an introduction; the extension appends
the rest. Each page in `reference/python/` is named after a package in `seq2seq/`. The extension writes the live page
into the finished site. It does not write the settings: `python -m docs.settings` writes `settings.md`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import seq2seq

if TYPE_CHECKING:
    from docutils.nodes import Node
    from sphinx.application import Sphinx

COMMANDS = "reference/commands"
PYTHON = "reference/python/"
LIVE_PAGE = "model.html"  # docs/live.md links to it
REPOSITORY = Path(__file__).parents[2]
MODEL = REPOSITORY / "data/model"


def setup(app: "Sphinx") -> dict[str, Any]:
    """Connect the generators to Sphinx's events."""
    app.connect("env-get-outdated", lambda app, env, *_: [name for name in env.found_docs if _is_generated(name)])
    app.connect("source-read", append_reference)
    app.connect("source-read", download_outside_pages)
    app.connect("autodoc-process-docstring", escape_docstring, priority=100)  # before Napoleon reads the sections
    app.connect("doctree-read", replace_hyphens)
    app.connect("build-finished", write_live_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def append_reference(app: "Sphinx", docname: str, source: list[str]) -> None:
    """Append the generated part to a page, if the page has a generated part."""
    if docname == COMMANDS:
        source[0] += commands_markdown()
    elif _is_generated(docname):
        source[0] += package_markdown(docname.removeprefix(PYTHON))


def _is_generated(docname: str) -> bool:
    return docname == COMMANDS or (docname.startswith(PYTHON) and docname != f"{PYTHON}index")


def download_outside_pages(app: "Sphinx", docname: str, source: list[str]) -> None:
    """Turn links to Markdown files outside docs/ into downloads, as MyST does for links to other types of files."""
    folder = Path(app.srcdir, docname).parent

    def replace(link: re.Match[str]) -> str:
        is_page = (folder / link[1]).resolve().is_relative_to(app.srcdir)
        return link[0] if is_page else f"](path:{link[1]})"

    source[0] = re.sub(r"\]\((\.\./[^)#\s]+\.md)(?:#[^)]*)?\)", replace, source[0])


def commands_markdown() -> str:
    """Return usage, explanation and options of every command of `seq2seq`, from the definitions that --help shows."""
    import typer

    from seq2seq.cli import app

    return "\n".join(
        line for name, command in _commands(typer.main.get_command(app)) for line in _command(name, command)
    )


def _commands(command: Any, name: str = "seq2seq") -> Iterator[tuple[str, Any]]:
    """Yield the commands with their full names; a group's commands follow each other."""
    for part, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{name} {part}")
    if not hasattr(command, "commands"):
        yield name, command


def _command(name: str, command: Any) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    yield from ("", f"## {name}", "", "```text", command.get_usage(context).removeprefix("Usage: "), "```", "")
    yield _markdown(command.help)
    panels: dict[str, list[str]] = {}
    for parameter in command.get_params(context):
        if record := parameter.get_help_record(context):
            panel = getattr(parameter, "rich_help_panel", None) or "Options"
            flags, meaning = (text.replace("|", "\\|") for text in record)
            panels.setdefault(panel, []).append(f"| `{flags}` | {_markdown(meaning)} |")
    for panel, rows in panels.items():
        yield from ("", f"| {panel} | |", "|---|---|", *rows)


def _markdown(text: str) -> str:
    """Return terminal markup as Markdown: bold texts and options become code, other text looks the same."""
    text = re.sub(r"\[/?bold\]", "`", text).replace("\\[", "[")
    text = re.sub(r"\[dim\](.*?)\[/dim\]", r"[\1]", text)
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part[:1] == "`" else _plain(part) for part in parts)


def _plain(text: str) -> str:
    text = re.sub(r"([*_<>\[\]$])", r"\\\1", text)
    return re.sub(r"(?<!\S)--[a-z]\S*\b|(?<!\S)--(?!\S)", lambda found: f"`{found[0]}`", text)


def package_markdown(page: str) -> str:
    """Return the directives that document every module of a package; "core": the modules outside all packages."""
    folder = REPOSITORY / "seq2seq"
    files = folder.glob("*.py") if page == "core" else (folder / page).rglob("*.py")
    paths = sorted(path.relative_to(REPOSITORY).with_suffix("") for path in files if path.stem != "__init__")
    return "\n".join(_module(".".join(path.parts)) for path in paths)


def _module(name: str) -> str:
    directive = f".. automodule:: {name}\n   :exclude-members: {', '.join(seq2seq.__all__)}"  # index.md documents these
    return f"\n## {name}\n\n```{{eval-rst}}\n{directive}\n```"


def escape_docstring(app: "Sphinx", what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape characters that are markup in reStructuredText: docstrings are plain text with `code` in it."""
    text = re.sub(r"^(Alias for field|Create new instance) .*", "", "\n".join(lines), flags=re.M)  # NamedTuple's own
    parts = re.split(r"(`[^`]*`)", text)
    escaped = [f"{part}\\ " if part[:1] == "`" else re.sub(r"([\\*|]|(?<=\w)_(?!\w))", r"\\\1", part) for part in parts]
    lines[:] = "".join(escaped).splitlines()


def replace_hyphens(app: "Sphinx", doctree: "Node") -> None:
    """Put a dash between a parameter and its meaning, where Sphinx writes two hyphens."""
    from docutils import nodes

    for text in list(doctree.findall(nodes.Text)):
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" – "))


def write_live_page(app: "Sphinx", error: Exception | None) -> None:
    """Write the page in which the published model translates and shows its attention."""
    if error is None and app.builder.format == "html":
        from seq2seq.apps.explain.model_page import export_html

        page = Path(app.outdir) / LIVE_PAGE
        page.unlink(missing_ok=True)
        export_html(MODEL, page)
