"""HTML: text between tags, spliced in place; tags, attributes, comments, scripts and code stay byte for byte."""

import html
import re
from html.parser import HTMLParser

from seq2seq.documents.keeping import BOUNDARY, OBJECT, Translate
from seq2seq.errors import UserError

_INLINE = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|br|cite|code|data|del|dfn|em|font|i|img|ins|kbd|label|mark|q|rp|rt|ruby|s|samp|small|"
    "span|strike|strong|sub|sup|time|tt|u|var|wbr"
)
_UNTRANSLATED = re.compile("code|kbd|math|pre|samp|script|style|svg|template|textarea|tt|var")
_VOID = re.compile("area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr")
_KEPT_ENTITIES = ("nbsp", "ensp", "emsp", "thinsp", "zwj", "zwnj", "shy", "lrm", "rlm", "#160", "#xa0", "#173", "#xad")
_ENTITY = "wbr"  # the tag that entities without words are treated as
_CHARSET = re.compile(r"<meta\b[^>]*\bcharset\s*=\s*[\"']?\s*([\w-]+)", re.IGNORECASE)

Piece = tuple[str, int, int]  # what stands before a text, where the text begins and ends


def translate_document(text: str, translate: Translate, src_lang: str, tgt_lang: str) -> str:
    """Translate an HTML document and the language that its `<html lang>` tells.

    Raises:
        UserError: it declares another encoding than UTF-8.
    """
    charset = _CHARSET.search(text)
    if charset and charset[1].lower().replace("-", "") != "utf8":
        raise UserError(f"it declares charset={charset[1]}, expected utf-8: convert it and its <meta charset>")
    segments = _find_segments(text)
    sources = ["".join(before + _read(text[start:end]) for before, start, end in pieces) for pieces in segments]
    parts, end = [], 0
    for pieces, translation in zip(segments, translate(sources), strict=True):
        for (_, start, next_end), part in zip(pieces, re.split(f"[{BOUNDARY}{OBJECT}]", translation), strict=True):
            parts += [text[end:start], html.escape(part, quote=False)]
            end = next_end
    language = re.compile(rf"(<html\b[^>]*\blang\s*=\s*[\"']?){re.escape(src_lang)}\b(?:-\w+)?", re.IGNORECASE)
    return language.sub(rf"\g<1>{tgt_lang}", "".join([*parts, text[end:]]), count=1)


def _find_segments(text: str) -> list[list[Piece]]:
    """Find the texts of an HTML document, each as its pieces between inline markup."""
    tokens = _Tokens(text).tokens
    ends = [*(start for start, _, _ in tokens), len(text)][1:]
    segments: list[list[Piece]] = [[]]
    skipped: list[str] = []  # open elements of the name of the outermost untranslated one
    before = ""
    for (start, kind, tag), end in zip(tokens, ends, strict=True):
        if skipped:
            if tag == skipped[0] and kind in ("start", "end"):
                skipped = skipped[:-1] if kind == "end" else [*skipped, tag]
        elif kind == "text":
            segments[-1].append((before, start, end))
            before = ""
        else:
            if kind != "other" and not _INLINE.fullmatch(tag):
                segments.append([])
            if kind == "start" and not _VOID.fullmatch(tag) and _is_untranslated(tag, text[start:end]):
                skipped = [tag]
            before = OBJECT if skipped or before == OBJECT or _VOID.fullmatch(tag) else BOUNDARY
    trimmed = [_trim(pieces, text) for pieces in segments]
    return [pieces for pieces in trimmed if pieces]


class _Tokens(HTMLParser):
    """Where every token of a document begins, its kind (text, start, end, empty, other) and its tag."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.tokens: list[tuple[int, str, str]] = []
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        try:
            self.feed(text)
            self.close()
        except AssertionError as error:  # how Python's parser gave up until 3.13
            raise UserError(f"it has a broken declaration: {error}") from error

    def _add(self, kind: str, tag: str = "") -> None:
        line, column = self.getpos()
        self.tokens.append((self._line_starts[line - 1] + column, kind, tag))

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._add("start", tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self._add("empty", tag)

    def handle_endtag(self, tag: str) -> None:
        self._add("end", tag)

    def handle_data(self, data: str) -> None:
        self._add("text")

    def handle_entityref(self, name: str) -> None:
        self._add("empty" if name in _KEPT_ENTITIES else "text", _ENTITY)

    def handle_charref(self, name: str) -> None:
        self._add("empty" if f"#{name}".lower() in _KEPT_ENTITIES else "text", _ENTITY)

    def handle_comment(self, data: str) -> None:
        self._add("other")

    def handle_decl(self, decl: str) -> None:
        self._add("other")

    def unknown_decl(self, data: str) -> None:
        self._add("other")

    def handle_pi(self, data: str) -> None:
        self._add("other")


def _is_untranslated(name: str, tag: str) -> bool:
    marked = re.search(r"\btranslate\s*=\s*[\"']?no\b|\bclass\s*=\s*[\"'][^\"']*\bnotranslate\b", tag, re.IGNORECASE)
    return bool(marked or _UNTRANSLATED.fullmatch(name))


def _trim(pieces: list[Piece], text: str) -> list[Piece]:
    """Join pieces that touch, and leave out white space at both ends."""
    joined: list[Piece] = []
    for before, start, end in pieces:
        if joined and not before:
            joined[-1] = *joined[-1][:2], end
        else:
            joined.append((before, start, end))
    worded = [i for i, (_, start, end) in enumerate(joined) if text[start:end].strip()]
    joined = joined[worded[0] : worded[-1] + 1] if worded else []
    if joined:
        _, start, end = joined[0]
        joined[0] = "", end - len(text[start:end].lstrip()), end
        before, start, end = joined[-1]
        joined[-1] = before, start, start + len(text[start:end].rstrip())
    return joined


def _read(raw: str) -> str:
    """Decode entities; a line end is white space like any other."""
    return re.sub(r"\s+", " ", html.unescape(raw))
