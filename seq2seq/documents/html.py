"""HTML: text between tags, spliced in place; tags, attributes, comments, scripts and code stay byte for byte."""

import html
import re

from seq2seq.documents.keeping import TranslateMarked
from seq2seq.documents.lifting import BREAKS, VOID
from seq2seq.documents.marked import Kind, Segment
from seq2seq.errors import UserError

_INLINE = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|br|cite|code|data|del|dfn|em|font|i|img|ins|kbd|label|mark|q|rp|rt|ruby|s|samp|small|"
    "span|strike|strong|sub|sup|time|tt|u|var|wbr"
)
_UNTRANSLATED = re.compile("code|kbd|math|pre|samp|script|style|svg|template|textarea|tt|var")
_ENTITY = "wbr"  # the tag that entities without words are treated as
_RAW = {tag: re.compile(rf"</{tag}(?=[\s/>])", re.IGNORECASE) for tag in ("script", "style")}
_CHARSET = re.compile(r"<meta\b[^<>]*\bcharset\s*=\s*[\"']?\s*([\w-]+)", re.IGNORECASE)
# Every alternative either fails at once or takes all that it has read, so that reading takes linear time.
_MARKUP = re.compile(
    r"""<!--(?:-?>|.*?(?:--!?>|\Z))
    | <!\[CDATA\[.*?(?:\]\]>|\Z)
    | <(?:[!?]|/(?![A-Za-z]))[^>]*(?:>|\Z)
    | </(?P<end>[A-Za-z][^\s/>]*)[^>]*(?:>|\Z)
    | <(?P<start>[A-Za-z][^\s/>]*+)
      (?:[^>=/]++|/(?!>)|=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?+)*+(?P<slash>/)?(?:>|\Z)
    | (?P<entity>&(?:nbsp|ensp|emsp|thinsp|zwj|zwnj|shy|lrm|rlm|\#160|\#173|\#[xX][aA][0dD])(?![\w.-]);?)""",
    re.VERBOSE | re.DOTALL,
)

Token = tuple[str, str, int, int]  # kind (text, start, end, empty, other), tag, where it begins and ends


def translate_document(text: str, translate: TranslateMarked, src_lang: str, tgt_lang: str) -> str:
    """Translate an HTML document and the language that its `<html lang>` tells.

    Raises:
        UserError: it declares another encoding than UTF-8.
    """
    charset = _CHARSET.search(text)
    if charset and charset[1].lower().replace("-", "") != "utf8":
        raise UserError(f"it declares charset={charset[1]}, expected utf-8: convert it and its <meta charset>")
    found = [_read(text, tokens) for tokens in _find_segments(text)]
    parts, end = [], 0
    for (segment, start, next_end), translated in zip(
        found, translate([segment.marked for segment, _, _ in found]), strict=True
    ):
        parts.append(text[end:start])
        parts += [html.escape(part, quote=False) + (markup or "") for part, markup in segment.fill(translated)]
        end = next_end
    language = re.compile(rf"(<html\b[^<>]*\blang\s*=\s*[\"']?){re.escape(src_lang)}\b(?:-\w+)?", re.IGNORECASE)
    return language.sub(rf"\g<1>{tgt_lang}", "".join([*parts, text[end:]]), count=1)


def _find_segments(text: str) -> list[list[Token]]:
    """Find the texts of an HTML document, each as its tokens; an untranslated inline element is one, of kind object."""
    segments: list[list[Token]] = [[]]
    skipped, depth = "", 0  # the outermost open element that is not translated, and how many of its name are open
    for kind, tag, start, end in _tokenize(text):
        if depth:
            if tag == skipped:
                depth += {"start": 1, "end": -1}.get(kind, 0)
            if segments[-1]:
                segments[-1][-1] = *segments[-1][-1][:3], end
            continue
        is_block = kind in ("start", "end", "empty") and not _INLINE.fullmatch(tag)
        if is_block:
            segments.append([])
        if kind == "start" and not VOID.fullmatch(tag) and _is_untranslated(tag, text[start:end]):
            skipped, depth = tag, 1
            kind = "object"
        if not is_block:
            segments[-1].append((kind, tag, start, end))
    if depth and segments[-1]:  # what does not end can be followed by nothing
        segments[-1].pop()
    trimmed = [_trim(segment, text) for segment in segments]
    return [segment for segment in trimmed if any(kind == "text" for kind, *_ in segment)]


