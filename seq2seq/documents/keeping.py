"""Translates texts around what must not change: placeholders, tags, URLs, code; knows no file format and no model."""

import itertools
import logging
import re
from collections.abc import Callable, Iterable, Sequence

from seq2seq.documents.lifting import Lifted
from seq2seq.documents.marked import KEPT, OBJECT, Marked, join
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
    """As `cut_sentences`, of a text with marks."""
    gaps = [match.span() for match in _TOKEN.finditer(text.text) if match["gap"]]
    return text.cut([*itertools.chain.from_iterable(gaps), len(text.text)])


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
    pieces = {one: one.cut(_ends_of_pieces(one.text)) for one in failed}
    found = _translate_words([piece.text for parts in pieces.values() for piece in parts[::2]], translate)
    for sentence, parts in pieces.items():
        joined = join(part if i % 2 else place(part, *found[part.text]) for i, part in enumerate(parts))
        done[sentence] = joined if _is_kept(sentence, joined) else sentence
        if done[sentence] != joined:
            log.warning(_CHANGED, joined.text, sentence.text)
    return done


def _or_source(text: Marked, translation: Marked) -> Marked:
    """Give the text where tags that were written out in it make something kept of what is beside them."""
    if sorted(KEPT.findall(text.text)) == sorted(KEPT.findall(translation.text)):
        return translation
    log.warning(_CHANGED, translation.text, text.text)
    return text


def _is_kept(source: Marked, translation: Marked | None) -> bool:
    return translation is not None and KEPT.findall(source.text) == KEPT.findall(translation.text)


def _ends_of_pieces(text: str) -> list[int]:
    """Where pieces (even places) and what is kept between them (odd places) end."""
    return [*itertools.chain.from_iterable(match.span() for match in KEPT.finditer(text)), len(text)]


def _between_kept(source: str, translation: str, alignment: Alignment | None) -> Alignment | None:
    """Turn an alignment of words as texts split at spaces into one of words that what is kept does not part."""
    if alignment is None:
        return None
    of_source, of_translation = _numbers(source), _numbers(translation)
    return [
        (of_source[one], of_translation[other])
        for one, other in alignment
        if one < len(of_source) and other < len(of_translation)
    ]


def _numbers(text: str) -> list[int]:
    """Number, for every word as the text splits at spaces, of the word that it is in."""
    numbers = []
    for number, (start, end) in enumerate(find_words(text)):
        numbers += [number] * len(text[start:end].split())
    return numbers


def _mask(sentence: str) -> tuple[str, dict[str, str]]:
    """Replace what is kept by numbers that the sentence does not have; gives them with what they stand for."""
    used = set(re.findall(r"\d+", sentence))
    numbers = (str(number) for number in itertools.count(21) if str(number) not in used)
    kept = dict(zip(numbers, KEPT.findall(sentence), strict=False))
    unused = iter(kept)
    return KEPT.sub(lambda _: next(unused), sentence), kept


def _unmask(translation: str, kept: dict[str, str]) -> str:
    """Put back what numbers stand for; gives nothing unless each is there once and in order."""
    parts = re.split(r"(\d+)", translation)
    numbers = [part for part in parts[1::2] if part in kept]
    return "".join(kept.get(part, part) for part in parts) if numbers == list(kept) else ""


def _translate_words(
    texts: Iterable[str], translate: Callable[[Sequence[str]], Sequence[Translated]]
) -> dict[str, Translated]:
    """Translate every different text that has words besides what is kept; the others stand for themselves."""
    done: dict[str, Translated] = {text: (text, None) for text in texts}
    worded = [text for text in done if re.search(r"[^\W\d_]", KEPT.sub("", text))]
    found = translate([text.strip() for text in worded]) if worded else []
    for text, (translation, alignment) in zip(worded, found, strict=True):
        done[text] = _with_space_of(text, translation), alignment
    return done


def _with_space_of(source: str, text: str) -> str:
    """Give text the white space around source."""
    body = source.strip()
    leading, _, trailing = source.partition(body) if body else (source, "", "")
    return leading + text.strip() + trailing if text.strip() else leading
