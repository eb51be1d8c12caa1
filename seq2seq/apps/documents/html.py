"""HTML: text between tags, spliced in place; tags, attributes, comments, scripts and code stay byte for byte."""

import html
import re
from collections.abc import Sequence
from functools import partial

from seq2seq.apps.documents.in_place import Passage, splicing_document
from seq2seq.apps.documents.marked_text import BREAKS, SPACES, VOID, Document, Kind, Marked, MarkedSegment, with_space
from seq2seq.errors import UserError
from seq2seq.text.masks import NO_BREAK

_INLINE = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|br|cite|code|data|del|dfn|em|font|i|img|ins|kbd|label|mark|q|r[bpt]|rtc|ruby|s|samp|"
    "small|span|strike|strong|sub|sup|time|tt|u|var|wbr"
)
_UNTRANSLATED = re.compile("code|kbd|math|pre|ruby|samp|script|style|su[bp]|svg|template|textarea|tt|var")
_ENDING = re.compile(  # an element whose end tag may be left out, and one that ends it (HTML, section 13.1.2.4)
    "p (?:address|article|aside|blockquote|center|details|dialog|dir|div|d[dlt]|fieldset|figcaption|figure|footer|form|"
    "h[1-6]|header|hgroup|hr|li|main|menu|nav|ol|p|pre|search|section|summary|table|ul)|li li|d[dt] d[dt]|"
    "head (?:head|body)|option (?:option|optgroup|hr)|optgroup (?:optgroup|hr)|t[dh] t[dh]|t[dhr] tr|"
    "t(?:[dhr]|body|foot|head) t(?:body|foot|head)|(?:caption|colgroup) (?:caption|colgroup|t(?:[dhr]|body|foot|head))"
)
_MAX_DEPTH = 100  # open elements among which a tag ends one
_ATTRIBUTE = re.compile(r"""([^\s"'<>/=]++)(?>(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>"']++)))?)""")
_RAW = {tag: re.compile(rf"</{tag}(?=[\s/>])", re.IGNORECASE) for tag in ("script", "style")}
_CHARSET = re.compile(r"<meta\b[^<>]*\bcharset\s*+=\s*+[\"']?+\s*+([\w-]+)", re.IGNORECASE)
# Every alternative either fails at once or consumes all that it has read, so that reading takes linear time.
_MARKUP = re.compile(
    r"""<(?:!--(?:-?>|.*?(?:--!?>|\Z))
      | !\[CDATA\[.*?(?:\]\]>|\Z)
      | \?(?:php\b|=).*?(?:\?>|\Z)
      | \?(?>(?:[^?>]|\?(?!>))*)(?:\?>|>(?:(?>(?:[^?<]|\?(?!>))*)\?>)?|\Z)
      | (?:!|/(?![A-Za-z]))[^>]*(?:>|\Z)
      | /(?P<end>[A-Za-z][^\s/>]*)[^>]*(?:>|\Z)
      | (?P<start>[A-Za-z][^\s/>]*+)
        (?>(?:[^>=/]++|/(?!>)|=\s*+(?>(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?))*)(?P<slash>/)?(?:>|\Z))
    | \{(?:%[^{}%]*+%|\#[^{}\#]*+\#)\}
    | (?P<object>\{\{[^{}]*+\}\}|<%[^%]*+%>|(?<!\d)\d{1,3}(?>(?:NO_BREAK\d{3})+)(?!\d))
    | &(?P<entity>(?:nbsp|numsp|ensp|emsp|thinsp|zwj|zwnj|shy|lrm|rlm|\#0*+(?:160|173|8199|8239)
      |\#[xX]0*+(?:[aA][0dD]|2007|202[fF]))(?![\w.-]);?)""".replace("NO_BREAK", NO_BREAK),
    re.VERBOSE | re.DOTALL,
)

Token = tuple[str, str, int, int]  # kind (text, start, end, empty, object, other), tag, where it begins and ends


def read(text: str, src_lang: str, tgt_lang: str, *, is_file: bool = True) -> Document:
    """Read an HTML document; its translation also changes the language of `<html lang>`."""
    charset = _CHARSET.search(text) if is_file else None
    if charset and charset[1].lower().replace("-", "") != "utf8":
        raise UserError(f"it declares charset={charset[1]}, expected utf-8: convert it and its <meta charset>")
    passages, escape = [_read(text, tokens) for tokens in _find_texts(text)], partial(html.escape, quote=False)
    document = splicing_document(text, passages, lambda passage, translation: passage.write(translation, escape))
    language = re.compile(rf"(<html\b[^<>]*\blang\s*=\s*[\"']?){re.escape(src_lang)}\b(?:-\w+)?", re.IGNORECASE)

    def write(translations: Sequence[Marked]) -> str:
        return language.sub(rf"\g<1>{tgt_lang}", document.write(translations), count=1)

    return Document(document.segments, write)


