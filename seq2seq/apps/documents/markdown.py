"""Markdown (CommonMark, tables, strikethrough), parsed by markdown-it: text is spliced in place, all markup stays.

Code, HTML, images, front matter, link targets and link definitions do not change.
"""

import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.helpers import parseLinkLabel
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from seq2seq.apps.documents.in_place import Passage, splicing_document
from seq2seq.apps.documents.marked_text import BREAKS, KEPT, VOID, Document, Kind, Marked, MarkedSegment, with_space
from seq2seq.errors import UserError

log = logging.getLogger(__name__)

_LINE_END = r"(?:\r\n?|\n)"
_FRONT_MATTER = re.compile(rf"\A(---|\+\+\+){_LINE_END}.*?{_LINE_END}\1(?:{_LINE_END}|\Z)", re.DOTALL)
_SPECIAL = re.compile(r"[\\`*\[\]<|]|~~|(?<!\w)_|_(?!\w)")  # to escape in a translation if the source lacks it
_BLOCK_START = re.compile(r"(>|(?:[-+=#]|\d+[.)])(?=\s|[-=#]|$))")  # begins a list, a heading or a quotation
_BREAK = re.compile(rf"\s*<(?:{'|'.join(BREAKS)})\b[^<>]*>\s*", re.IGNORECASE)
_TASK = re.compile(r"\[[ xX]\]\s+")  # the box before a task
_ALERT = re.compile(r"\[![A-Za-z]+\]")  # GitHub's line before a note, such as [!NOTE]
_BAR = re.compile(r"(?<!\\)\|")
_SPAN = "span"  # key of a token's `meta`: its start and end in the content of its block
_OPAQUE = ("fence", "code_block", "html_block", "code_inline", "html_inline", "image")
_TEXT = ("text", "softbreak", "hardbreak")
_OBJECTS = ("code_inline", "text_special")  # are read like words

Rule = Callable[[StateInline, bool], bool]  # a rule of markdown-it


@dataclass(frozen=True)
class Line(Passage):
    """The text of a block up to a hard break."""

    content: str  # the text as markdown-it reads it, without quotation marks and indentation
    is_cell: bool  # of a table, where the document has `\|` for `|`


def _recording_spans(rule: Rule) -> Rule:
    """Return a rule that also records the spans of its tokens, but no reliable spans of text that stays text."""

    def run(state: StateInline, silent: bool) -> bool:
        start, num_tokens = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        end = state.pos
        for token in [] if silent else reversed(state.tokens[num_tokens:]):
            if _SPAN in token.meta:
                continue
            span = start, state.pos
            if token.type == "text":  # marks of emphasis so far, one after the other
                end -= len(token.content)
                span = end, end + len(token.content)
            elif token.type == "link_open" and token.markup != "autolink":
                span = start, start + 1
            elif token.type == "link_close" and token.markup != "autolink":
                span = _label_end(state, start), state.pos
            token.meta[_SPAN] = span
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
        parser.inline.ruler.at(rule.name, _recording_spans(rule.fn))
    return parser


_PARSER = _parser()


def read(text: str, src_lang: str, tgt_lang: str) -> Document[str]:
    """Read paragraphs, headings, list items and table cells; each translation is written in one line.

    A text whose translation would have other markup is not translated, with a warning.

    Raises:
        UserError: a text is not found in the document; or, when writing, the document would have other markup.
    """
    front_end, tokens, environment = _parse(text)

    def write_line(line: Line, translation: Marked) -> str:
        parts = line.segment.fill(translation)
        written = _in_one_line("".join(_escape(part, line.source.text) + (markup or "") for part, markup in parts))
        blocks = [_PARSER.parse(_in_one_line(block), {**environment}) for block in (line.content, written)]
        if _skeleton(blocks[0]) != _skeleton(blocks[1]):
            log.warning("not translated, since its translation %r has other markup: %r", written, line.content)
            return text[line.start : line.end]
        return _BAR.sub(r"\|", written) if line.is_cell else written

    document = splicing_document(text, list(_find_texts(text, front_end, tokens)), write_line)

    def write(translations: Sequence[Marked]) -> str:
        written = document.write(translations)
        if _skeleton(_parse(written)[1]) != _skeleton(tokens):
            raise UserError("its translation would have other markup than it has: simplify its inline markup")
        return written

    return Document(document.segments, write)


def _parse(text: str) -> tuple[int, list[Token], dict[str, Any]]:
    """Return the length of the front matter, and the tokens and link definitions of the rest."""
    front = _FRONT_MATTER.match(text)
    start = front.end() if front else 0
    environment: dict[str, Any] = {}
    return start, _PARSER.parse(text[start:], environment), environment


def _find_texts(text: str, end: int, tokens: list[Token]) -> Iterator[Line]:
    """Yield the texts of the blocks, up to each hard line break; tokens are of the text after `end`."""
    offsets = [end, *(match.end() for match in re.compile(_LINE_END).finditer(text, end)), len(text)]
    for previous, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "tr_open" and token.map:
            end = offsets[token.map[0]]
        elif token.type == "inline" and previous and previous.type in ("th_open", "td_open"):
            cell = token.content.replace("|", r"\|")
            start = _find(text, cell, end, len(text), last=False)
            end = start + len(cell)
            segment = _read(token.content, 0, len(token.content), _markup_of(token))
            yield Line(start, end, segment, token.content, is_cell=True)
        elif token.type == "inline" and token.map:
            yield from _find_lines(text, token, offsets)