def _trim(segment: list[Token], text: str) -> list[Token]:
    """Leave out white space and comments at both ends."""

    def is_shown(token: Token) -> bool:
        kind, _, start, end = token
        return kind != "other" and (kind != "text" or bool(text[start:end].strip()))

    shown = [index for index, token in enumerate(segment) if is_shown(token)]
    return segment[shown[0] : shown[-1] + 1] if shown else []


def _read(text: str, tokens: list[Token]) -> tuple[Segment[str], int, int]:
    """Read a text and its markup; gives it with where it begins and ends.

    A tag that encloses nothing takes the white space around it along, and is then read as that space.
    """
    pieces = _join_texts(tokens)
    spans = [(start, end) for _, _, start, end in pieces]
    is_text = [kind == "text" for kind, *_ in pieces]
    is_alone = [
        kind in ("empty", "other") or (kind in ("start", "end") and bool(VOID.fullmatch(tag)))
        for kind, tag, *_ in pieces
    ]
    for i, (start, end) in enumerate(spans):
        if is_text[i]:
            body = text[start:end]
            if i == 0 or is_alone[i - 1]:
                start += len(body) - len(body.lstrip())
            if i == len(spans) - 1 or is_alone[i + 1]:
                end = max(start, end - len(body) + len(body.rstrip()))
            spans[i] = start, end
    segment: Segment[str] = Segment()
    for i, (kind, tag, start, end) in enumerate(pieces):
        first = spans[i - 1][1] if i > 0 and is_text[i - 1] else start
        last = spans[i + 1][0] if i + 1 < len(spans) and is_text[i + 1] else end
        is_cut_short = text[start] == "&" and text[end - 1] != ";"  # an entity that what comes behind it could change
        markup = text[first:end] + ";" * is_cut_short + text[end:last]
        if is_text[i]:
            segment.add_text(re.sub(r"\s+", " ", html.unescape(text[slice(*spans[i])])))
        elif kind == "object":
            segment.add_object(markup)
        elif not is_alone[i]:
            segment.add_mark(Kind.OPEN if kind == "start" else Kind.CLOSE, markup)
        elif tag in BREAKS or html.unescape(markup) != html.unescape(markup).strip():
            segment.add_break(markup)
        else:
            segment.add_mark(Kind.POINT, markup)
    return segment, spans[0][0], spans[-1][1]


def _join_texts(tokens: list[Token]) -> list[Token]:
    """Join texts that touch."""
    joined: list[Token] = []
    for token in tokens:
        if joined and joined[-1][0] == token[0] == "text":
            joined[-1] = *joined[-1][:3], token[3]
        else:
            joined.append(token)
    return joined


def _tokenize(text: str) -> list[Token]:
    """Cut a document into its tokens, in one pass whatever it holds.

    As in a browser, a comment or declaration without an end goes on to the end of the document, and so does a script
    or a style sheet; as in XHTML, a CDATA section ends at ]]>. A tag without an end is text.
    """
    tokens: list[Token] = []
    start = 0
    while match := _MARKUP.search(text, start):
        kind, tag = ("end", match["end"]) if match["end"] else ("start", match["start"] or "")
        first, end = match.span()
        if tag and text[end - 1] != ">":
            break
        if match["entity"]:
            kind, tag = "empty", _ENTITY
        elif not tag:
            kind = "other"
        elif match["slash"]:
            kind = "empty"
        elif kind == "start" and tag.lower() in _RAW:
            found = _RAW[tag.lower()].search(text, end)
            end = found.start() if found else len(text)
        if first > start:
            tokens.append(("text", "", start, first))
        tokens.append((kind, tag.lower(), first, end))
        start = end
    return [*tokens, ("text", "", start, len(text))] if start < len(text) else tokens


def _is_untranslated(name: str, tag: str) -> bool:
    marked = re.search(r"\btranslate\s*=\s*[\"']?no\b|\bclass\s*=\s*[\"'][^\"']*\bnotranslate\b", tag, re.IGNORECASE)
    return bool(marked or _UNTRANSLATED.fullmatch(name))
