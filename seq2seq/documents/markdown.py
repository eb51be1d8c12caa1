"""Markdown (CommonMark, tables, strikethrough), parsed by markdown-it: text is spliced in place, all markup stays.

Code, HTML, images, front matter, link targets and link definitions do not change.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from seq2seq.documents.marked import BREAKS, KEPT, VOID, Document, Kind, Marked, Segment, with_space
from seq2seq.errors import UserError

log = logging.getLogger(__name__)

_LINE_END = r"(?:\r\n?|\n)"
_FRONT_MATTER = re.compile(rf"\A(---|\+\+\+){_LINE_END}.*?{_LINE_END}\1(?:{_LINE_END}|\Z)", re.DOTALL)
_TARGET = r"\((?:[^()\\\n]|\\.|\([^()\n]*\))*\)"
_MARKUP = re.compile(
    rf"""
    (?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)             # code
  | <(?:https?://|mailto:)[^<>\s]*> | !\[[^\]]*\](?:{_TARGET}|\[[^\]]*\])?  # addresses, images
  | (?P<around>
        (?P<html></?[A-Za-z][^<>]*> | <!--.*?-->)
      | (?P<link>\[)(?=[^\[\]]*\](?:{_TARGET}|\[[^\]]+\]))       # where a link begins
      | \](?:{_TARGET}|\[[^\]]+\])                              # and where it ends
      | (?P<emphasis>(?<!\s)\*+ | \*+(?!\s) | ~~ | (?<!\w)_+ | _+(?!\w))
    )
  | \[[^\]]*\](?:\[\])?                                         # a link by its text alone, the box of a task
  | \\[^\w\s]                                                  # escapes
    """,
    re.VERBOSE | re.DOTALL,
)
_SPECIAL = re.compile(r"[\\`*\[\]<|]|~~|(?<!\w)_|_(?!\w)")  # to escape in a translation if the source lacks it
_BLOCK_START = re.compile(r"([-+=#>]|\d+[.)])(?=\s|[-=#]|$)")  # begins a list, a heading or a quotation
_BREAK = re.compile(rf"\s*<(?:{'|'.join(BREAKS)})\b[^<>]*>\s*", re.IGNORECASE)
_TASK = re.compile(r"\[[ xX]\]\s+")  # the box before a task
_PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
_OPAQUE = ("fence", "code_block", "html_block", "code_inline", "html_inline", "image")

Span = tuple[int, int]


def read(text: str, src_lang: str, tgt_lang: str) -> Document[str]:
    """Read paragraphs, headings, list items and table cells; each translation is written in one line.

    A text whose translation would have other markup is not translated, with a warning.

    Raises:
        UserError: the place of a text cannot be found; or, when writing, the document would have other markup.
    """
    front, tokens, environment = _parse(text)
    spans = [_behind_box(text, *span) for span in _find_texts(text, front, tokens)]
    found = [_read(text, *span) for span in spans]

    def write(translations: Sequence[Marked]) -> str:
        parts, end = [], 0
        for (start, next_end), segment, translated in zip(spans, found, translations, strict=True):
            filled = segment.fill(translated)
            written = "".join(_escape(part, segment.marked.text) + (markup or "") for part, markup in filled)
            source = text[start:next_end]
            if _inline_skeleton(written, environment) != _inline_skeleton(source, environment):
                log.warning("not translated, since its translation %r has other markup: %r", written, source)
                written = source
            parts += [text[end:start], written]
            end = next_end
        whole = "".join([*parts, text[end:]])
        if _skeleton(_parse(whole)[1]) != _skeleton(tokens):
            raise UserError("its translation would have other markup than it has: simplify its inline markup")
        return whole

    return Document([segment.marked for segment in found], write)


def _parse(text: str) -> tuple[int, list[Token], dict[str, Any]]:
    """Return the length of the front matter, and the tokens and link definitions of the rest."""
    front = _FRONT_MATTER.match(text)
    start = front.end() if front else 0
    environment: dict[str, Any] = {}
    return start, _PARSER.parse(text[start:], environment), environment


def _find_texts(text: str, end: int, tokens: list[Token]) -> Iterator[Span]:
    """Yield the span of each text of the blocks, up to the next hard line break; tokens are of the text after `end`."""
    offsets = [end, *(match.end() for match in re.compile(_LINE_END).finditer(text, end)), len(text)]
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
    """Find each line at the end of its line in the document; yield the spans of lines, joined up to a hard break."""
    begin = None
    for number, line in enumerate(lines):
        content = line.strip()
        start = _found(text.rfind(content, offsets[number], offsets[number + 1]), content)
        begin = start if begin is None else begin
        if line.endswith(("  ", "\\")) or number == len(lines) - 1:
            yield begin, start + len(content) - (line.endswith("\\") and number < len(lines) - 1)
            begin = None


def _behind_box(text: str, start: int, end: int) -> Span:
    box = _TASK.match(text, start, end)
    return box.end() if box else start, end


def _found(position: int, content: str) -> int:
    if position < 0:
        raise UserError(f"the place of {content!r:.60} was not found: simplify its markup")
    return position


def _read(text: str, start: int, end: int) -> Segment[str]:
    """Read a text and its markup as one line, without the quotation marks `>` of its further lines.

    Markup that encloses nothing includes any blanks around it, and is then read as a space.
    """
    segment: Segment[str] = Segment()
    opened: Counter[str] = Counter()  # emphasis, by its character
    for match in _MARKUP.finditer(text, start, end):
        begin, finish = match.span()
        kind = _find_kind(match, opened)
        if kind is Kind.POINT:
            begin, finish = with_space(text, begin, finish, start, end)
        segment.add_text(_as_line(text[start:begin]))
        markup = text[begin:finish]
        if kind is None:
            segment.add_object(markup)
        elif (kind is Kind.POINT and markup != match[0]) or _BREAK.fullmatch(markup):
            segment.add_break(markup)
        else:
            segment.add_mark(kind, markup)
        start = finish
    segment.add_text(_as_line(text[start:end]))
    return segment


def _find_kind(match: re.Match[str], opened: Counter[str]) -> Kind | None:
    """Return the kind of markup, or None if it is read like a word; `opened` counts the open emphasis."""
    markup, text = match[0], match.string
    if match["html"]:
        name = re.match("</?([A-Za-z][A-Za-z0-9]*)", markup)
        if name is None or markup.endswith("/>") or VOID.fullmatch(name[1].lower()):
            return Kind.POINT
        return Kind.CLOSE if markup.startswith("</") else Kind.OPEN
    if match["emphasis"]:
        ends_word = match.start() > 0 and not text[match.start() - 1].isspace()
        begins_word = match.end() < len(text) and not text[match.end()].isspace()
        if (ends_word and opened[markup[0]]) or not begins_word:
            opened[markup[0]] -= 1
            return Kind.CLOSE
        opened[markup[0]] += 1
        return Kind.OPEN
    if match["link"]:
        return Kind.OPEN
    if match["around"]:
        return Kind.CLOSE
    return Kind.POINT if markup.startswith("![") else None


def _as_line(text: str) -> str:
    return re.sub(r"\s*[\r\n][\s>]*", " ", text)


def _escape(text: str, source: str) -> str:
    """Escape characters that could be markup, unless the source has them as text."""
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
    """Return all markup, without text and line ends; the order within a block does not matter."""
    return [(*_describe(token), _inline(token.children or [])) for token in tokens if token.type != "text"]


def _inline(tokens: list[Token]) -> str:
    """Return a description of the markup of a block; the markup within each tag is sorted."""
    levels: list[list[str]] = [[]]
    for token in tokens:
        if token.type in ("text", "softbreak"):
            continue
        description = repr(_describe(token))
        if token.nesting == 1:
            levels.append([description])
        elif token.nesting == -1 and len(levels) > 1:
            first, *within = levels.pop()
            levels[-1].append("".join([first, *sorted(within), description]))
        else:
            levels[-1].append(description)
    return "".join("".join(sorted(level)) for level in levels)


def _inline_skeleton(text: str, environment: dict[str, Any]) -> str:
    (token,) = _PARSER.parseInline(text, environment)
    return _inline(token.children or [])


def _describe(token: Token) -> tuple:
    content = token.content if token.type in _OPAQUE else ""
    return token.type, token.tag, token.markup, token.attrs, token.info, content
