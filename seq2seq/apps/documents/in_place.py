"""Writes a document whose texts are replaced in place; everything else stays as it is. Independent of the model."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from seq2seq.apps.documents.marked_text import Document, Marked, MarkedSegment


@dataclass(frozen=True)
class Passage:
    """A text and its markup, and where both begin and end in the document."""

    start: int
    end: int
    segment: MarkedSegment[str]

    @cached_property
    def source(self) -> Marked:
        """The text to translate."""
        return self.segment.marked


P = TypeVar("P", bound=Passage)


def splice(content: str, replacements: Iterable[tuple[int, int, str]]) -> str:
    """Return content with its replacements (start, end, new content), which are in order and do not overlap."""
    parts, last_end = [], 0
    for start, end, new in replacements:
        parts += [content[last_end:start], new]
        last_end = end
    return "".join([*parts, content[last_end:]])


def splicing_document(content: str, passages: Sequence[P], write: Callable[[P, Marked], str]) -> Document[str]:
    """Return a document that replaces each passage by what `write` returns for it and its translation.

    A passage whose translation has the same text stays as it is.
    """

    def write_all(translations: Sequence[Marked]) -> str:
        pairs = zip(passages, translations, strict=True)
        changed = ((passage, text) for passage, text in pairs if text.text != passage.source.text)
        return splice(content, ((passage.start, passage.end, write(passage, text)) for passage, text in changed))

    return Document([passage.source for passage in passages], write_all)
