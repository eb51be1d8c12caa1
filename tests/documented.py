"""The commands in the code blocks of the two README.md and of the pages of docs/, fenced or indented."""

import re
import shlex
import textwrap
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PAGES = tuple(sorted(path for path in (REPOSITORY / "docs").rglob("*.md") if "_build" not in path.parts))
DOCUMENTS = (REPOSITORY / "README.md", REPOSITORY / "benchmarks/README.md", *PAGES)
SHELL = ("", "bash", "sh", "console")  # the languages of blocks that hold commands; "" is a block without a language
OPERATORS = ("&&", ";", "|")
FENCED = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.M | re.S)
INDENTED = re.compile(r"(?<=\n\n)(?:    \S.*\n(?:     *\S.*\n)*)+")


@dataclass(frozen=True)
class Block:
    """A code block and the document that it is in; an indented one has no language."""

    document: str
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """One command: its words without redirections, and the text by which tables of tests refer to it."""

    document: str
    text: str
    words: tuple[str, ...]

    def starts_with(self, *words: str) -> bool:
        return self.words[: len(words)] == words


def blocks() -> list[Block]:
    """Return all code blocks, in the order of the documents; of a document the indented ones last."""
    result = []
    for path in DOCUMENTS:
        name, text = path.relative_to(REPOSITORY).as_posix(), path.read_text(encoding="utf-8")
        result += [Block(name, *parts) for parts in FENCED.findall(text)]
        result += [Block(name, "", textwrap.dedent(part)) for part in INDENTED.findall(FENCED.sub("", text))]
    return result


def commands() -> list[Command]:
    """Return the commands of all blocks that hold commands, once each."""
    all_commands = (command for block in blocks() if block.language in SHELL for command in _commands_of(block))
    return list({command.text: command for command in all_commands}.values())


def settings_of(command: Command) -> list[str]:
    """Return the overrides of a training command; of a sweep, the overrides of its first run."""
    overrides = [word for word in command.words if "=" in word and not word.startswith("-")]
    if "--multirun" not in command.words:
        return overrides
    return [re.sub(r"^([\w./@]+)=([^,\[\]{}()]+),.*$", r"\1=\2", override) for override in overrides]


def _commands_of(block: Block) -> list[Command]:
    lines = re.sub(r"\\\n\s*", "", block.text).splitlines()
    if block.language == "console":  # the other lines are output
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [Command(block.document, *part) for line in lines for part in _split(line)]


def _split(line: str) -> list[tuple[str, tuple[str, ...]]]:
    """Split a line at && ; and |; drop its comment."""
    parser = shlex.shlex(line.replace("…", ""), posix=False, punctuation_chars=";&|<>")
    parser.whitespace_split, parser.commenters = True, "#"
    parts: list[list[str]] = [[]]
    for token in parser:
        if token in OPERATORS:
            parts.append([])
        else:
            parts[-1].append(token)
    return [(" ".join(part), _without_redirections(part)) for part in parts if part]


def _without_redirections(tokens: list[str]) -> tuple[str, ...]:
    files = {index + 1 for index, token in enumerate(tokens) if token in ("<", ">")}
    kept = [token for index, token in enumerate(tokens) if token not in ("<", ">") and index not in files]
    return tuple(shlex.split(" ".join(kept)))
