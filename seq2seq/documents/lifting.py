"""Makes marks of the tags that are written out in a text, and writes them out again; knows no model."""

import bisect
import re
from collections import Counter
from dataclasses import dataclass, replace

from seq2seq.documents.kept import KEPT
from seq2seq.documents.marked import OBJECT, Kind, Mark, Marked, Segment

VOID = re.compile("area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr")  # tags that enclose nothing
BREAKS = ("br", "hr")  # tags that part words as white space does
_TAG = re.compile(r"<(?P<end>/?)(?P<name>[A-Za-z][^\s/>]*)[^<>]*?(?P<empty>/?)>|<!--[\s\S]*")


@dataclass(frozen=True)
class _Tag:
    kind: Kind
    name: str
    start: int
    end: int


class Lifted:
    """A text whose pairs of tags, tags that enclose nothing, and comments have become marks.

    A tag without its partner becomes none: it is something that the text is about. Nor do tags that part what would be
    kept as one.
    """

    def __init__(self, text: Marked) -> None:
        positions = [mark.position for mark in text.marks]
        tags = _find_tags(text.text, positions)
        if tags and not _is_kept_without(tags, text.text):
            tags = []
        self._text, self._at, self._num_marks = text, 0, 0
        self._segment: Segment[str | Mark] = Segment()
        for tag in tags:
            start, end = self._with_space(tag)
            index = bisect.bisect_left(positions, start)
            has_marks = index < len(positions) and positions[index] <= end
            if tag.kind is Kind.POINT and not has_marks and self._is_read_as_space(tag, start, end):
                self._add_until(start)
                self._segment.add_break(text.text[start:end])
                self._at = end
            else:
                self._add_until(tag.start)
                self._segment.add_mark(tag.kind, text.text[tag.start : tag.end])
                self._at = tag.end
        self._add_until(len(text.text))
        self.marked = self._segment.marked

    def _with_space(self, tag: _Tag) -> tuple[int, int]:
        """Give where a tag and the space around it begin and end."""
        text, start, end = self._text.text, tag.start, tag.end
        while start > self._at and text[start - 1] in " \t":
            start -= 1
        while end < len(text) and text[end] in " \t":
            end += 1
        return start, end

    def _is_read_as_space(self, tag: _Tag, start: int, end: int) -> bool:
        """Tell whether a tag parts the words of a line; start and end are those with the space around it."""
        text = self._text.text
        is_within_line = start > 0 and end < len(text) and "\n" not in (text[start - 1], text[end])
        return is_within_line and (tag.name in BREAKS or end - start > tag.end - tag.start)

    def _add_until(self, end: int) -> None:
        """Add the text before end, and the marks in it and right behind it."""
        marks = self._text.marks
        while self._num_marks < len(marks) and marks[self._num_marks].position <= end:
            mark = marks[self._num_marks]
            self._add_text(mark.position)
            self._segment.add_mark(mark.kind, mark)
            self._num_marks += 1
        self._add_text(end)

    def _add_text(self, end: int) -> None:
        first, *others = self._text.text[self._at : end].split(OBJECT)
        self._segment.add_text(first)
        for other in others:
            self._segment.add_object(OBJECT)
            self._segment.add_text(other)
        self._at = max(self._at, end)

    def put_back(self, translated: Marked) -> Marked:
        """Write the tags out in a translation of `marked`."""
        parts: list[str] = []
        marks: list[Mark] = []
        length = 0
        for part, markup in self._segment.fill(translated):
            parts += [part, markup] if isinstance(markup, str) else [part]
            length += len(part) + (len(markup) if isinstance(markup, str) else 0)
            if isinstance(markup, Mark):
                marks.append(replace(markup, position=length))
        return Marked("".join(parts), tuple(marks))


def _find_tags(text: str, positions: list[int]) -> list[_Tag]:
    """Find the tags that have a partner, or need none, outside of code and placeholders; positions are of marks."""
    found: list[_Tag] = []
    unpaired: set[int] = set()  # places in found
    opened: list[int] = []
    names: Counter[str] = Counter()  # of what is open
    for match in KEPT.finditer(text):
        tag = _TAG.fullmatch(match[0])
        index = bisect.bisect_right(positions, match.start())
        if tag is None or (index < len(positions) and positions[index] < match.end()):  # a mark within a tag
            continue
        name = (tag["name"] or "").lower()
        is_point = not name or tag["empty"] or VOID.fullmatch(name)
        kind = Kind.POINT if is_point else Kind.CLOSE if tag["end"] else Kind.OPEN
        place = len(found)
        found.append(_Tag(kind, name, match.start(), match.end()))
        if kind is Kind.OPEN:
            opened.append(place)
            names[name] += 1
        elif kind is Kind.CLOSE and names[name]:
            while found[opened[-1]].name != name:  # what is still open within has no partner
                unpaired.add(opened[-1])
                names[found[opened.pop()].name] -= 1
            names[found[opened.pop()].name] -= 1
        elif kind is Kind.CLOSE:
            unpaired.add(place)
    unpaired.update(opened)
    return [tag for place, tag in enumerate(found) if place not in unpaired]


def _is_kept_without(tags: list[_Tag], text: str) -> bool:
    """Tell whether the same is kept if the text around the tags is joined: `{<b>x</b>}` is no placeholder."""
    starts = {tag.start for tag in tags}
    kept = [match[0] for match in KEPT.finditer(text) if match.start() not in starts]
    ends = [0, *(tag.end for tag in tags)]
    joined = "".join(text[end:start] for end, start in zip(ends, [*(tag.start for tag in tags), None], strict=True))
    return KEPT.findall(joined) == kept
