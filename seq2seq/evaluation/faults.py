"""Faults of single translations, found by comparing source, translation and reference. Reads texts only."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from seq2seq.settings.data import base_language

FAULTS: Mapping[str, str] = {  # name → meaning
    "untranslated": "at least half of the words are copied from the source and are no words of the references",
    "repetition": "words or letters are repeated where neither source nor reference repeats any",
    "too_long": "more than twice as long as the source, and half as long again as the reference",
    "too_short": "less than half as long as the source, and less than two thirds of the reference",
    "inattention": "reading the translation, the model attends to few words of the source",
    "missing_number": "a number of source and reference is missing",
    "doubled_number": "a number occurs more often than in source and reference",
    "missing_name": "a name that the reference keeps is missing",
    "negation": "a negation of source and reference is lost, or one that neither has is added",
    "invented_words": "words that neither the source nor the training text's targets have",
}
MARGIN = 10  # characters by which lengths must differ, whatever their ratio
LONGEST_REPEATED = 4  # largest number of words of a phrase that is repeated at once
IGNORED = 0.2  # a source token whose attention sums to less is ignored (Bérard et al. 2019)
_UNSPACED = ("ja", "km", "lo", "my", "th", "zh")  # languages without spaces between words
INATTENTIVE = 0.4  # smallest share of ignored source tokens of a translation with the fault `inattention`

_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
_TOKEN = re.compile(r"\w+|[^\w\s]")
_LETTERS = re.compile(r"((?:[^\W\d]|\ufffd){1,3})\1{3,}")  # up to three letters, four times or more
_TAG = re.compile(r",\s*¿?[\w']+(?: \w+)?\?\s*$")  # isn't it?, ¿no?
_DIGITS = re.compile(
    r"(?<!\w)(?:\d{1,3}(?:[ \u00a0\u202f]\d{3}(?!\d))+|\d+)(?:[.,:/]\d+)*(?!\w)"
)  # a number, a time or a date


class Triple(NamedTuple):
    """A source, its translation, and the reference."""

    source: str
    hypothesis: str
    reference: str


@dataclass(frozen=True)
class Language:
    """How a language negates and spells numbers."""

    negation: re.Pattern[str]
    spelt: tuple[str, ...]  # the numbers from 0 to 12 as words


Check = Callable[[Triple], str | None]  # what is wrong with a translation; None: nothing
Languages = tuple[Language, Language, Language]  # of the texts of a Triple
LANGUAGES: Mapping[str, Language] = {
    "en": Language(
        re.compile(r"\b(?:no|not|cannot|never|nobody|nothing|none|nor|neither|nowhere|without|\w+n't)\b"),
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    ),
    "es": Language(
        re.compile(r"\b(?:no|nunca|jamás|ni|nadie|nada|ningun[oa]s?|ningún|tampoco|sin)\b"),
        ("cero", "uno", "dos", "tres", "cuatro", "cinco", "seis", "siete", "ocho", "nueve", "diez", "once", "doce"),
    ),
}


def words(text: str) -> list[str]:
    """Return the words of a text: runs of letters, such as `don't`, without a final `'s`; numbers are not words."""
    plain = unicodedata.normalize("NFC", text).replace("’", "'")
    return [word.removesuffix("'s") for word in _WORD.findall(plain)]


def separates_words(language: str) -> bool:
    """Return whether texts in a language have spaces between words, so that words can be looked up."""
    return base_language(language) not in _UNSPACED


def word_forms(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return [word.lower() for word in words(text)]


def invented_words(source: str, text: str, known: Collection[str]) -> list[str]:
    """Return the words of a translation or reference, in lower case, that are neither in its source nor known."""
    of_source = set(word_forms(source))
    return [word for word in word_forms(text) if word not in known and word not in of_source]


def invented_share(pairs: Iterable[tuple[str, str]], known: Collection[str]) -> float:
    """Return the share of invented words among all words of translations or references; pairs begin with the source."""
    counts = [(len(invented_words(source, text, known)), len(words(text))) for source, text in pairs]
    return sum(invented for invented, _ in counts) / max(1, sum(total for _, total in counts))


def make_checks(
    triples: Sequence[Triple], src_lang: str, tgt_lang: str, known: Collection[str] | None = None
) -> dict[str, Check]:
    """Return the checks of FAULTS that texts of these languages allow, without `inattention`, which needs a model.

    Names and untranslated words are found in all triples of the test set. Numbers and negation are checked if both
    languages are in LANGUAGES, and invented words if words are known (in lower case).
    """
    checks: dict[str, Check] = {
        "untranslated": _untranslated(triples),
        "repetition": _repetition,
        "too_long": _too_long,
        "too_short": _too_short,
        "missing_name": _missing_name(triples),
    }
    if src_lang in LANGUAGES and tgt_lang in LANGUAGES:
        languages = (LANGUAGES[src_lang], LANGUAGES[tgt_lang], LANGUAGES[tgt_lang])
        checks |= {
            "missing_number": lambda triple: _missing_number(triple, tgt_lang),
            "doubled_number": _doubled_number,
            "negation": lambda triple: _negation(triple, languages),
        }
    if known is not None:
        checks["invented_words"] = lambda triple: _joined(invented_words(triple.source, triple.hypothesis, known))
    return {name: checks[name] for name in FAULTS if name in checks}


def _untranslated(triples: Sequence[Triple]) -> Check:
    sources, references = (Counter(_lower(word) for triple in triples for word in words(triple[i])) for i in (0, 2))
    foreign = {word for word, count in sources.items() if 2 * references[word] < count}

    def check(triple: Triple) -> str | None:
        source, hypothesis, reference = (list(map(_lower, words(text))) for text in triple)
        copyable = foreign.intersection(source).difference(reference)
        copies = [word for word in hypothesis if word in copyable]
        return " ".join(copies) if copies and 2 * len(copies) >= len(hypothesis) else None

    return check


def _repetition(triple: Triple) -> str | None:
    source, hypothesis, reference = (_TOKEN.findall(text.lower()) for text in triple)
    for size in range(1, LONGEST_REPEATED + 1):
        repeated = _repeated(hypothesis, size)
        if repeated and not _repeated(source, size) and not _repeated(reference, size):
            return " ".join(repeated)
    letters = [_LETTERS.search(text.lower()) for text in triple]
    if letters[1] and not (letters[0] or letters[2]):
        return letters[1][0]
    most = _most_frequent_pair(hypothesis)
    other = max(_most_frequent_pair(tokens)[1] for tokens in (source, reference))
    return f"{most[0]} ({most[1]} times)" if most[1] >= max(3, other + 2) else None


def _repeated(tokens: Sequence[str], size: int) -> list[str]:
    """Return the first `size` words that are repeated at once, with their repetition; all must be letters only."""
    for start in range(len(tokens) - 2 * size + 1):
        first = tokens[start : start + size]
        if first == tokens[start + size : start + 2 * size] and all(token.isalpha() for token in first):
            return [*first, *first]
    return []


def _most_frequent_pair(tokens: Sequence[str]) -> tuple[str, int]:
    """Return the pair of neighbouring words that occurs most often, and how often."""
    counts = Counter(f"{left} {right}" for left, right in pairwise(tokens) if left.isalpha() and right.isalpha())
    return next(iter(counts.most_common(1)), ("", 0))


def _too_long(triple: Triple) -> str | None:
    source, hypothesis, reference = map(len, triple)
    is_long = hypothesis > 2 * source + MARGIN and hypothesis > 1.5 * reference
    return f"{hypothesis} characters for {source}" if is_long else None


def _too_short(triple: Triple) -> str | None:
    source, hypothesis, reference = map(len, triple)
    is_short = (not hypothesis or 2 * hypothesis + MARGIN < source) and 1.5 * hypothesis < reference
    return f"{hypothesis} characters for {source}" if is_short else None


def _missing_name(triples: Sequence[Triple]) -> Check:
    """Return the check for names: words that are capitalised inside a sentence of a source, and never in lower case."""
    inside = {name for triple in triples for name in re.findall(r"(?<=[\w,;] )[^\W\d_]{2,}", triple.source)}
    lower = {word for triple in triples for word in words(triple.source) if word[0].islower()}
    names = {name for name in inside if name[0].isupper() and _lower(name) not in lower}

    def check(triple: Triple) -> str | None:
        source, hypothesis, reference = map(words, triple)
        kept, there = set(reference), set(map(_lower, hypothesis))
        return " ".join(dict.fromkeys(w for w in source if w in names & kept and _lower(w) not in there)) or None

    return check


def _missing_number(triple: Triple, tgt_lang: str) -> str | None:
    """Return the numbers of the source that the translation has lost, and the reference has not."""
    lost, of_reference = (Counter(lost_numbers(triple.source, text, tgt_lang)) for text in triple[1:])
    return _joined(lost - of_reference)


def lost_numbers(source: str, translation: str, tgt_lang: str) -> list[str]:
    """Return the numbers of a source that its translation has neither in digits nor, up to 12, as words.

    Marks within a number, as of thousands, do not count. Digits within a word (MP3, 1st) are no number, and 1 may have
    become an article.
    """
    have, words_of = _count_numbers(translation), Counter(words(translation.lower()))
    spelt = LANGUAGES[tgt_lang].spelt if tgt_lang in LANGUAGES else ()
    lost = []
    for number in _DIGITS.findall(source):
        digits = _digits_of(number)
        is_word = len(digits) < 3 and digits.isdecimal() and int(digits) < len(spelt) and words_of[spelt[int(digits)]]
        if have[digits]:
            have[digits] -= 1
        elif not is_word and digits != "1":
            lost.append(number)
    return lost


def _digits_of(number: str) -> str:
    return re.sub(r"\D", "", number)


def _doubled_number(triple: Triple) -> str | None:
    source, hypothesis, reference = map(_count_numbers, triple)
    numbers = ((number, _digits_of(number)) for number in _DIGITS.findall(triple.hypothesis))
    return _joined(number for number, key in numbers if hypothesis[key] > max(source[key], reference[key]) > 0)


def _count_numbers(text: str) -> Counter[str]:
    """Return how often numbers occur, by their digits."""
    return Counter(map(_digits_of, _DIGITS.findall(text)))


def _negation(triple: Triple, languages: Languages) -> str | None:
    source, hypothesis, reference = (
        language.negation.search(_TAG.sub("", _lower(text).replace("’", "'")))
        for text, language in zip(triple, languages, strict=True)
    )
    if source and reference and not hypothesis:
        return f"lost: {source[0]}"
    return f"added: {hypothesis[0]}" if hypothesis and not (source or reference) else None


def _lower(text: str) -> str:
    return unicodedata.normalize("NFC", text).lower()


def _joined(texts: Iterable[str]) -> str | None:
    return ", ".join(dict.fromkeys(texts)) or None
