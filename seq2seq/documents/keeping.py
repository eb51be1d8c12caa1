"""Translates texts around what must not change: placeholders, tags, URLs, code; knows no file format and no model."""

import bisect
import itertools
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from seq2seq.documents.marked import BREAKS, KEPT, OBJECT, VOID, Kind, Mark, Marked, Segment, join, with_space
from seq2seq.documents.placing import Alignment, find_words, place
from seq2seq.errors import UserError

log = logging.getLogger(__name__)

Translated = tuple[str, Alignment | None]  # with the alignment of words, as texts split at spaces
Translate = Callable[[Sequence[str], bool], Sequence[Translated]]  # the flag: whether alignments are of use

_GAP = r"""(?P<gap>
    (?<![^\S\n])[^\S\n]*\n\s*                                       # line ends, and space between sentences
  | (?<!\b[A-Z]\.)(?<!\b(?:Mr|Ms|Dr|St|Sr|Jr)\.)(?<!\bMrs\.)(?<!\bProf\.)
    (?:(?<=[.?!…]) | (?<=[.?!…]["”’»)])) \s+ (?=["“«(\[¿¡]?[^\W\d_a-zà-ÿ])
    )"""
_TOKEN = re.compile(f"{KEPT.pattern}|{_GAP}", re.VERBOSE)
_TAG = re.compile(r"<(?P<end>/?)(?P<name>[A-Za-z][^\s/>]*)[^<>]*?(?P<empty>/?)>|<!--[\s\S]*")
_CHANGED = "not translated, since its translation %r has other placeholders: %r"
_ICU = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")


def translate_texts(texts: Sequence[str], translate: Translate) -> list[str]:
    """Translate texts without marks; see `translate_marked`."""
    return [one.text for one in translate_marked([Marked(text) for text in texts], translate)]


def translate_marked(texts: Sequence[Marked], translate: Translate) -> list[Marked]:
    """Translate texts sentence by sentence; what KEPT finds stays unchanged and in order, as does space at the ends.

    A sentence is translated as it is; where that changes something kept, with numbers in its place, which models copy;
    where that fails too, in the pieces between. Marks, and pairs of tags that stand in a text, are not shown to the
    model: they are placed by its alignment of words, or, where there is none, by position.

    Raises:
        UserError: a text has plural or select forms of ICU, in which text and syntax cannot be told apart.
    """
    for text in texts:
        if _ICU.search(text.text):
            raise UserError(f"{text.text!r:.60} has ICU plural or select forms, which cannot be kept: take it out")
    lifted = [Lifted(text) for text in texts]
    cut = [cut_marked(one.marked) for one in lifted]
    align = any(one.marked.marks for one in lifted)
    done = _translate_keeping(
        [sentence for parts in cut for sentence in parts[::2]], lambda texts: translate(texts, align)
    )
    joined = [join(part if i % 2 else done[part] for i, part in enumerate(parts)) for parts in cut]
    written = [one.put_back(translated) for one, translated in zip(lifted, joined, strict=True)]
    return [_or_source(text, translation) for text, translation in zip(texts, written, strict=True)]


def cut_sentences(text: str) -> list[str]:
    """Cut into sentences (even places) and the space between them (odd places), never within what is kept."""
    return [part.text for part in cut_marked(Marked(text))]


def cut_marked(text: Marked) -> list[Marked]:
    """Cut a text with marks as `cut_sentences` does."""
    return _cut(text, (match.span() for match in _TOKEN.finditer(text.text) if match["gap"]))


def _cut(text: Marked, spans: Iterable[tuple[int, int]]) -> list[Marked]:
    """Cut a text into what is between the spans (even places) and the spans (odd places)."""
    return text.cut([*itertools.chain.from_iterable(spans), len(text.text)])


