"""Markdown: text is spliced in place, all markup stays.

Code, HTML, images, front matter, formulas, templates, attributes and link definitions do not change. A link to a
heading of the document changes with the heading, or the heading keeps its identifier.
"""

import logging
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from markdown_it.token import Token

from seq2seq.apps.documents.in_place import Passage, splicing_document
from seq2seq.apps.documents.markdown_dialects import LINE_END, POINT, SPAN, parser, with_symbols, without_symbols
from seq2seq.apps.documents.marked_text import KEPT, Document, Kind, Marked, MarkedSegment, with_space
from seq2seq.errors import UserError

log = logging.getLogger(__name__)

_SPECIAL = re.compile(r"[\\`*\[\]<|]|~~|(?<!\w)_|_(?!\w)")  # to escape in a translation if the source lacks it
_BLOCK_START = re.compile(r"(>|!!!|\?\?\?|:::|///|\$\$|(?:[-+=#:]|\d+[.)])(?=\s|[-=#]|$))")  # begins a block
_ALERT = re.compile(r"\[![\w-]+\][+-]?(?:\s+|$)")  # before the title of a note, such as [!NOTE]
_LINK = re.compile(r"""(\]\(\s*<?#|\]:\s*<?#|href=["']#)([^\s<>)"']+)""")  # to a heading
_TAG = re.compile(r"<\w+(?:(?! id=)[^<>])*|</\w+")
_TITLED = re.compile(r'(?<=class="admonition) [^"]*')  # the first word of a tab's title
_WITH_IDS = re.compile(r"\{:? *#|(?:admonition|container_:)_open")  # marks of dialects with {#id}, but of plain MDX
_BAR = re.compile(r"(?<!\\)\|")
_CODE = re.compile("fence|colon_fence|code_block|front_matter|math_block|math_block_label")
_TEXT = ("text", "softbreak", "hardbreak", "html_inline")  # tags are lifted from texts
_OBJECTS = ("code_inline", "text_special", "math_inline", "math_inline_double")  # are read like words


@dataclass(frozen=True)
class Line(Passage):
    """The text of a block up to a hard break."""

    content: str  # as markdown-it reads it: without quotation marks and indentation, and with | for \| in a table


def read(text: str, src_lang: str, tgt_lang: str, *, is_mdx: bool = False) -> Document:
    """Read paragraphs, headings, titles, list items and table cells; each translation is written in one line.

    A text whose translation would have other markup is not translated, with a warning.
    """
    source, strings = with_symbols(text, is_mdx=is_mdx)
    markdown, environment = parser(is_mdx=is_mdx), dict[str, Any]()
    parse = markdown.parse
    tokens = parse(source, environment)

    def tags(tokens: list[Token]) -> Counter[str]:
        page = _TITLED.sub("", markdown.renderer.render(tokens, markdown.options, environment))
        return Counter(" ".join(tag.split()) for tag in _TAG.findall(page))

    def write_line(line: Line, translation: Marked) -> str:
        written = ""
        for part, markup in line.segment.fill(translation):
            written += _escape(part, line.segment.marked.text, is_first=not written) + (markup or "")
        written = _in_one_line(written)
        before, after = (tags(parse(_in_one_line(block), {**environment})) for block in (line.content, written))
        if before != after:
            shown = [without_symbols(block, strings) for block in (written, line.content)]
            log.warning("not translated, since its translation %r has other markup: %r", *shown)
            return source[line.start : line.end]
        return _BAR.sub(r"\|", written) if r"\|" in source[line.start : line.end] else written

    document = splicing_document(source, list(_find_texts(source, tokens)), write_line)

    def write(translations: Sequence[Marked]) -> str:
        written = document.write(translations)
        new_tokens = parse(written)
        if tags(new_tokens) != tags(tokens):
            raise UserError("its translation would have other markup than it has: simplify its inline markup")
        is_myst = any(token.info.lstrip()[:1] == "{" for token in tokens if token.type != "front_matter")
        types = () if is_mdx else (token.type for token in tokens)
        has_ids = not is_myst and any(_WITH_IDS.match(mark) for mark in (*strings.values(), *types))
        return without_symbols(_follow_headings(written, tokens, new_tokens, has_ids=has_ids), strings)

    return Document(document.segments, write)