def _find_lines(text: str, block: Token, offsets: list[int]) -> Iterator[Line]:
    """Find each line at the end of its line in the document; yield them joined up to a hard break."""
    assert block.map is not None
    content, remaining = block.content, _markup_of(block)
    lines = content.split("\n")
    line_start, begin, start = 0, None, 0  # begin, start: of the text in content and in the document
    for number, line in enumerate(lines, block.map[0]):
        is_last = number == block.map[0] + len(lines) - 1
        words = line.strip()
        if number == block.map[0] and not is_last and _ALERT.fullmatch(words):
            line_start += len(line) + 1
            continue
        position = _find(text, words, offsets[number], offsets[number + 1], last=True)
        first = line_start + len(line) - len(line.lstrip()) if words else line_start
        if begin is None:
            box = _TASK.match(words)
            skipped = box.end() if box else 0
            begin, start = first + skipped, position + skipped
        if line.endswith(("  ", "\\")) or is_last:
            length = len(words) - (line.endswith("\\") and not is_last)
            end = first + length
            segment = _read(content, begin, end, _take(remaining, begin, end))
            yield Line(start, position + length, segment, content[begin:end], is_cell=False)
            begin = None
        line_start += len(line) + 1


def _markup_of(block: Token) -> deque[Token]:
    return deque(token for token in block.children or [] if token.type not in _TEXT and token.info != "entity")


def _take(tokens: deque[Token], begin: int, end: int) -> list[Token]:
    """Remove the tokens before `end`; return those from `begin` on."""
    taken = []
    while tokens and tokens[0].meta[_SPAN][1] <= end:
        token = tokens.popleft()
        if token.meta[_SPAN][0] >= begin:
            taken.append(token)
    return taken


def _find(text: str, words: str, start: int, end: int, *, last: bool) -> int:
    position = text.rfind(words, start, end) if last else text.find(words, start, end)
    if position < 0:
        raise UserError(f"{words!r:.60} was not found in its lines: simplify its markup")
    return position


def _read(content: str, start: int, end: int, tokens: Iterable[Token]) -> MarkedSegment[str]:
    """Read a part of a block's content and its markup as one line.

    Markup that encloses nothing includes any white space around it, and is then read as a space.
    """
    segment: MarkedSegment[str] = MarkedSegment()
    last_end = start
    for token, begin, finish in _with_spans(content, start, list(tokens)):
        if begin < last_end:  # within an object
            continue
        kind = _find_kind(token, content[begin:finish])
        if kind is Kind.POINT:
            begin, finish = with_space(content, begin, finish, last_end, end, str.isspace)
        segment.add_text(_in_one_line(content[last_end:begin]))
        markup = _in_one_line(content[begin:finish])
        if kind is None:
            segment.add_object(markup)
        elif kind is Kind.POINT and (markup != markup.strip() or _BREAK.fullmatch(markup)):
            segment.add_break(markup)
        else:
            segment.add_mark(kind, markup)
        last_end = finish
    segment.add_text(_in_one_line(content[last_end:end]))
    return segment


def _with_spans(content: str, start: int, tokens: list[Token]) -> Iterator[tuple[Token, int, int]]:
    """Yield the tokens of markup, and where each begins and ends.

    A link by its text alone, and a link of images, is one token.
    """
    link_ends = _find_link_ends(content, start, tokens)
    for token in tokens:
        span: tuple[int, int] = token.meta[_SPAN]
        begin, end = span
        if token.type in ("strong_open", "strong_close"):  # recorded at the inner one of its two characters
            begin, end = (end - 2, end) if token.nesting == 1 else (begin, begin + 2)
        yield token, begin, link_ends.get(id(token), end)


def _find_link_ends(content: str, start: int, tokens: list[Token]) -> dict[int, int]:
    """Return where links by their text alone, and links that hold nothing but images, end, by their opening tokens."""
    ends: dict[int, int] = {}
    opened: list[tuple[Token, int]] = []  # links, and the number of texts before them
    last_end, num_texts = start, 0
    for token in tokens:
        begin, end = token.meta[_SPAN]
        is_link = token.type in ("link_open", "link_close")
        num_texts += not (is_link or token.type == "image") or bool(content[last_end:begin].strip())
        last_end = max(last_end, end)
        if token.type == "link_open":
            opened.append((token, num_texts))
        elif token.type == "link_close" and opened:
            opening, num_before = opened.pop()
            if num_texts == num_before or content[begin:end] in ("]", "][]"):
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
    return re.sub(r"\s*[\r\n]\s*", " ", text)


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


def _describe(token: Token) -> tuple:
    content = token.content if token.type in _OPAQUE else ""
    return token.type, token.tag, token.markup, token.attrs, token.info, content
