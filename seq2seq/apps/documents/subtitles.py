"""SubRip and WebVTT subtitles: text is spliced in place; numbers, times, positions, tags and numbers of lines stay."""

import bisect
import functools
import html
import itertools
import logging
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seq2seq.apps.documents.in_place import Passage, splicing_document
from seq2seq.apps.documents.marked_text import KEPT, OBJECT, SPACES, Document, Kind, Marked, MarkedSegment
from seq2seq.errors import UserError

log = logging.getLogger(__name__)

_TIME = r"\d+:\d\d:\d\d[,.]\d{1,3}"
_TIMES = re.compile(rf"^(?:[ \t]*\d+[ \t]*\r?\n)?[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}.*$", re.MULTILINE)
_VTT_TIME = r"(?:\d+:)?\d\d:\d\d\.\d{3}"
_VTT_TIMES = re.compile(rf"^[ \t]*{_VTT_TIME}[ \t]*-->[ \t]*{_VTT_TIME}(?:[ \t].*|\r)?$", re.MULTILINE)
_EMPTY_LINE = re.compile(r"^\r?(?:\n|\Z)", re.MULTILINE)  # ends a WebVTT block
_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<[\d:.]+>|\{\\[^{}]*\}")  # <00:01.000>: when a word appears
_SYNTAX = re.compile(r"-->|[<>]|\{\\")  # SubRip cannot escape it
# between lines and voices, around a sound in brackets, and before the dash of another speaker in the same line
_CUT = re.compile(r"\r?\n|(?=<v[ .])|(?<=\])[ \t]*|(?=\[[^\[\]\r\n]*\])|(?<=[.!?…])[ \t]+(?=[-–—]+[ \t]?[^\W\d_])")
_TAGS = re.compile(rf"(?>(?:{_TAG.pattern}|\s)*)")
_NAME = r"[A-Z][A-Z\d.'’#-]*+(?: [A-Z\d.'’#-]++){0,3}:(?=\s|$)"  # of a speaker
_LEADING = re.compile(rf"(?>(?:{_TAGS.pattern}(?:[-–—]+|>>+|[♪♫\[]|\((?=[^()]*\)\W*$)|{_NAME}))*)\s*+")
_WORDS = re.compile(rf"{_TAG.pattern}|[♪♫\]\s]++|(?P<words>[^♪♫\]\s<{{]++|[<{{])")
_MOST_JOINED = 400  # characters of a sentence in several cues


class _Words(NamedTuple):
    """What somebody says in one cue, between dashes, names, brackets and notes."""

    start: int
    end: int
    is_first: bool  # in its cue, after nothing but tags
    is_last: bool  # in its line, before nothing but tags


@dataclass(frozen=True)
class Speech(Passage):
    """What somebody says in one cue, or a sentence that goes on in the next cues."""

    words: Sequence[_Words]


def read(text: str, src_lang: str, tgt_lang: str) -> Document:
    """Read the words of each speaker in a subtitle as one text, and a sentence that goes on in the next with it.

    Dashes, names in capitals, brackets and notes at the ends stay, and a text whose translation would be syntax.
    """
    times = _find_times(text, _TIMES, "an empty line, a number, then 00:00:01,000 --> 00:00:02,500")
    return _document(text, times, [*(cue.start() for cue in times[1:]), len(text)], escapes=False)


def read_vtt(text: str, src_lang: str, tgt_lang: str) -> Document:
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


def _document(text: str, times: list[re.Match[str]], ends: list[int], *, escapes: bool) -> Document:
    def write(speech: Speech, translation: Marked) -> str:
        syntax, in_source = (sorted(_SYNTAX.findall(marked.text)) for marked in (translation, speech.segment.marked))
        if syntax != in_source and not escapes:
            log.warning("not translated, since SubRip cannot hold its translation %r", translation.text)
            return text[speech.start : speech.end]
        written = SPACES.sub(" ", speech.write(translation, _escape if escapes else str))
        sources = [text[words.start : words.end] for words in speech.words]
        gaps = [text[words.end : following.start] for words, following in itertools.pairwise(speech.words)]
        lines = map(_wrap, _divide(written.strip(), sources), (re.findall(r"\r?\n", source) for source in sources))
        return "".join(itertools.chain(*zip(lines, [*gaps, ""], strict=True)))

    starts = (min(cue.end() + 1, len(text)) for cue in times)
    return splicing_document(text, _find_speeches(text, zip(starts, ends, strict=True)), write)


def _escape(text: str) -> str:
    """Escape the characters that are syntax in WebVTT, but not in strings that stay as they are, such as `&amp;`."""
    return "".join(part if i % 2 else html.escape(part, quote=False) for i, part in enumerate(KEPT.split(text)))