read_mdx = partial(read, is_mdx=True)


def _follow_headings(text: str, old: list[Token], new: list[Token], *, has_ids: bool) -> str:
    """Let links to headings of the document find them: change the links, or give the headings their old identifiers.

    has_ids tells that the dialect has identifiers.
    """
    pairs = zip(*([token for token in tokens if token.type == "heading_open"] for tokens in (old, new)), strict=True)
    changed = {f"{one.attrs['id']}": other for one, other in pairs if one.attrs["id"] != other.attrs["id"]}
    if not changed:
        return text
    lines = re.split(f"({LINE_END})", text)
    code = {2 * line for token in new if _CODE.fullmatch(token.type) and token.map for line in range(*token.map)}
    prose = [number for number in range(0, len(lines), 2) if number not in code]
    linked = changed.keys() & {link[2] for number in prose for link in _LINK.finditer(lines[number])}
    for name in linked if has_ids else ():
        first, end = changed[name].map or (0, 0)
        number = 2 * (first if changed[name].markup[0] == "#" else end - 2)
        lines[number] = re.sub(r"((?:\s+#+)?\s*)$", rf" {{#{name}}}\1", lines[number], count=1)
    names = {name: f"{changed[name].attrs['id']}" for name in linked}
    for number in prose if linked and not has_ids else ():
        lines[number] = _LINK.sub(lambda link: link[1] + names.get(link[2], link[2]), lines[number])
    return "".join(lines)


def _find_texts(text: str, tokens: list[Token]) -> Iterator[Line]:
    """Yield the texts of the blocks, up to each hard line break."""
    offsets, end = [0, *(match.end() for match in re.finditer(LINE_END, text)), len(text)], 0
    for previous, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "tr_open" and token.map:
            end = offsets[token.map[0]]
        elif token.type == "inline" and previous and previous.type in ("th_open", "td_open"):
            cell = token.content.replace("|", r"\|")
            start = _find(text, cell, end, len(text), last=False)
            end = start + len(cell)
            segment = _read(token.content, 0, len(token.content), _markup_of(token))
            yield Line(start, end, segment, token.content)
        elif token.type == "inline" and token.map and token.content:
            yield from _find_lines(text, token, offsets)


def _find_lines(text: str, block: Token, offsets: list[int]) -> Iterator[Line]:
    """Find each line at the end of its line in the document; yield them joined up to a hard break.

    The title of a note is a line of its own.
    """
    assert block.map is not None
    content, markup = block.content, _markup_of(block)
    lines = content.split("\n")
    line_start, begin, start = 0, None, 0  # begin, start: of the text in content and in the document
    for number, line in enumerate(lines, block.map[0]):
        words = line.strip()
        alert = _ALERT.match(words) if number == block.map[0] else None
        is_last = number == block.map[0] + len(lines) - 1
        position = _find(text, words, offsets[number], offsets[number + 1], last=True)
        first = line_start + len(line) - len(line.lstrip()) if words else line_start
        if begin is None:
            skipped = alert.end() if alert else 0
            begin, start = first + skipped, position + skipped
        if line.endswith(("  ", "\\")) or is_last or alert:
            length = len(words) - (line.endswith("\\") and not is_last)
            end = first + length
            if begin < end:
                segment = _read(content, begin, end, _take(markup, begin, end))
                yield Line(start, position + length, segment, content[begin:end])
            begin = None
        line_start += len(line) + 1


def _markup_of(block: Token) -> list[Token]:
    return [token for token in block.children or [] if token.type not in _TEXT and token.info != "entity"]


