"""Writes a document whose texts are replaced in place, with the marks of keys that they had. Independent of the model.

Marks of keys in the names of menus and buttons, as `_File`, `E&xit` and `~Edit`, are tags during the translation.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from seq2seq.apps.documents.marked_text import KEY, Document, Marked, MarkedSegment
from seq2seq.text.masks import any_of

_KEPT = re.compile(rf"\t.*|{any_of(['symbol', 'code', 'tag', 'placeholder', 'address', 'mail', 'file', 'keys'])}")
_LABEL = re.compile(  # up to the mark: at the start of a word, or in a capitalised one; not in snake_case, R&D or &amp;
    r"(?<![\w&/])[_&~](?=[^\W\d_])(?!\w*[_;])|(?<![\w&/])[A-Z][a-z]*+[_&~](?=[a-z]++(?![\w&;]))"
)
_TAG = re.compile(rf"<{KEY} ([_&~])(\w)/>")


@dataclass(frozen=True)
class Passage:
    """A text and its markup, and where both begin and end in the document."""

    start: int
    end: int
    segment: MarkedSegment[str]

    def write(self, translation: Marked, escape: Callable[[str], str]) -> str:
        """Return the translation, its text escaped, with the markup of the source."""
        return "".join(escape(text) + (markup or "") for text, markup in self.segment.fill(translation))


P = TypeVar("P", bound=Passage)


def splice(content: str, replacements: Iterable[tuple[int, int, str]]) -> str:
    """Return content with its replacements (start, end, new content), which are in order and do not overlap."""
    parts, last_end = [], 0
    for start, end, new in replacements:
        parts += [content[last_end:start], new]
        last_end = end
    return "".join([*parts, content[last_end:]])


def splicing_document(content: str, passages: Sequence[P], write: Callable[[P, Marked], str]) -> Document:
    """Return a document that replaces each passage by what `write` returns for it and its translation.

    A passage whose translation has the same text stays as it is.
    """
    sources = [passage.segment.marked for passage in passages]

    def write_all(translations: Sequence[Marked]) -> str:
        texts = zip(passages, sources, translations, strict=True)
        changed = ((passage, text) for passage, source, text in texts if text.text != source.text)
        return splice(content, ((passage.start, passage.end, write(passage, text)) for passage, text in changed))

    return Document(sources, write_all)


def lift(text: str) -> str:
    """Return a text with a tag in place of its mark; if it has several, they are no marks of keys."""
    if {"_", "&", "~"}.isdisjoint(text):
        return text
    hidden = _KEPT.sub(lambda kept: (" " if kept[0][0] in "<\t" else "0") * len(kept[0]), text)
    ends = [label.end() for label in _LABEL.finditer(hidden)]
    at = ends[0] if len(ends) == 1 else None
    return f"{text[: at - 1]}<{KEY} {text[at - 1 : at + 1]}/>{text[at:]}" if at else text


def put_back(text: str) -> str:
    """Return a text with a mark in place of its tag: before the same letter if there is one, at best a word's first."""
    tag = _TAG.search(text)
    if tag is None:
        return text
    text, mark, letter, at = text[: tag.start()] + text[tag.end() :], tag[1], tag[2].casefold(), tag.start()
    hidden = _KEPT.sub(lambda kept: "0" * len(kept[0]), text)
    letters = (i for i, character in enumerate(hidden) if character.isalpha())
    at = min(letters, key=lambda i: (hidden[i].casefold() != letter, i != at, hidden[i - 1 : i].isalpha()), default=at)
    return text[:at] + mark + text[at:]