def _find_speeches(text: str, cues: Iterable[tuple[int, int]]) -> list[Speech]:
    speeches: list[list[_Words]] = []
    for words in itertools.chain.from_iterable(_find_words(text, *cue) for cue in cues):
        if speeches and _goes_on(text, speeches[-1], words):
            speeches[-1].append(words)
        else:
            speeches.append([words])
    segments = (_read(" ".join(text[words.start : words.end] for words in speech)) for speech in speeches)
    return [Speech(of[0].start, of[-1].end, segment, of) for of, segment in zip(speeches, segments, strict=True)]


def _goes_on(text: str, speech: list[_Words], words: _Words) -> bool:
    """Return whether a sentence goes on in the first words of the next cue."""
    before, after = text[speech[-1].start : speech[-1].end], text[words.start : words.end]
    is_plain = speech[-1].is_last and words.is_first and not _TAG.search(before + after)
    is_open = is_plain and before[-1] not in '.!?…:;"”»' and words.end - speech[0].start <= _MOST_JOINED
    return is_open and (before[-1] == "," or after[0].islower() or (not before.isupper() and after[-1] in ".,!?…"))


def _find_words(text: str, start: int, end: int) -> list[_Words]:
    """Return what each speaker says; a line without a dash, a name or a note continues the words."""
    found: list[_Words] = []
    is_apart, at = True, start
    for stop, following in [*(cut.span() for cut in _CUT.finditer(text, start, end)), (end, end)]:
        rest = _LEADING.sub("", text[at:stop], count=1)
        leading, begin = stop - len(rest), stop - len(_TAGS.sub("", rest, count=1))
        last = begin + len(text[begin:stop].rstrip("♪♫] \t"))
        if text[last - 1] in ">}":  # perhaps a tag after the words
            last = max((match.end() for match in _WORDS.finditer(text, begin, stop) if match["words"]), default=begin)
        if text[at:leading].rstrip().endswith("("):
            last = text.rindex(")", begin, stop)
        before = at < leading and _TAGS.sub("", text[at:leading])
        after = last < stop and _TAGS.sub("", text[last:stop])
        has_words = begin < last
        if _TAG.search(text, begin, last):  # the tags at the ends may belong to those within
            begin, last = leading, last + len(text[last : stop - len(_TAGS.sub("", text[last:stop], count=1))].rstrip())
        if has_words and (is_apart or before or text.startswith(("<v ", "<v."), at)):
            found.append(_Words(begin, last, not (found or before), True))
        if has_words:
            found[-1] = found[-1]._replace(end=last, is_last=not after)
        is_apart, at = not has_words or bool(after), following
    return found


def _read(source: str) -> MarkedSegment[str]:
    """Read several lines and their tags as one line."""
    segment: MarkedSegment[str] = MarkedSegment()
    line = SPACES.sub(" ", source)
    is_nested, last_end = bool(_TAG.search(_TAG.sub("", line))), 0  # where removing the tags makes one: "<<b>/i>"
    for tag in () if is_nested else _TAG.finditer(line):
        segment.add_text(line[last_end : tag.start()])
        is_point = tag[0][0] == "{" or tag[0][1].isdigit()
        segment.add_mark(Kind.POINT if is_point else Kind.CLOSE if tag[0][1] == "/" else Kind.OPEN, tag[0])
        last_end = tag.end()
    segment.add_text(line[last_end:])
    return segment


def _divide(written: str, sources: Sequence[str]) -> list[str]:
    """Cut a translation at spaces, so that every part has the same share of its characters as its source has."""
    cuts, length, done = [0], sum(map(len, sources)), 0
    for source in sources[:-1]:
        done += len(source)
        spaces = [match.start() for match in re.finditer(" ", written) if match.start() > cuts[-1]]
        cuts.append(min(spaces, key=lambda space: abs(space - len(written) * done / length), default=len(written)))
    return [written[start:end].strip(" ") for start, end in itertools.pairwise([*cuts, len(written)])]


def _wrap(text: str, line_ends: list[str]) -> str:
    """Break text into at most one more line than line_ends, so that the longest line is as short as possible."""
    joined = _TAG.sub(lambda tag: tag[0].replace(" ", OBJECT), text)
    wrap = functools.partial(textwrap.wrap, joined, break_long_words=False, break_on_hyphens=False)
    widths = range(1, len(text) + 1)
    lines = wrap(1 + bisect.bisect_left(widths, True, key=lambda width: len(wrap(width)) <= len(line_ends) + 1))
    wrapped = "".join(map("".join, itertools.zip_longest(lines, line_ends[: len(lines) - 1], fillvalue="")))
    return wrapped.replace(OBJECT, " ")
