"""Translates texts around what must not change: placeholders, tags, URLs, code; knows no file format and no model.

Where markup stood in a text it holds BOUNDARY (a tag around words) or OBJECT (something between words, as code or a
picture); its translation holds the same, in the same order, in places that correspond.
"""

import itertools
import logging
import math
import re
from collections.abc import Callable, Iterable, Sequence

from seq2seq.errors import UserError

log = logging.getLogger(__name__)

Translate = Callable[[Sequence[str]], list[str]]

BOUNDARY, OBJECT = "\0", "\1"  # characters that stand in no document
KEPT = re.compile(
    r"""(
    [\0\1]
  | </?[A-Za-z][^<>\0]*> | <!--[^\0]*?-->                           # tags
  | &(?:[A-Za-z]\w*|\#\d+|\#[xX][\dA-Fa-f]+);                       # entities
  | (?:https?|ftp)://[^\s<>"'\0]*[\w/] | www\.[\w-]+\.[^\s<>"'\0]*[\w/]
  | [\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+                               # mail addresses; 64: RFC 5321, and linear time
  | ``[^\0]+?`` | `[^`\0]+`                                         # code
  | [$\#%@]?\{\{[^{}\0]*\}\} | [$\#%@]?\{[^{}\0]*\}                 # {name}, ${name}, {{ name }}
  | %(?:\(\w+\)|\d+\$)?[-+\#]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh?|ll?|[jztL])?[diouxXeEfFgGaAcrs@]
  | %% | %\d+ | %[A-Za-z_]\w*% | \$[A-Za-z_]\w*                     # %1, %NAME%, $name
  | \\[A-Za-z]                                                      # a line end written \n
  | \b[A-Za-z]\w*_\w+\b                                             # names_in_programs
    )""",
    re.VERBOSE,
)
_GAP = r"""(?P<gap>
    (?<![^\S\n])[^\S\n]*\n\s*                                       # line ends, and space between sentences
  | (?<!\b[A-Z]\.)(?<!\b(?:Mr|Ms|Dr|St|Sr|Jr)\.)(?<!\bMrs\.)(?<!\bProf\.)
    (?:(?<=[.?!…]) | (?<=[.?!…]["”’»)\0])) \s+ (?=\0?["“«(\[¿¡]?[^\W\d_a-zà-ÿ])
    )"""
_TOKEN = re.compile(f"{KEPT.pattern}|{_GAP}", re.VERBOSE)
_WORD = re.compile(rf"{KEPT.pattern}|\w+|[^\w\s]", re.VERBOSE)
_EMPTY, _DRIFT = 3.0, 0.1  # what it costs that a part with words gets none, and that a cut is a text's length away
_ICU = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")


def translate_texts(texts: Sequence[str], translate: Translate) -> list[str]:
    """Translate texts sentence by sentence; what KEPT finds stays unchanged and in order, as does space at the ends.

    A sentence is translated as it is; where that changes something kept, with numbers in its place, which models copy;
    where that fails too, in the pieces between. Boundaries are not shown to the model: they are placed into the
    translation by the words that it shares with the translations of the parts between them. In any case `KEPT.findall`
    gives the same for a text and its translation.

    Raises:
        UserError: a text has plural or select forms of ICU, in which text and syntax cannot be told apart.
    """
    for text in texts:
        if _ICU.search(text):
            raise UserError(f"{text!r:.60} has ICU plural or select forms, which cannot be kept: take it out")
    cut = [cut_sentences(text) for text in texts]
    sentences = [sentence for parts in cut for sentence in parts[::2]]
    parts = [part for sentence in sentences if BOUNDARY in sentence for part in sentence.split(BOUNDARY)]
    done = _translate_keeping([sentence.replace(BOUNDARY, "") for sentence in sentences] + parts, translate)
    return ["".join(part if i % 2 else _finish(part, done) for i, part in enumerate(parts)) for parts in cut]


def cut_sentences(text: str) -> list[str]:
    """Cut into sentences (even places) and the space between them (odd places), never within what is kept."""
    found, start = [], 0
    for match in _TOKEN.finditer(text):
        if match["gap"]:
            found += [text[start : match.start()], match["gap"]]
            start = match.end()
    return [*found, text[start:]]


def _translate_keeping(sentences: Iterable[str], translate: Translate) -> dict[str, str]:
    """Translate sentences without boundaries, so that each has the same kept strings as its translation."""
    sentences = list(dict.fromkeys(sentences))
    done = _translate_words([sentence for sentence in sentences if OBJECT not in sentence], translate)
    masks = {sentence: _mask(sentence) for sentence in sentences if not _is_kept(sentence, done.get(sentence, ""))}
    found = _translate_words([masked for masked, _ in masks.values()], translate)
    for sentence, (masked, kept) in masks.items():
        done[sentence] = _unmask(found[masked], kept)
    pieces = {sentence: KEPT.split(sentence) for sentence in masks if not _is_kept(sentence, done[sentence])}
    found = _translate_words([piece for parts in pieces.values() for piece in parts[::2]], translate)
    for sentence, parts in pieces.items():
        joined = "".join(part if i % 2 else found[part] for i, part in enumerate(parts))
        done[sentence] = joined if _is_kept(sentence, joined) else sentence
        if done[sentence] != joined:
            log.warning("not translated, since its translation %r has other placeholders: %r", joined, sentence)
    return done


