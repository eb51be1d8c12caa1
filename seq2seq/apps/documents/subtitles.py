"""SubRip and WebVTT subtitles: text is spliced in place; numbers, times, positions, tags and numbers of lines stay."""

import html
import logging
import re

from seq2seq.apps.documents.in_place import Passage, splicing_document
from seq2seq.apps.documents.marked_text import KEPT, Document, Kind, Marked, MarkedSegment
from seq2seq.errors import UserError

log = logging.getLogger(__name__)

_TIME = r"\d+:\d\d:\d\d[,.]\d{1,3}"
_TIMES = re.compile(rf"^[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}.*$", re.MULTILINE)  # a cue's second line
_VTT_TIME = r"(?:\d+:)?\d\d:\d\d\.\d{3}"
_VTT_TIMES = re.compile(rf"^[ \t]*{_VTT_TIME}[ \t]+-->[ \t]+{_VTT_TIME}(?:[ \t].*|\r)?$", re.MULTILINE)
_EMPTY_LINE = re.compile(r"^\r?(?:\n|\Z)", re.MULTILINE)  # ends a WebVTT block
_LINE = re.compile(r"[^\r\n]*\r?\n?")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<[\d:.]+>|\{\\[^{}]*\}")  # <00:01.000>: when a word appears
_SYNTAX = re.compile(r"-->|[<>]|\{\\")  # SubRip cannot escape it
_DASH = re.compile(r"(?:<[^<>]*>|\{[^{}]*\}|\s)*[-–—]\s*")  # before a speaker's words, with the tags before it


def read(text: str, src_lang: str, tgt_lang: str) -> Document[str]:
    """Read every subtitle as one text; if its lines begin with dashes, read the words of each speaker as one text.

    A blank line within a subtitle separates texts. A text whose translation would be syntax stays, with a warning.

    Raises:
        UserError: there is no subtitle, or a time does not have SubRip's form.
    """
    times = _find_times(text, _TIMES, "an empty line, a number, then 00:00:01,000 --> 00:00:02,500")
    ends = [*(_number_before(text, cue.start()) for cue in times[1:]), len(text)]
    return _document(text, times, ends, escapes=False)


def read_vtt(text: str, src_lang: str, tgt_lang: str) -> Document[str]:
    """Read WebVTT as `read` reads SubRip; a subtitle ends at an empty line, and all else stays, such as comments."""
    if not re.match(r"WEBVTT(?=\s|\Z)", text):
        raise UserError("it does not begin with WEBVTT")
    times = _find_times(text, _VTT_TIMES, "00:01.000 --> 00:02.500")
    following = [*(cue.start() for cue in times[1:]), len(text)]
    empty = (_EMPTY_LINE.search(text, min(cue.end() + 1, len(text))) for cue in times)
    ends = [min(end, line.start()) if line else end for line, end in zip(empty, following, strict=True)]
    return _document(text, times, ends, escapes=True)


def _find_times(text: str, form: re.Pattern[str], expected: str) -> list[re.Match[str]]:
    times = list(form.finditer(text))
    if not times:
        raise UserError("it has no subtitle: expected blocks of a number, times and text")
    for number, line in enumerate(text.split("\n"), start=1):
        if "-->" in line and not form.fullmatch(line):
            raise UserError(f"line {number} is not as expected: {expected}")
    return times


def _document(text: str, times: list[re.Match[str]], ends: list[int], *, escapes: bool) -> Document[str]:
    starts = [min(cue.end() + 1, len(text)) for cue in times]
    groups = [group for start, end in zip(starts, ends, strict=True) for group in _cut_speakers(start, text[start:end])]

    def write(passage: Passage, translation: Marked) -> str:
        syntax, in_source = (sorted(_SYNTAX.findall(marked.text)) for marked in (translation, passage.source))
        if syntax != in_source and not escapes:
            log.warning("not translated, since SubRip cannot hold its translation %r", translation.text)
            return text[passage.start : passage.end]
        parts = passage.segment.fill(translation)
        written = " ".join("".join((_escape(part) if escapes else part) + (tag or "") for part, tag in parts).split())
        return _wrap(written, re.findall(r"\r?\n", text[passage.start : passage.end]))

    return splicing_document(text, [Passage(*group, _read(text, *group)) for group in groups], write)


def _escape(text: str) -> str:
    """Escape the characters that are syntax in WebVTT, but not in strings that stay as they are, such as `&amp;`."""
    return "".join(part if i % 2 else html.escape(part, quote=False) for i, part in enumerate(KEPT.split(text)))


def _number_before(text: str, times: int) -> int:
    """Return where the line with a cue's number begins; without such a line, where the line with its times begins."""
    start = text.rfind("\n", 0, max(0, times - 1)) + 1
    return start if text[start:times].strip().isdigit() else times


def _cut_speakers(start: int, body: str) -> list[tuple[int, int]]:
    """Return where each speaker's words begin, after the dash, and end; a line without a dash continues the words."""
    groups: list[tuple[int, int]] = []
    is_apart = True
    for line in _LINE.finditer(body):
        words = line[0].strip()
        if not words:
            is_apart = True
            continue
        end = start + line.start() + len(line[0].rstrip())
        dash = _DASH.match(line[0])
        if dash or is_apart:
            begin = dash.end() if dash else len(line[0]) - len(line[0].lstrip())
            groups.append((start + line.start() + begin, end))
        else:
            groups[-1] = groups[-1][0], end
        is_apart = False
    return [(begin, max(begin, end)) for begin, end in groups]


def _read(text: str, start: int, end: int) -> MarkedSegment[str]:
    """Read several lines and their tags as one line."""
    segment: MarkedSegment[str] = MarkedSegment()
    line = " ".join(text[start:end].split())
    if _TAG.search(_TAG.sub("", line)):  # removing the tags makes another tag: "<<b>/i>"
        segment.add_text(line)
        return segment
    last_end = 0
    for tag in _TAG.finditer(line):
        segment.add_text(line[last_end : tag.start()])
        kind = (
            Kind.POINT
            if tag[0][0] == "{" or tag[0][1].isdigit()
            else Kind.CLOSE
            if tag[0].startswith("</")
            else Kind.OPEN
        )
        segment.add_mark(kind, tag[0])
        last_end = tag.end()
    segment.add_text(line[last_end:])
    return segment


def _wrap(text: str, line_ends: list[str]) -> str:
    """Break text into at most one more line than line_ends, so that the longest line is as short as possible."""
    words = re.findall(r"(?:<[^<>]*>|\{[^{}]*\}|\S)+", text)
    low, high = max((len(word) for word in words), default=0), len(text)
    while low < high:  # the least width that suffices
        width = (low + high) // 2
        low, high = (low, width) if len(_fill_lines(words, width)) <= len(line_ends) + 1 else (width + 1, high)
    lines = _fill_lines(words, low)
    return "".join(line + end for line, end in zip(lines, [*line_ends[: len(lines) - 1], ""], strict=True))


def _fill_lines(words: list[str], width: int) -> list[str]:
    lines: list[list[str]] = [[]]
    length = 0  # of the last line
    for word in words:
        if lines[-1] and length + 1 + len(word) > width:
            lines.append([])
            length = 0
        length += len(word) + bool(lines[-1])
        lines[-1].append(word)
    return [" ".join(line) for line in lines]
