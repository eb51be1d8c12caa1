"""Texts and the positions where tags open, close or stand alone. Independent of file formats and the model."""

import bisect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Generic, TypeVar

from seq2seq.text.masks import OBJECT, any_of

KEPT = re.compile(f"({any_of(['symbol', 'code', 'tag', 'placeholder'])})")  # strings that make up a document's syntax
SPACES = re.compile(r"[^\S   ]+")  # white space that is not no-break
_OBJECT = re.compile(rf"{OBJECT}(\d+){OBJECT}")
VOID = re.compile("area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr")  # tags that enclose nothing
BREAKS = ("br", "hr")  # tags that separate words as white space does
KEY = "key"  # name of the tag of a mark as in `_File`, which only separates what the document separates

T = TypeVar("T")


class Kind(Enum):
    """The kind of a mark."""

    OPEN = "open"
    CLOSE = "close"
    POINT = "point"  # a tag that encloses nothing, such as a line break


@dataclass(frozen=True)
class Mark:
    """A tag of a text. Tags pair like brackets; a text that was cut also has tags without a partner."""

    position: int  # number of characters of the text before it
    kind: Kind
    number: int  # identifies the tag within its text
    is_link: bool = False


@dataclass(frozen=True)
class Marked:
    """A text and its marks, ordered by position."""

    text: str
    marks: tuple[Mark, ...] = ()

    def cut(self, ends: Sequence[int]) -> list["Marked"]:
        """Cut into parts that end at the given positions, the last at the end of the text.

        A mark between two parts goes to the first if it closes, else to the second.
        """
        starts = [0, *ends[:-1]]
        marks: list[list[Mark]] = [[] for _ in ends]
        part = 0
        for mark in self.marks:
            find = bisect.bisect_left if mark.kind is Kind.CLOSE else bisect.bisect_right
            part = max(part, min(find(ends, mark.position), len(ends) - 1))
            marks[part].append(replace(mark, position=mark.position - starts[part]))
        return [
            Marked(self.text[start:end], tuple(of_part))
            for start, end, of_part in zip(starts, ends, marks, strict=True)
        ]


def join(parts: Iterable[Marked]) -> Marked:
    """Join the parts that `Marked.cut` returned."""
    text, marks = "", list[Mark]()
    for part in parts:
        marks += [replace(mark, position=mark.position + len(text)) for mark in part.marks]
        text += part.text
    return Marked(text, tuple(marks))


@dataclass(frozen=True)
class Document:
    """A document's texts, and the function that writes the document with their translations."""

    segments: Sequence[Marked]
    write: Callable[[Sequence[Marked]], str]


class MarkedSegment(Generic[T]):
    """Collects a text and its markup from a document, and puts the markup back into the text's translation.

    Markup is of any type T.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._marks: list[Mark] = []
        self._length = 0
        self._of_marks: list[T] = []
        self._objects: list[T] = []
        self._spaced: set[int] = set()
        self._touching: set[tuple[int | None, int | None]] = set()  # numbers of tags

    def add_text(self, text: str) -> None:
        """Add text to translate."""
        self._texts.append(text)
        self._length += len(text)

    def add_mark(self, kind: Kind, markup: T, *, is_link: bool = False) -> None:
        """Add a tag."""
        self._marks.append(Mark(self._length, kind, len(self._of_marks), is_link))
        self._of_marks.append(markup)

    def add_break(self, markup: T, space: str = " ") -> None:
        """Add markup that is read as white space, such as a line break; `fill` replaces the space by the markup."""
        self.add_text(space if self._length else "")
        self._spaced.add(len(self._of_marks))
        self.add_mark(Kind.POINT, markup)

    def add_gap(self, following: str = "") -> None:
        """Add a space between two tags that touch; `fill` leaves it out where the tags still touch.

        A capital in tags of its own and the small letters that follow it are one word.
        """
        if self._texts and len(self._texts[-1]) == 1 and self._texts[-1].isupper() and following.islower():
            return
        self.add_text(" " if self._length else "")
        self._touching.add((len(self._of_marks) - 1, len(self._of_marks)))

    def add_object(self, markup: T) -> None:
        """Add markup that is read like a word."""
        self.add_text(f"{OBJECT}{len(self._objects)}{OBJECT}")
        self._objects.append(markup)

    @property
    def marked(self) -> Marked:
        """The text and its marks."""
        return Marked("".join(self._texts), tuple(self._marks))

    def fill(self, translated: Marked) -> Iterator[tuple[str, T | None]]:
        """Yield the parts of the translation, in order: a text and the markup after it, which is None at the end.

        translated has the same marks and objects as `marked`; those of texts that were added stay in the text.
        """
        start, last_number = 0, None
        for mark in [*translated.marks, None]:
            number, end = (mark.number, mark.position) if mark else (None, len(translated.text))
            text = translated.text[start:end]
            if last_number in self._spaced or (text.isspace() and (last_number, number) in self._touching):
                text = text.lstrip()
            *before, last = _OBJECT.split(text) if self._objects else [text]
            yield from (
                (part, self._objects[int(index)]) for part, index in zip(before[::2], before[1::2], strict=True)
            )
            yield last.rstrip() if number in self._spaced else last, None if number is None else self._of_marks[number]
            start, last_number = end, number


def with_space(
    text: str, start: int, end: int, low: int, high: int, is_space: Callable[[str], bool] = " \t".__contains__
) -> tuple[int, int]:
    """Return a span extended by the white space around it, at most to low and high."""
    while start > low and is_space(text[start - 1]):
        start -= 1
    while end < high and is_space(text[end]):
        end += 1
    return start, end