def _is_kept(source: str, translation: str) -> bool:
    return KEPT.findall(source) == KEPT.findall(translation)


def _mask(sentence: str) -> tuple[str, dict[str, str]]:
    """Replace what is kept by numbers that the sentence does not have; gives them with what they stand for."""
    numbers = (str(number) for number in itertools.count(21) if str(number) not in sentence)
    kept = dict(zip(numbers, KEPT.findall(sentence), strict=False))
    unused = iter(kept)
    return KEPT.sub(lambda _: next(unused), sentence), kept


def _unmask(translation: str, kept: dict[str, str]) -> str:
    """Put back what numbers stand for; gives nothing unless each is there once and in order."""
    parts = re.split(r"(\d+)", translation)
    numbers = [part for part in parts[1::2] if part in kept]
    return "".join(kept.get(part, part) for part in parts) if numbers == list(kept) else ""


def _translate_words(texts: Iterable[str], translate: Translate) -> dict[str, str]:
    """Translate every different text that has words besides what is kept; the others stand for themselves."""
    done = {text: text for text in texts}
    worded = [text for text in done if re.search(r"[^\W\d_]", KEPT.sub("", text))]
    for text, translation in zip(worded, translate([text.strip() for text in worded]) if worded else [], strict=True):
        done[text] = _with_space_of(text, translation)
    return done


def _with_space_of(source: str, text: str) -> str:
    """Give text the white space around source."""
    leading, trailing = _space_around(source)
    return leading + text.strip() + trailing if text.strip() else leading


def _space_around(text: str) -> tuple[str, str]:
    body = text.strip()
    leading, _, trailing = text.partition(body) if body else (text, "", "")
    return leading, trailing


def _finish(sentence: str, done: dict[str, str]) -> str:
    """Look up a sentence's translation and place its boundaries."""
    whole, parts = done[sentence.replace(BOUNDARY, "")].strip(), sentence.split(BOUNDARY)
    translations = [done[part] for part in parts]
    if len(parts) > 1 and "".join(translations).strip() != whole:
        placed = _cut_at(_find_cuts(whole, translations), whole, parts)
        if _is_kept(sentence, placed):
            return placed
    return BOUNDARY.join(translations)


def _find_cuts(whole: str, translations: list[str]) -> list[int]:
    """Cut whole where its pieces share most words with the translations of the parts; gives the pieces' ends.

    Parts between two boundaries, the odd ones, get words that are not theirs only lest they be empty; among equals,
    the cuts nearest to those between the translations win. Takes time linear in the words, for each part.
    """
    words = list(_WORD.finditer(whole))
    theirs = [_words(translation) for translation in translations]
    starts = list(itertools.accumulate((len(own) for own in theirs), initial=0))
    best = [(0.0, [0]), *[(-math.inf, [0])] * len(words)]  # by the number of words in the parts so far: score, cuts
    for i, own in enumerate(theirs):
        sums = [0, *itertools.accumulate(_gain(word[0].lower(), own, is_inner=i % 2 == 1) for word in words)]
        most = (-math.inf, [0])
        for j, (score, cuts) in enumerate(best):
            without = (score - sums[j] - _EMPTY * bool(own), cuts)
            gained, cuts_before = max(most, without) if own else without
            most = max(most, (score - sums[j], cuts))
            drift = abs(j / max(1, len(words)) - starts[i + 1] / max(1, starts[-1]))
            best[j] = (gained + sums[j] - _DRIFT * drift, [*cuts_before, j])
    cuts = best[-1][1][1:-1]
    return [*(words[cut].start() if cut < len(words) else len(whole) for cut in cuts), len(whole)]


def _words(text: str) -> list[str]:
    return [match[0].lower() for match in _WORD.finditer(text)]


def _gain(word: str, own: list[str], *, is_inner: bool) -> float:
    """Say how well a word fits a part: what is kept must be where it was, punctuation matters least."""
    if word not in own:
        return -0.5 if is_inner else 0.0
    return 10.0 if KEPT.fullmatch(word) else 0.5 if not word[0].isalnum() else 1.5 if is_inner else 1.0


def _cut_at(ends: list[int], whole: str, parts: list[str]) -> str:
    """Replace the parts with words by pieces of whole; where it has space at a cut, it gets the space of the source."""
    placed = list(parts)
    for i, (start, end) in enumerate(itertools.pairwise([0, *ends])):
        placed[i] = _with_space_of(parts[i], whole[start:end]) if parts[i].strip() else parts[i]
    worded = [i for i, part in enumerate(parts) if part.strip()]
    for i, j in itertools.pairwise(worded):
        before, after = _space_around(parts[i])[1], _space_around(parts[j])[0]
        has_space = re.search(r"\s", whole[max(ends[i] - 1, 0) : ends[i] + 1]) is not None
        if has_space and not (before or after or "".join(parts[i + 1 : j])):
            placed[i] += " "
        elif not has_space and not (before and after):
            placed[i], placed[j] = placed[i].rstrip(), placed[j].lstrip()
    return BOUNDARY.join(placed)