def _translate_keeping(
    sentences: Iterable[Marked], translate: Callable[[Sequence[str]], Sequence[Translated]]
) -> dict[Marked, Marked]:
    """Translate sentences, so that each has the same kept strings as its translation."""
    done: dict[Marked, Marked] = {}
    sentences = list(dict.fromkeys(sentences))
    found = _translate_words([one.text for one in sentences if OBJECT not in one.text], translate)
    for sentence in sentences:
        if sentence.text in found:
            translation, alignment = found[sentence.text]
            done[sentence] = place(sentence, translation, _between_kept(sentence.text, translation, alignment))
    failed = [one for one in sentences if not _is_kept(one, done.get(one))]
    masks = {one.text: _mask(one.text) for one in failed}
    found = _translate_words([masked for masked, _ in masks.values()], translate)
    for sentence in failed:
        masked, kept = masks[sentence.text]
        translation, alignment = found[masked]
        done[sentence] = place(sentence, _unmask(translation, kept), alignment)
    failed = [one for one in failed if not _is_kept(one, done[one])]
    pieces = {one: _cut(one, (match.span() for match in KEPT.finditer(one.text))) for one in failed}
    found = _translate_words([piece.text for parts in pieces.values() for piece in parts[::2]], translate)
    for sentence, parts in pieces.items():
        joined = join(part if i % 2 else place(part, *found[part.text]) for i, part in enumerate(parts))
        done[sentence] = joined if _is_kept(sentence, joined) else sentence
        if done[sentence] != joined:
            log.warning(_CHANGED, joined.text, sentence.text)
    return done


def _or_source(text: Marked, translation: Marked) -> Marked:
    """Return the text itself if a tag, put back, makes something kept of the characters beside it."""
    if sorted(KEPT.findall(text.text)) == sorted(KEPT.findall(translation.text)):
        return translation
    log.warning(_CHANGED, translation.text, text.text)
    return text


def _is_kept(source: Marked, translation: Marked | None) -> bool:
    return translation is not None and KEPT.findall(source.text) == KEPT.findall(translation.text)


def _between_kept(source: str, translation: str, alignment: Alignment | None) -> Alignment | None:
    """Turn an alignment of words that spaces part into an alignment of `find_words`' words."""
    if alignment is None:
        return None
    of_source, of_translation = _numbers(source), _numbers(translation)
    return [
        (of_source[one], of_translation[other])
        for one, other in alignment
        if one < len(of_source) and other < len(of_translation)
    ]


def _numbers(text: str) -> list[int]:
    """Return, for every word that spaces part, the number of the `find_words` word around it."""
    numbers = []
    for number, (start, end) in enumerate(find_words(text)):
        numbers += [number] * len(text[start:end].split())
    return numbers


def _mask(sentence: str) -> tuple[str, dict[str, str]]:
    """Replace kept strings by numbers that the sentence does not have; return also the string of each number."""
    used = set(re.findall(r"\d+", sentence))
    numbers = (str(number) for number in itertools.count(21) if str(number) not in used)
    kept = dict(zip(numbers, KEPT.findall(sentence), strict=False))
    unused = iter(kept)
    return KEPT.sub(lambda _: next(unused), sentence), kept


def _unmask(translation: str, kept: dict[str, str]) -> str:
    """Put back the strings of the numbers; return an empty text unless each number is there once, in order."""
    parts = re.split(r"(\d+)", translation)
    numbers = [part for part in parts[1::2] if part in kept]
    return "".join(kept.get(part, part) for part in parts) if numbers == list(kept) else ""


def _translate_words(
    texts: Iterable[str], translate: Callable[[Sequence[str]], Sequence[Translated]]
) -> dict[str, Translated]:
    """Translate every different text that has words besides kept strings; leave the others as they are."""
    done: dict[str, Translated] = {text: (text, None) for text in texts}
    worded = [text for text in done if re.search(r"[^\W\d_]", KEPT.sub("", text))]
    found = translate([text.strip() for text in worded]) if worded else []
    for text, (translation, alignment) in zip(worded, found, strict=True):
        done[text] = _with_space_of(text, translation), alignment
    return done


def _with_space_of(source: str, text: str) -> str:
    """Put the white space around source around text."""
    body = source.strip()
    leading, _, trailing = source.partition(body) if body else (source, "", "")
    return leading + text.strip() + trailing if text.strip() else leading


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
