"""Translates texts with markup sentence by sentence. Independent of file formats and the model.

The function that translates sentences keeps placeholders, code and addresses (`seq2seq.translate.kept`). If a
translation lacks or invents syntax nevertheless, it is not used.
"""

import bisect
import itertools
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from seq2seq.apps.documents import marked_text
from seq2seq.apps.documents.marked_text import Kind, Mark, Marked, MarkedSegment
from seq2seq.apps.documents.tag_placement import Alignment, place
from seq2seq.errors import UserError
from seq2seq.text.masks import NO_BREAK, OBJECT, any_of, hide
from seq2seq.text.sentences import sentence_ends

log = logging.getLogger(__name__)

Translated = tuple[str, Alignment | None]
Translate = Callable[[Sequence[str], bool], Sequence[Translated]]  # the flag: whether alignments are used
Finish = Callable[[Sequence[Translated]], list[Marked]]

_LETTER = re.compile(rf"[^\W\d_]|{OBJECT}")
_GAPS = re.compile(r"(?<![^\S\n])[^\S\n]*\n\s*|\|(?<=[.!?…]\|)(?=[^\s|])")  # line ends with white space; between A.|B
_LIFTED = re.compile(rf"{any_of(['number'])}|(?P<space>{NO_BREAK})|{marked_text.KEPT.pattern}")
_TAG = re.compile(r"<(?P<end>/?)(?P<name>[A-Za-z][^\s/>]*+)[^<>]*?(?P<empty>/?)>|<!--[\s\S]*")
_UNWRITABLE = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML 1.0 (§2.2), even escaped
_ICU = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")


def translate_marked(texts: Sequence[Marked], translate: Translate) -> list[Marked]:
    """Translate texts as `prepare` does, with a function that translates sentences."""
    sentences, align, finish = prepare(texts)
    return finish(translate(sentences, align) if sentences else [])


def prepare(texts: Sequence[Marked]) -> tuple[list[str], bool, Finish]:
    """Return the sentences of texts, whether alignments are used, and what makes the texts' translations of theirs.

    Keep all matches of KEPT, and white space at the ends of a text. A sentence whose translation has others stays as it
    is. Marks, and pairs of tags in a text, are removed before translation. They are placed in the translation by the
    model's alignment of words, or by position if there is no alignment.
    """
    for text in texts:
        if _ICU.search(text.text):
            raise UserError(f"{text.text!r:.60} has ICU plural or select forms, which cannot be kept: take it out")
    lifted = [Lifted(text) for text in texts]
    cut = [cut_marked(text.marked) for text in lifted]
    sentences = list(dict.fromkeys(sentence for parts in cut for sentence in parts[::2]))
    worded = list(dict.fromkeys(sentence.text for sentence in sentences if _LETTER.search(hide(sentence.text, " "))))

    def finish(translations: Sequence[Translated]) -> list[Marked]:
        words = {sentence.text: (sentence.text, None) for sentence in sentences} | _written(worded, translations)
        done = {sentence: _or_source(sentence, place(sentence, *words[sentence.text])) for sentence in sentences}
        joined = [marked_text.join(part if i % 2 else done[part] for i, part in enumerate(parts)) for parts in cut]
        written = [text.put_back(translated) for text, translated in zip(lifted, joined, strict=True)]
        return [_or_source(text, translation) for text, translation in zip(texts, written, strict=True)]

    return [text.strip() for text in worded], any(text.marked.marks for text in lifted), finish


def cut_sentences(text: str) -> list[str]:
    """Return sentences (even indices) and the white space between them (odd indices); never cut a kept string."""
    return [part.text for part in cut_marked(Marked(text))]


def cut_marked(text: Marked) -> list[Marked]:
    """Cut a text with marks as `cut_sentences` does, but between links if there are several and no other words."""
    links = [0, *(mark.position for mark in text.marks if mark.is_link), len(text.text)]
    gaps, hidden = list(zip(links[::2], links[1::2], strict=False)), hide(text.text, OBJECT)
    if len(gaps) < 3 or _LETTER.search("".join(hidden[slice(*gap)] for gap in gaps)):
        gaps = _gaps(hidden)
    return text.cut([*itertools.chain.from_iterable(gaps), len(text.text)])


def _gaps(hidden: str) -> Iterator[tuple[int, int]]:
    """Yield where what parts sentences, lines and choices begins and ends, outside of kept strings."""
    start = 0
    for gap in [*_GAPS.finditer(hidden), None]:
        line = hidden[start : len(hidden) if gap is None else gap.start()]
        last = 0
        for end in sentence_ends(line):
            if end < len(line):
                yield start + last + len(line[last:end].rstrip()), start + end
                last = end
        if gap is not None:
            yield gap.span()
            start = gap.end()


