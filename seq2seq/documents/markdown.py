"""Markdown (CommonMark, tables, strikethrough), parsed by markdown-it: text is spliced in place, all markup stays.

Code, HTML, images, front matter, link targets and link definitions do not change.
"""

import logging
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.helpers import parseLinkLabel
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from seq2seq.documents.marked import BREAKS, KEPT, VOID, Document, Kind, Marked, Segment, with_space
from seq2seq.errors import UserError

log = logging.getLogger(__name__)

_LINE_END = r"(?:\r\n?|\n)"
_FRONT_MATTER = re.compile(rf"\A(---|\+\+\+){_LINE_END}.*?{_LINE_END}\1(?:{_LINE_END}|\Z)", re.DOTALL)
_SPECIAL = re.compile(r"[\\`*\[\]<|]|~~|(?<!\w)_|_(?!\w)")  # to escape in a translation if the source lacks it
_BLOCK_START = re.compile(r"([-+=#>]|\d+[.)])(?=\s|[-=#]|$)")  # begins a list, a heading or a quotation
_BREAK = re.compile(rf"\s*<(?:{'|'.join(BREAKS)})\b[^<>]*>\s*", re.IGNORECASE)
_TASK = re.compile(r"\[[ xX]\]\s+")  # the box before a task
_BAR = re.compile(r"(?<!\\)\|")
_PLACE = "place"  # key of a token's `meta`: where it begins and ends, as positions in the text of its block
_OPAQUE = ("fence", "code_block", "html_block", "code_inline", "html_inline", "image")
_TEXT = ("text", "softbreak", "hardbreak")
_OBJECTS = ("code_inline", "text_special")  # are read like words

Span = tuple[int, int]


@dataclass(frozen=True)
class Line:
    """The text of a block up to a hard break."""

    content: str  # the text of the whole block as markdown-it reads it, without quotation marks and indentation
    begin: int  # where the line begins in content
    end: int  # where it ends
    tokens: list[Token]  # of its markup
    span: Span  # where it is in the document
    is_cell: bool  # of a table, where the document has `\|` for `|`


def _placed(rule: Callable[[StateInline, bool], bool]) -> Callable[[StateInline, bool], bool]:
    """Let a rule of markdown-it record where its tokens are; text that stays text gets no reliable place."""

    def run(state: StateInline, silent: bool) -> bool:
        start, made = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        if not silent:
            tokens = [token for token in state.tokens[made:] if _PLACE not in token.meta]
            end = state.pos
            for token in reversed(tokens):
                if token.type == "text":  # marks of emphasis so far, one after the other
                    token.meta[_PLACE] = end - len(token.content), end
                    end -= len(token.content)
                elif token.type == "link_open" and token.markup != "autolink":
                    token.meta[_PLACE] = start, start + 1
                elif token.type == "link_close" and token.markup != "autolink":
                    token.meta[_PLACE] = _label_end(state, start), state.pos
                else:
                    token.meta[_PLACE] = start, state.pos
        return True

    return run


def _label_end(state: StateInline, start: int) -> int:
    position = state.pos
    end = parseLinkLabel(state, start)
    state.pos = position
    return end


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for rule in parser.inline.ruler.__rules__:  # the public names come without their functions
        parser.inline.ruler.at(rule.name, _placed(rule.fn))
    return parser


_PARSER = _parser()


def read(text: str, src_lang: str, tgt_lang: str) -> Document[str]:
    """Read paragraphs, headings, list items and table cells; each translation is written in one line.

    A text whose translation would have other markup is not translated, with a warning.

    Raises:
        UserError: the place of a text cannot be found; or, when writing, the document would have other markup.
    """
    front, tokens, environment = _parse(text)
    lines = list(_find_texts(text, front, tokens))
    found = [_read(line) for line in lines]

    def write(translations: Sequence[Marked]) -> str:
        parts, end = [], 0
        for line, segment, translated in zip(lines, found, translations, strict=True):
            filled = segment.fill(translated)
            written = "".join(_escape(part, segment.marked.text) + (markup or "") for part, markup in filled)
            source = line.content[line.begin : line.end]
            start, next_end = line.span
            if _inline_skeleton(written, environment) != _inline_skeleton(source, environment):
                log.warning("not translated, since its translation %r has other markup: %r", written, source)
                parts += [text[end:next_end]]
            else:
                parts += [text[end:start], _BAR.sub(r"\|", written) if line.is_cell else written]
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


def _find_texts(text: str, end: int, tokens: list[Token]) -> Iterator[Line]:
    """Yield the texts of the blocks, up to each hard line break; tokens are of the text after `end`."""
    offsets = [end, *(match.end() for match in re.compile(_LINE_END).finditer(text, end)), len(text)]
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "tr_open" and token.map:
            end = offsets[token.map[0]]
        elif token.type == "inline" and before and before.type in ("th_open", "td_open"):
            cell = token.content.replace("|", r"\|")
            start = _found(text.find(cell, end), cell)
            end = start + len(cell)
            yield Line(token.content, 0, len(token.content), list(_markup_of(token)), (start, end), is_cell=True)
        elif token.type == "inline" and token.map:
            yield from _find_lines(text, token, offsets)


