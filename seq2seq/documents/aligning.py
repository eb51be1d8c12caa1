"""Finds the words of a text and of its translation that belong together; knows no markup and no model."""

import re
from collections.abc import Sequence

from seq2seq.documents.kept import KEPT
from seq2seq.documents.marked import OBJECT

Alignment = Sequence[tuple[int, int]]  # word of the text, word of its translation, from 0
Span = tuple[int, int]

LETTER = re.compile(rf"[^\W_]|{OBJECT}")
_WORD = re.compile(rf"(?:{KEPT.pattern}|\S)+", re.VERBOSE)
_PART = re.compile(f"{OBJECT}|[^{OBJECT}]+")


def find_words(text: str) -> list[Span]:
    """Find where words begin and end: as the text splits at spaces, but never within what is kept."""
    return [match.span() for match in _WORD.finditer(text)]


class Parts:
    """The words of a text; one that holds objects is in parts: the objects, and what is between them.

    Attributes:
        spans: where the parts begin and end.
        words: of each word, the numbers of its first part, of that which counts as the word, and of its last.
        objects: numbers of the parts that are objects.
    """

    def __init__(self, text: str) -> None:
        self.spans: list[Span] = []
        self.words: list[tuple[int, int, int]] = []
        for start, end in find_words(text):
            first = len(self.spans)
            self.spans += [match.span() for match in _PART.finditer(text, start, end)]
            numbers = range(first, len(self.spans))
            head = next((part for part in numbers if LETTER.search(text, *self.spans[part])), first)
            self.words.append((first, head, numbers[-1]))
        self.objects = [part for part, (start, _) in enumerate(self.spans) if text[start] == OBJECT]


def align_parts(src: Parts, tgt: Parts, alignment: Alignment | None) -> list[tuple[int, int]]:
    """Align parts as the words that they belong to, and every object with itself; ordered by the translation."""
    sizes = len(src.words), len(tgt.words)
    pairs = [pair for pair in alignment or () if pair[0] < sizes[0] and pair[1] < sizes[1]]
    if not pairs and src.words:
        pairs = [((2 * word + 1) * sizes[0] // (2 * sizes[1]), word) for word in range(sizes[1])]
    found: dict[int, int] = {}
    for word, other in pairs:
        first, head, last = src.words[word]
        for part in range(tgt.words[other][0], tgt.words[other][2] + 1):
            of_head = tgt.words[other][1]
            found[part] = first if part < of_head else head if part == of_head else last
    found |= zip(tgt.objects, src.objects, strict=False)
    return [(found[part], part) for part in sorted(found)]