def _find_texts(text: str) -> list[list[Token]]:
    """Return a document's texts as lists of tokens; an untranslated inline element is one token, of kind object."""
    segments: list[list[Token]] = [[]]
    elements, now = [("", True)], True  # the open elements, and whether the text of each is translated
    for kind, tag, start, end in _tokenize(text):
        is_block = kind in ("start", "end", "empty") and not _INLINE.fullmatch(tag)
        before, now = now, now if kind in ("text", "object") else _follow(elements, kind, tag, text[start:end])
        if not before and segments[-1]:
            segments[-1].append((*segments[-1].pop()[:3], end))
        is_left = now and not before and (is_block or kind == "start")  # an untranslated element that may go on
        if is_left:
            segments[-1][-1:] = []
        if is_left or (before and (is_block or (not now and kind == "end"))):
            segments.append([])
        elif before and kind == "end" and segments[-1][-1:] and segments[-1][-1][:2] == ("start", tag):
            segments[-1].append(("object", tag, segments[-1].pop()[2], end))  # an empty element, such as an icon
        elif before:
            segments[-1].append((kind if now else "object", tag, start, end))
    if not now and segments[-1]:  # an element that is not closed: no text can follow it
        segments[-1].pop()
    return [trimmed for segment in segments if (trimmed := _trim(segment, text))]


def _follow(elements: list[tuple[str, bool]], kind: str, tag: str, markup: str) -> bool:
    """Change the open elements, of the inline ones those that matter, at a tag; return whether text is translated."""
    is_inline, last = bool(_INLINE.fullmatch(tag)), len(elements) - 1
    for index in range(last, last if is_inline and kind != "end" else max(last - _MAX_DEPTH, 0), -1):
        name = elements[index][0]
        if name == tag if kind == "end" else _ENDING.fullmatch(f"{name} {tag}"):
            del elements[index:]
        if is_inline or (
            name == tag if kind == "end" else not (_ENDING.fullmatch(f"{name} {name}") or _INLINE.fullmatch(name))
        ):
            break
    if kind == "start" and not VOID.fullmatch(tag):
        is_translated = _is_translated(tag, markup, elements[-1][1])
        if not is_inline or is_translated != elements[-1][1] or elements[-1][0] == tag:
            elements.append((tag, is_translated))
    return elements[-1][1]


def _trim(segment: list[Token], text: str) -> list[Token]:
    """Remove white space and comments at both ends; return nothing if no text is left."""
    indices = [i for i, (kind, _, *span) in enumerate(segment) if kind != "other" and text[slice(*span)].strip()]
    return segment[indices[0] : indices[-1] + 1] if any(segment[i][0] == "text" for i in indices) else []


def _read(text: str, tokens: list[Token]) -> Passage:
    """Return a text with its markup.

    The markup of a tag that encloses nothing includes any white space around the tag, and is then read as a space.
    """
    start, end = tokens[0][2], tokens[-1][3]
    start += len(text[start:end]) - len(text[start:end].lstrip())
    end = start + len(text[start:end].rstrip())
    segment: MarkedSegment[str] = MarkedSegment()
    last_end = start
    for previous, (kind, tag, first, last) in zip([("", ""), *tokens], tokens, strict=False):
        if kind == "text":
            continue
        if (previous[0], kind) == ("end", "start"):
            segment.add_gap(text[last : last + 1])  # what touches its neighbour is a word of its own
        is_alone = kind in ("empty", "other") or (kind != "object" and VOID.fullmatch(tag))
        is_cut_short = text[first] == "&" and text[last - 1] != ";"  # an entity without its semicolon
        begin, finish = with_space(text, first, last, last_end, end, str.isspace) if is_alone else (first, last)
        segment.add_text(SPACES.sub(" ", html.unescape(text[last_end:begin])))
        markup = text[begin:last] + ";" * is_cut_short + text[last:finish]
        last_end = finish
        if kind == "object":
            segment.add_object(markup)
        elif not is_alone:
            segment.add_mark(Kind.OPEN if kind == "start" else Kind.CLOSE, markup, is_link=tag == "a")
        elif tag in BREAKS or html.unescape(markup) != html.unescape(markup).strip():
            segment.add_break(markup)
        else:
            segment.add_mark(Kind.POINT, markup)
    segment.add_text(SPACES.sub(" ", html.unescape(text[last_end:end])))
    return Passage(start, end, segment)


def _tokenize(text: str) -> list[Token]:
    """Cut a document into its tokens, in one pass.

    As in a browser, a comment, declaration, script or style sheet without an end reaches to the end of the document; as
    in XHTML, a CDATA section ends at ]]>. A tag without an end is text.
    """
    tokens: list[Token] = []
    start = 0
    while match := _MARKUP.search(text, start):
        kind, tag = ("end", match["end"]) if match["end"] else ("start", match["start"] or "")
        first, end = match.span()
        if tag and text[end - 1] != ">":
            break
        if match["entity"]:
            kind, tag = "empty", "wbr"  # spaces and invisible characters enclose nothing
        elif not tag:
            kind = "object" if match["object"] else "other"
        elif match["slash"]:
            kind = "empty"
        elif kind == "start" and tag.lower() in _RAW:
            closing = _RAW[tag.lower()].search(text, end)
            end = closing.start() if closing else len(text)
        if first > start:
            tokens.append(("text", "", start, first))
        tokens.append((kind, tag.lower(), first, end))
        start = end
    return [*tokens, ("text", "", start, len(text))] if start < len(text) else tokens


def _is_translated(name: str, tag: str, is_inherited: bool) -> bool:
    attributes: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(tag) if "translate" in tag.lower() else ():
        attributes.setdefault(match[1].lower(), (match[2] or match[3] or match[4] or "").lower())
    value, is_code = attributes.get("translate"), bool(_UNTRANSLATED.fullmatch(name))
    if value in ("", "yes") and (not is_code or _INLINE.fullmatch(name)):
        return True
    return is_inherited and not (is_code or value == "no" or "notranslate" in attributes.get("class", "").split())
