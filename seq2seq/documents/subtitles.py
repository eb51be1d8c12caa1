"""SubRip subtitles: their text, spliced in place; numbers, times, positions, tags and the number of lines stay."""

import re

from seq2seq.documents.keeping import BOUNDARY, Translate
from seq2seq.errors import UserError

_TIME = r"\d+:\d\d:\d\d[,.]\d{1,3}"
_CUE = re.compile(rf"^[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}.*\n((?:.*\S.*\n?)*)", re.MULTILINE)
_TAG = re.compile(r"(</?[A-Za-z][^<>]*>|\{\\[^{}]*\}|(?:^|(?<=>))[-–—]\s*)")  # also the dash before a speaker's words


def translate_document(text: str, translate: Translate, src_lang: str, tgt_lang: str) -> str:
    """Translate every subtitle by itself, each speaker's words (lines that begin with a dash) by themselves.

    Raises:
        UserError: there is no subtitle, or a time does not have SubRip's form.
    """
    cues = list(_CUE.finditer(text))
    if not cues:
        raise UserError("it has no subtitle: expected blocks of a number, times and text")
    unread = _CUE.sub(lambda cue: "\n" + cue[1], text)
    if "-->" in unread:
        line = unread.count("\n", 0, unread.index("-->")) + 1
        raise UserError(f"line {line} is not as expected: an empty line, a number, then 00:00:01,000 --> 00:00:02,500")
    groups = [_speakers(cue[1].splitlines()) for cue in cues]
    lines = [group for speakers in groups for group in speakers]
    tags = [_TAG.findall(" ".join(group)) for group in lines]
    found = iter(translate([_TAG.sub(BOUNDARY, " ".join(group)) for group in lines]))
    parts, end, tags_of = [], 0, iter(tags)
    for cue, speakers in zip(cues, groups, strict=True):
        body = "\n".join(_wrap(_fill(next(found), next(tags_of)), len(group)) for group in speakers)
        parts += [text[end : cue.start(1)], body]
        end = cue.start(1) + len(cue[1].rstrip("\n"))
    return "".join([*parts, text[end:]])


def _speakers(lines: list[str]) -> list[list[str]]:
    """Put lines that go on a sentence together; a line that begins with a dash begins anew."""
    groups: list[list[str]] = []
    for line in lines:
        if not groups or re.match(r"(?:<[^<>]*>|\{[^{}]*\}|\s)*[-–—]", line):
            groups.append([])
        groups[-1].append(line.strip())
    return groups


def _fill(text: str, tags: list[str]) -> str:
    """Put tags in the places of the boundaries."""
    parts = text.split(BOUNDARY)
    return "".join(part + tag for part, tag in zip(parts, [*tags, ""], strict=True))


def _wrap(text: str, num_lines: int) -> str:
    """Break text into at most num_lines lines, the longest of which is as short as can be."""
    words = re.findall(r"(?:<[^<>]*>|\{[^{}]*\}|\S)+", text)
    longest = max((len(word) for word in words), default=0)
    for width in range(longest, len(text) + 1):
        lines = [""]
        for word in words:
            if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
                lines.append("")
            lines[-1] += f" {word}" if lines[-1] else word
        if len(lines) <= num_lines:
            return "\n".join(lines)
    return " ".join(words)