def _or_source(text: Marked, translation: Marked) -> Marked:
    """Return the translation, or the source if that has other kept strings, such as a tag with characters beside it."""
    if sorted(marked_text.KEPT.findall(text.text)) == sorted(marked_text.KEPT.findall(translation.text)):
        return translation
    log.warning("not translated, since its translation %r has other placeholders: %r", translation.text, text.text)
    return text


def _written(texts: Sequence[str], translations: Sequence[Translated]) -> dict[str, Translated]:
    """Return the translations of texts that are not empty, with the texts' white space at the ends.

    Control characters that a text lacks are left out of its translation: no format can hold all of them.
    """
    done: dict[str, Translated] = {}
    num_left_out = 0
    for text, (translation, alignment) in zip(texts, translations, strict=True):
        unwritable = set(_UNWRITABLE.findall(translation)).difference(text)
        written = "".join(character for character in translation if character not in unwritable)
        num_left_out += len(translation) - len(written)
        if written.strip():
            leading, _, trailing = text.partition(text.strip())
            done[text] = leading + written.strip() + trailing, alignment
        else:
            log.warning("not translated, since its translation is empty: %r", text)
    if num_left_out:
        log.warning("%d control characters were left out of translations: documents cannot hold them", num_left_out)
    return done


@dataclass(frozen=True)
class _Tag:
    kind: Kind
    name: str
    start: int
    end: int


class Lifted:
    """A text whose pairs of tags, tags that enclose nothing, comments and no-break spaces have become marks.

    A tag without its partner stays in the text, because the text is about the tag.
    """

    def __init__(self, source: Marked) -> None:
        text, positions = source.text, [mark.position for mark in source.marks]
        self._segment: MarkedSegment[str | Mark] = MarkedSegment()
        items = [
            *((mark.position, mark) for mark in source.marks),
            *((tag.start, tag) for tag in _find_tags(text, positions)),
        ]
        at = 0
        for position, item in sorted(items, key=lambda item: item[0]):  # a mark goes before a tag at the same position
            start, end, is_break = position, position, False
            if isinstance(item, _Tag):
                start, end = marked_text.with_space(text, item.start, item.end, at, len(text))
                has_marks = bisect.bisect_right(positions, item.start) < bisect.bisect_left(positions, end)
                if item.kind is not Kind.POINT or has_marks or item.name == marked_text.KEY:
                    start, end = item.start, item.end
                elif start > 0 and end < len(text) and "\n" not in (text[start - 1], text[end]):
                    is_break = item.name in marked_text.BREAKS or end - start > item.end - item.start
            self._segment.add_text(text[at:start])
            markup, is_link = (item, item.is_link) if isinstance(item, Mark) else (text[start:end], item.name == "a")
            if is_break:
                self._segment.add_break(markup)
            else:
                self._segment.add_mark(item.kind, markup, is_link=is_link)
            at = max(at, end)
        self._segment.add_text(text[at:])
        self.marked = self._segment.marked

    def put_back(self, translated: Marked) -> Marked:
        """Return a translation of `marked` with the tags as text."""
        written, marks = "", list[Mark]()
        for text, markup in self._segment.fill(translated):
            written += text + markup if isinstance(markup, str) else text
            if isinstance(markup, Mark):
                marks.append(replace(markup, position=len(written)))
        return Marked(written, tuple(marks))


def _find_tags(text: str, positions: list[int]) -> list[_Tag]:
    """Return the tags outside of code and placeholders that have a partner, or need none, and contain no mark."""
    tags: list[_Tag] = []
    unpaired: set[int] = set()  # indices of tags
    opened: list[int] = []
    names: Counter[str] = Counter()  # of the open tags
    for match in _LIFTED.finditer(text):
        tag = _TAG.fullmatch("<br>" if match["space"] else match[0])
        mark = bisect.bisect_right(positions, match.start())
        if tag is None or (mark < len(positions) and positions[mark] < match.end()):
            continue
        name = (tag["name"] or "").lower()
        is_point = not name or tag["empty"] or marked_text.VOID.fullmatch(name)
        kind = Kind.POINT if is_point else Kind.CLOSE if tag["end"] else Kind.OPEN
        index = len(tags)
        tags.append(_Tag(kind, name, match.start(), match.end()))
        if kind is Kind.OPEN:
            opened.append(index)
            names[name] += 1
        elif kind is Kind.CLOSE and names[name]:
            while tags[opened[-1]].name != name:  # tags still open within have no partner
                unpaired.add(opened[-1])
                names[tags[opened.pop()].name] -= 1
            names[tags[opened.pop()].name] -= 1
        elif kind is Kind.CLOSE:
            unpaired.add(index)
    unpaired.update(opened)
    return [tag for index, tag in enumerate(tags) if index not in unpaired]