def _find_lines(text: str, block: Token, offsets: list[int]) -> Iterator[Line]:
    """Find each line at the end of its line in the document; yield them joined up to a hard break."""
    assert block.map is not None
    lines, at, begin, start = block.content.split("\n"), 0, None, 0
    waiting = _markup_of(block)
    for number, line in enumerate(lines, block.map[0]):
        is_last = number == block.map[0] + len(lines) - 1
        words = line.strip()
        position = _found(text.rfind(words, offsets[number], offsets[number + 1]), words)
        first = at + len(line) - len(line.lstrip()) if words else at
        if begin is None:
            box = _TASK.match(words)
            skipped = box.end() if box else 0
            begin, start = first + skipped, position + skipped
        if line.endswith(("  ", "\\")) or is_last:
            length = len(words) - (line.endswith("\\") and not is_last)
            inside = _take(waiting, begin, first + length)
            yield Line(block.content, begin, first + length, inside, (start, position + length), is_cell=False)
            begin = None
        at += len(line) + 1


def _markup_of(block: Token) -> deque[Token]:
    return deque(one for one in block.children or [] if one.type not in _TEXT and one.info != "entity")


def _take(waiting: deque[Token], begin: int, end: int) -> list[Token]:
    """Take the tokens up to a place; return those from `begin` on."""
    taken = []
    while waiting and waiting[0].meta[_PLACE][1] <= end:
        token = waiting.popleft()
        if token.meta[_PLACE][0] >= begin:
            taken.append(token)
    return taken


def _found(position: int, content: str) -> int:
    if position < 0:
        raise UserError(f"the place of {content!r:.60} was not found: simplify its markup")
    return position


def _read(line: Line) -> Segment[str]:
    """Read a text and its markup as one line.

    Markup that encloses nothing includes any white space around it, and is then read as a space.
    """
    segment: Segment[str] = Segment()
    text, at = line.content, line.begin
    for token, begin, finish in _markup(line):
        if begin < at:  # within an object
            continue
        kind = _find_kind(token, text[begin:finish])
        if kind is Kind.POINT:
            begin, finish = with_space(text, begin, finish, at, line.end, str.isspace)
        segment.add_text(_in_one_line(text[at:begin]))
        markup = _in_one_line(text[begin:finish])
        if kind is None:
            segment.add_object(markup)
        elif kind is Kind.POINT and (markup != markup.strip() or _BREAK.fullmatch(markup)):
            segment.add_break(markup)
        else:
            segment.add_mark(kind, markup)
        at = finish
    segment.add_text(_in_one_line(text[at : line.end]))
    return segment


def _markup(line: Line) -> Iterator[tuple[Token, int, int]]:
    """Yield the tokens of markup, and where each begins and ends.

    A link by its text alone, and a link of images, is one token.
    """
    whole = _whole_links(line)
    for token in line.tokens:
        place: Span = token.meta[_PLACE]
        begin, end = place
        if token.type in ("strong_open", "strong_close"):  # recorded at the inner one of its two characters
            begin, end = (end - 2, end) if token.nesting == 1 else (begin, begin + 2)
        yield token, begin, whole.get(id(token), end)


def _whole_links(line: Line) -> dict[int, int]:
    """Return where links by their text alone, and links that hold nothing but images, end, by their opening tokens."""
    ends: dict[int, int] = {}
    opened: list[tuple[Token, int]] = []  # links, and the number of texts before them
    at, texts = line.begin, 0
    for token in line.tokens:
        begin, end = token.meta[_PLACE]
        texts += token.type not in ("image", "link_open", "link_close") or bool(line.content[at:begin].strip())
        at = max(at, end)
        if token.type == "link_open":
            opened.append((token, texts))
        elif token.type == "link_close" and opened:
            opening, before = opened.pop()
            if texts == before or line.content[begin:end] in ("]", "][]"):
                ends[id(opening)] = end
    return ends


def _find_kind(token: Token, markup: str) -> Kind | None:
    """Return the kind of markup, or None if it is read like a word."""
    if token.type == "image" or markup.startswith("[!["):  # an image, or a link that holds nothing else
        return Kind.POINT
    if token.type == "html_inline":
        name = re.match("</?([A-Za-z][A-Za-z0-9]*)", markup)
        if name is None or markup.endswith("/>") or VOID.fullmatch(name[1].lower()):
            return Kind.POINT
        return Kind.CLOSE if markup.startswith("</") else Kind.OPEN
    is_link = token.type == "link_open" and (token.markup == "autolink" or markup != "[")
    if token.type in _OBJECTS or is_link:
        return None
    return Kind.OPEN if token.nesting == 1 else Kind.CLOSE


def _in_one_line(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text)


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
