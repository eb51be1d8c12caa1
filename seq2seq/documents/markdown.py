"""Markdown (CommonMark, tables, strikethrough), parsed by markdown-it: text is spliced in place, all markup stays.

Kept as they are: code, HTML, images, front matter, link targets and link definitions.
"""

import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

from seq2seq.documents.keeping import BOUNDARY, KEPT, OBJECT, Translate
from seq2seq.errors import UserError

_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)\n.*?\n\1(?:\n|\Z)", re.DOTALL)
_TARGET = r"\((?:[^()\\\n]|\\.|\([^()\n]*\))*\)"
_MARKUP = re.compile(
    rf"""
    (?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)             # code
  | <(?:https?://|mailto:)[^<>\s]*> | !\[[^\]]*\](?:{_TARGET}|\[[^\]]*\])?  # addresses, images
  | (?P<around>
        </?[A-Za-z][^<>]*> | <!--.*?-->                          # HTML
      | \[(?=[^\[\]]*\](?:{_TARGET}|\[[^\]]+\]))                # where a link begins
      | \](?:{_TARGET}|\[[^\]]+\])                              # and where it ends
      | (?<!\s)\*+ | \*+(?!\s) | ~~ | (?<!\w)_+ | _+(?!\w)      # emphasis
    )
  | \[[^\]]*\](?:\[\])?                                         # a link by its text alone, the box of a task
  | \\[^\w\s]                                                  # escapes
    """,
    re.VERBOSE | re.DOTALL,
)
_SPECIAL = re.compile(r"[\\`*\[\]<|]|~~|(?<!\w)_|_(?!\w)")  # in a translation, but not in its source: to be escaped
_BLOCK_START = re.compile(r"([-+=#>]|\d+[.)])(?=\s|[-=#]|$)")  # what would make a list, a heading or a quotation
_OPAQUE = ("fence", "code_block", "html_block", "code_inline", "html_inline", "image")

Span = tuple[int, int]
Piece = tuple[str, int, int]  # what stands before a text, where the text begins and ends


def translate_document(text: str, translate: Translate, src_lang: str, tgt_lang: str) -> str:
    """Translate paragraphs, headings, list items and table cells, each written in one line.

    Raises:
        UserError: the place of a text cannot be found, or the translation would have other markup.
    """
    segments = [pieces for span in _find_texts(text) if (pieces := _split(text, *span))]
    sources = ["".join(_read(text, *piece) for piece in pieces) for pieces in segments]
    parts, end = [], 0
    for pieces, translation in zip(segments, translate(sources), strict=True):
        for (_, start, next_end), part in zip(pieces, re.split(f"[{BOUNDARY}{OBJECT}]", translation), strict=True):
            parts += [text[end:start], _escape(part, text[start:next_end])]
            end = next_end
    translated = "".join([*parts, text[end:]])
    if _skeleton(_parse(translated)[1]) != _skeleton(_parse(text)[1]):
        raise UserError("its translation would have other markup than it has: simplify its inline markup")
    return translated


def _parse(text: str) -> tuple[int, list[Token]]:
    """Give the length of the front matter and the tokens of what follows it."""
    front = _FRONT_MATTER.match(text)
    start = front.end() if front else 0
    return start, MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text[start:])


def _find_texts(text: str) -> Iterator[Span]:
    """Find every text that blocks hold, from one hard line break to the next."""
    end, tokens = _parse(text)
    offsets = [end, *(match.end() for match in re.compile("\n").finditer(text, end)), len(text)]
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "tr_open" and token.map:
            end = offsets[token.map[0]]
        elif token.type == "inline" and before and before.type in ("th_open", "td_open"):
            cell = token.content.replace("|", r"\|")
            start = _found(text.find(cell, end), cell)
            end = start + len(cell)
            yield start, end
        elif token.type == "inline" and token.map:
            yield from _find_lines(text, token.content.split("\n"), offsets[token.map[0] :])


def _find_lines(text: str, lines: list[str], offsets: list[int]) -> Iterator[Span]:
    """Find lines, each the last thing in its line of the document, and join what no hard break divides."""
    begin = None
    for number, line in enumerate(lines):
        content = line.strip()
        start = _found(text.rfind(content, offsets[number], offsets[number + 1]), content)
        begin = start if begin is None else begin
        if line.endswith(("  ", "\\")) or number == len(lines) - 1:
            yield begin, start + len(content) - (line.endswith("\\") and number < len(lines) - 1)
            begin = None


def _found(position: int, content: str) -> int:
    if position < 0:
        raise UserError(f"the place of {content!r:.60} was not found: simplify its markup")
    return position


def _split(text: str, start: int, end: int) -> list[Piece]:
    """Cut a span at its markup; what has no words is left out at both ends."""
    pieces, before = [], ""
    for match in _MARKUP.finditer(text, start, end):
        pieces.append((before, start, match.start()))
        before, start = BOUNDARY if match["around"] else OBJECT, match.end()
    pieces.append((before, start, end))
    worded = [i for i, (_, start, end) in enumerate(pieces) if text[start:end].strip()]
    return [("", *pieces[worded[0]][1:]), *pieces[worded[0] + 1 : worded[-1] + 1]] if worded else []


def _read(text: str, before: str, start: int, end: int) -> str:
    """Read a piece as one line, without the marks of a quotation in its further lines."""
    return before + re.sub(r"\s*\n[\s>]*", " ", text[start:end])


def _escape(text: str, source: str) -> str:
    """Escape what would be markup and was none in the source."""
    parts = KEPT.split(text)
    parts[::2] = [
        _SPECIAL.sub(lambda match: match[0] if match[0] in source else f"\\{match[0]}", p) for p in parts[::2]
    ]
    escaped = "".join(parts)
    start = _BLOCK_START.match(escaped.lstrip())
    if start and not _BLOCK_START.match(source.lstrip()):
        escaped = escaped.replace(start[0], f"{start[0][:-1]}\\{start[0][-1]}", 1)
    return escaped


def _skeleton(tokens: list[Token]) -> list[tuple]:
    """List all markup: everything but text and where its lines end."""
    return [
        (token.type, token.tag, token.markup, token.attrs, token.info, _skeleton(token.children or []))
        + ((token.content,) if token.type in _OPAQUE else ())
        for token in tokens
        if token.type not in ("text", "softbreak")
    ]
