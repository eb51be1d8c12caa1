"""Makes marks of the tags that are written out in a text, and writes them out again; knows no model."""

import bisect
import re
from collections import Counter
from dataclasses import dataclass, replace

from seq2seq.documents.marked import BREAKS, KEPT, OBJECT, VOID, Kind, Mark, Marked, Segment, with_space

_TAG = re.compile(r"<(?P<end>/?)(?P<name>[A-Za-z][^\s/>]*)[^<>]*?(?P<empty>/?)>|<!--[\s\S]*")


@dataclass(frozen=True)
class _Tag:
    kind: Kind
    name: str
    start: int
    end: int


class Lifted:
    """A text whose pairs of tags, tags that enclose nothing, and comments have become marks.

    A tag without its partner stays: it is something that the text is about. So do tags between what would otherwise be
    kept as one.
    """

    def __init__(self, source: Marked) -> None:
        text, positions = source.text, [mark.position for mark in source.marks]
        tags = _find_tags(text, positions)
        if not _is_kept_without(tags, text):
            tags = []
        self._segment: Segment[str | Mark] = Segment()
        items = [*((mark.position, mark) for mark in source.marks), *((tag.start, tag) for tag in tags)]
        at = 0
        for position, item in sorted(items, key=lambda item: item[0]):  # a mark goes before a tag at the same place
            if isinstance(item, Mark):
                self._add_text(text[at:position])
                self._segment.add_mark(item.kind, item)
                at = max(at, position)
                continue
            start, end = with_space(text, item.start, item.end, at, len(text))
            is_within_line = start > 0 and end < len(text) and "\n" not in (text[start - 1], text[end])
            parts_words = item.name in BREAKS or end - start > item.end - item.start
            mark = bisect.bisect_left(positions, start)
            has_marks = mark < len(positions) and positions[mark] <= end
            if item.kind is Kind.POINT and is_within_line and parts_words and not has_marks:
                self._add_text(text[at:start])
                self._segment.add_break(text[start:end])
                at = end
            else:
                self._add_text(text[at : item.start])
                self._segment.add_mark(item.kind, text[item.start : item.end])
                at = item.end
        self._add_text(text[at:])
        self.marked = self._segment.marked

    def _add_text(self, text: str) -> None:
        first, *others = text.split(OBJECT)
        self._segment.add_text(first)
        for other in others:
            self._segment.add_object(OBJECT)
            self._segment.add_text(other)

    def put_back(self, translated: Marked) -> Marked:
        """Write the tags out in a translation of `marked`."""
        parts: list[str] = []
        marks: list[Mark] = []
        length = 0
        for text, markup in self._segment.fill(translated):
            part = text + markup if isinstance(markup, str) else text
            parts.append(part)
            length += len(part)
            if isinstance(markup, Mark):
                marks.append(replace(markup, position=length))
        return Marked("".join(parts), tuple(marks))


def _find_tags(text: str, positions: list[int]) -> list[_Tag]:
    """Find the tags that have or need no partner and no mark within, outside of code and placeholders."""
    found: list[_Tag] = []
    unpaired: set[int] = set()  # indices of found
    opened: list[int] = []
    names: Counter[str] = Counter()  # of the open tags
    for match in KEPT.finditer(text):
        tag = _TAG.fullmatch(match[0])
        mark = bisect.bisect_right(positions, match.start())
        if tag is None or (mark < len(positions) and positions[mark] < match.end()):
            continue
        name = (tag["name"] or "").lower()
        is_point = not name or tag["empty"] or VOID.fullmatch(name)
        kind = Kind.POINT if is_point else Kind.CLOSE if tag["end"] else Kind.OPEN
        index = len(found)
        found.append(_Tag(kind, name, match.start(), match.end()))
        if kind is Kind.OPEN:
            opened.append(index)
            names[name] += 1
        elif kind is Kind.CLOSE and names[name]:
            while found[opened[-1]].name != name:  # tags still open within have no partner
                unpaired.add(opened[-1])
                names[found[opened.pop()].name] -= 1
            names[found[opened.pop()].name] -= 1
        elif kind is Kind.CLOSE:
            unpaired.add(index)
    unpaired.update(opened)
    return [tag for index, tag in enumerate(found) if index not in unpaired]


def _is_kept_without(tags: list[_Tag], text: str) -> bool:
    """Tell whether the same is kept if the text around the tags is joined: `{<b>x</b>}` is no placeholder."""
    starts = {tag.start for tag in tags}
    kept = [match[0] for match in KEPT.finditer(text) if match.start() not in starts]
    ends = [0, *(tag.end for tag in tags)]
    joined = "".join(text[end:start] for end, start in zip(ends, [*(tag.start for tag in tags), None], strict=True))
    return KEPT.findall(joined) == kept