def _take(tokens: Sequence[Token], begin: int, end: int) -> list[Token]:
    """Return the tokens from `begin` on that end at `end` or before."""
    first, last = (bisect_left(tokens, position, key=lambda token: token.meta[SPAN][0]) for position in (begin, end))
    return [token for token in tokens[first:last] if token.meta[SPAN][1] <= end]


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
    last_end, last_kind = start, None
    spans = _with_spans(content, tokens)
    ends = {first: last for token, first, last in spans if token.type == "symbol" and token.content[1] >= POINT}
    for token, begin, finish in spans:
        if begin < last_end:  # within an object
            continue
        kind = _find_kind(token, content[begin:finish])
        if kind is not Kind.OPEN:
            finish = ends.get(finish, finish)  # attributes belong to what they follow
        is_separator = (token.type, token.nesting) == ("edit", 0)  # between old and new words
        if is_separator or (kind is Kind.POINT and (begin == start or content[begin - 1].isspace())):
            begin, finish = with_space(content, begin, finish, last_end, end, str.isspace)
        gap, markup = (_in_one_line(content[slice(*span)]) for span in ((last_end, begin), (begin, finish)))
        if (last_kind, gap, kind) == (Kind.CLOSE, "", Kind.OPEN):
            segment.add_gap(content[finish : finish + 1])  # what touches its neighbour is a word of its own
        segment.add_text(gap)
        if kind is None:
            segment.add_object(markup)
        elif kind is Kind.POINT and markup != markup.strip():
            segment.add_break(markup)
        else:
            segment.add_mark(kind, markup, is_link=token.type.startswith("link_"))
        if is_separator:
            segment.add_gap()
            segment.add_mark(kind := Kind.OPEN, "")
        last_end, last_kind = finish, kind
    segment.add_text(_in_one_line(content[last_end:end]))
    return segment


def _with_spans(content: str, tokens: Iterable[Token]) -> list[tuple[Token, int, int]]:
    """Return the tokens of markup, and where each begins and ends; a link by its text alone, or without one, is one."""
    spans: list[tuple[Token, int, int]] = []
    opened: list[int] = []
    for token in tokens:
        begin, end = token.meta[SPAN]
        if token.type in ("strong_open", "strong_close"):  # recorded at the inner one of its two characters
            begin, end = (end - 2, end) if token.nesting == 1 else (begin, begin + 2)
        if token.type == "link_open":
            opened.append(len(spans))
        elif token.type == "link_close" and opened:
            opening, first, _ = spans[number := opened.pop()]
            if content[begin:end] in ("]", "][]") or begin == spans[number][2]:
                spans[number] = opening, first, end
        spans.append((token, begin, end))
    return spans


def _find_kind(token: Token, markup: str) -> Kind | None:
    """Return the kind of markup, or None if it is read like a word."""
    if token.type in ("image", "footnote_ref"):
        return Kind.POINT
    if token.type == "symbol":
        return Kind.POINT if markup[1] >= POINT else None
    is_link = token.type == "link_open" and (token.markup == "autolink" or markup != "[")
    if token.type in _OBJECTS or is_link:
        return None
    return Kind.OPEN if token.nesting == 1 else Kind.CLOSE


def _in_one_line(text: str) -> str:
    return re.sub(r"\s*[\r\n]\s*", " ", text)


def _escape(text: str, source: str, *, is_first: bool) -> str:
    """Escape characters that could be markup, unless the source has them as text."""
    parts = KEPT.split(text)
    parts[::2] = [_SPECIAL.sub(lambda match: "\\" * (match[0] not in source) + match[0], part) for part in parts[::2]]
    escaped = "".join(parts)
    start = _BLOCK_START.match(escaped.lstrip())
    if is_first and start and not _BLOCK_START.match(source.lstrip()):
        escaped = escaped.replace(start[0], f"{start[0][:-1]}\\{start[0][-1]}", 1)
    return escaped
