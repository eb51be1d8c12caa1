"""The robustness contract: unusual texts made from a test set, and what a model does with them. Reads texts only."""

import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from sacrebleu.metrics.chrf import CHRF

from seq2seq.errors import UserError
from seq2seq.evaluation.faults import invented_share, lost_numbers, words

PROBES = 2000  # of all families together
LONG = 80  # least words of a long line
_PLACEHOLDERS = ("{name}", "%s", "<1>", "{{count}}", "%(user)s", "${path}", "%1$d", "<b>")
_EMOJI = ("😀", "👍🏽", "❤️", "🎉", "👩‍🚀", "🇪🇸")
_NUMBERS = ("{} (37 %).", "{} at 10:45.", "{}, 12 March 2024.", "{} for $1,250.", "{} on 3/11/1998.", "{}: 0.75 or 64.")
_MARKS = ("{}...", "{}!!!", "“{}”", "- {} -", "{} ;)", "({})", "* {}", "{}?!")
Pairs = Sequence[tuple[str, str]]  # sources and references
LONGEST = 8  # words of a phrase that is repeated at once
_WORD = re.compile(r"[^\W\d_]+")
_LETTERS = re.compile(r"([^\W\d_]{1,4}?)\1{3,}", re.IGNORECASE)  # up to four letters, four times or more


@dataclass(frozen=True)
class Probe:
    """An unusual form of a sentence, or of several.

    Attributes:
        text: the text to translate.
        plain: the sentences of the test set that it was made from.
        reference: its translation; None: it has other words than `plain`, so no translation is known.
        kept: parts that its translation must have.
    """

    text: str
    plain: tuple[str, ...]
    reference: str | None = None
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class Family:
    """What a model does with the probes of one kind."""

    probes: int
    loops: int  # translations that repeat something endlessly
    lost_numbers: int  # translations that lack a number of the text
    lost_parts: int  # translations that lack a placeholder or an emoji
    copies: int  # translations that are the text itself, of three words or more
    chrf: float | None  # chrF++ against the references, regardless of case; None: there are none
    plain_chrf: float | None  # the same of the translations of the plain sentences
    invented: float | None = None  # percent of the translations' words that are invented; None: no words are known


HEADINGS = ("texts", "probes", "loops", "lost numbers", "lost parts", "copies", "chrF++", "of plain texts")
HEADINGS += ("invented words, %",)


def make_probes(pairs: Pairs, count: int = PROBES, seed: int = 1) -> dict[str, list[Probe]]:
    """Return probes of every family, as many of each as the test set allows; the same for the same pairs."""
    families: dict[str, list[Probe]] = {}
    for name, make in _FAMILIES.items():
        rng, of_family = random.Random(f"{seed} {name}"), dict[str, Probe]()
        order = list(range(len(pairs)))
        rng.shuffle(order)
        for index in order:
            probe = make(pairs, index, rng)
            if probe is not None:
                of_family.setdefault(probe.text, probe)
            if len(of_family) == max(1, count // len(_FAMILIES)):
                break
        families[name] = list(of_family.values())
    if not any(families.values()):
        raise UserError("no probe can be made of this test set: it needs sentences of three words")
    return {name: probes for name, probes in families.items() if probes}


def measure(
    probes: Mapping[str, Sequence[Probe]],
    translate: Callable[[list[str]], list[str]],
    tgt_lang: str,
    known: Collection[str] | None = None,
) -> dict[str, Family]:
    """Translate the probes and their plain sentences, and return what became of every family.

    known are the words of the training text's targets in lower case; None: invented words are not counted.
    """
    texts = dict.fromkeys(text for family in probes.values() for probe in family for text in (probe.text, *probe.plain))
    output = dict(zip(texts, translate(list(texts)), strict=True))
    return {name: _measure_family(family, output, tgt_lang, known) for name, family in probes.items()}


def _measure_family(
    probes: Sequence[Probe], output: Mapping[str, str], tgt_lang: str, known: Collection[str] | None
) -> Family:
    scored = [probe for probe in probes if probe.reference is not None]
    references = [[probe.reference or "" for probe in scored]]
    chrf = CHRF(word_order=2, lowercase=True)
    both = ([output[probe.text] for probe in scored], [" ".join(output[text] for text in p.plain) for p in scored])
    scores = [round(chrf.corpus_score(texts, references).score, 2) if scored else None for texts in both]
    return Family(
        len(probes),
        sum(has_loop(probe.text, output[probe.text]) for probe in probes),
        sum(bool(lost_numbers(_without(probe.text, probe.kept), output[probe.text], tgt_lang)) for probe in probes),
        sum(any(part not in output[probe.text] for part in probe.kept) for probe in probes),
        sum(output[probe.text].strip() == probe.text.strip() and len(words(probe.text)) > 2 for probe in probes),
        scores[0],
        scores[1],
        None if known is None else round(100 * invented_share([(p.text, output[p.text]) for p in probes], known), 2),
    )


def table(families: Mapping[str, Family]) -> Table:
    """Return a table with a row for every family."""
    shown = Table(*HEADINGS, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name, family in families.items():
        shown.add_row(name, *("" if value is None else f"{value}" for value in asdict(family).values()))
    return shown


def _without(text: str, parts: Sequence[str]) -> str:
    for part in parts:
        text = text.replace(part, " ")
    return text


def _single_word(pairs: Pairs, index: int, rng: random.Random) -> Probe | None:
    candidates = [word for word in words(pairs[index][0]) if len(word) > 1]
    return Probe(rng.choice(candidates), (pairs[index][0],)) if candidates else None


def _capitals(pairs: Pairs, index: int, rng: random.Random) -> Probe | None:
    source, reference = pairs[index]
    return Probe(source.upper(), (source,), reference) if len(words(source)) > 2 else None


def _title_case(pairs: Pairs, index: int, rng: random.Random) -> Probe | None:
    source, reference = pairs[index]
    text = re.sub(r"(?<!\S)\w", lambda letter: letter[0].upper(), source)
    return Probe(text, (source,), reference) if text != source else None


def _without_stop(pairs: Pairs, index: int, rng: random.Random) -> Probe | None:
    source, reference = pairs[index]
    is_sentence = source.endswith(".") and not source.endswith("..") and reference.endswith(".")
    return Probe(source[:-1], (source,), reference[:-1]) if is_sentence else None


def _emoji(pairs: Pairs, index: int, rng: random.Random) -> Probe | None:
    (source, reference), emoji = pairs[index], rng.choice(_EMOJI)
    return Probe(f"{source} {emoji}", (source,), f"{reference} {emoji}", (emoji,)) if words(source) else None


def _numbers(pairs: Pairs, index: int, rng: random.Random) -> Probe | None:
    source = pairs[index][0]
    is_sentence = source.endswith(".") and not re.search(r"\d", source) and len(words(source)) > 2
    return Probe(rng.choice(_NUMBERS).format(source[:-1]), (source,)) if is_sentence else None


def _placeholders(pairs: Pairs, index: int, rng: random.Random) -> Probe | None:
    source, part = pairs[index][0], rng.choice(_PLACEHOLDERS)
    parts = source.split()
    if len(parts) < 3:
        return None
    parts.insert(rng.randrange(1, len(parts)), part)
    return Probe(" ".join(parts), (source,), kept=(part,))


def _repeated_words(pairs: Pairs, index: int, rng: random.Random) -> Probe | None:
    source = pairs[index][0]
    parts = source.split()
    if len(parts) < 3:
        return None
    position = rng.randrange(len(parts) - 1)
    parts[position : position + 1] = [parts[position]] * rng.randrange(2, 9)
    return Probe(" ".join(parts), (source,))


def _long_line(pairs: Pairs, index: int, rng: random.Random) -> Probe | None:
    chosen, size = [], 0
    while size < LONG:
        if index == len(pairs):
            return None
        chosen.append(pairs[index])
        size += len(pairs[index][0].split())
        index += 1
    sources, references = zip(*chosen, strict=True)
    return Probe(" ".join(sources), sources, " ".join(references))


def _odd_marks(pairs: Pairs, index: int, rng: random.Random) -> Probe | None:
    source, reference = pairs[index]
    kind = rng.randrange(4)
    if len(words(source)) < 2:
        return None
    if kind == 0:
        return Probe(source.replace(" ", rng.choice(("  ", "\t", "\u00a0", " \u200b"))), (source,), reference)
    if kind == 1:
        return Probe(re.sub(r"([,.!?])", r" \1 ", source), (source,), reference)
    return Probe(rng.choice(_MARKS).format(source.rstrip(".")), (source,))


_FAMILIES: Mapping[str, Callable[[Pairs, int, random.Random], Probe | None]] = {
    "single words": _single_word,
    "CAPITALS": _capitals,
    "Title Case": _title_case,
    "no final stop": _without_stop,
    "emoji": _emoji,
    "numbers and dates": _numbers,
    "placeholders": _placeholders,
    "repeated words": _repeated_words,
    "long lines": _long_line,
    "odd punctuation": _odd_marks,
}


def to_plain(families: Mapping[str, Family]) -> dict[str, Any]:
    """Return plain values, for JSON."""
    return {name: asdict(family) for name, family in families.items()}


def has_loop(source: str, translation: str) -> bool:
    """Return whether a translation repeats something as its source does not.

    A loop is a phrase of at most LONGEST words that comes three times at once; three words that come four times
    anywhere; or up to four letters that come four times at once within a word. What the source repeats as often does
    not count.
    """
    source, translation = source.lower(), translation.lower()
    ours, theirs = (_WORD.findall(text) for text in (translation, source))
    if any((count := _run(ours, size)) >= 3 and count > _run(theirs, size) for size in range(1, LONGEST + 1)):
        return True
    if (count := _most_frequent(ours)) >= 4 and count > _most_frequent(theirs):
        return True
    return bool(_LETTERS.search(translation)) and not _LETTERS.search(source)


def _run(tokens: Sequence[str], size: int) -> int:
    """Return how often a phrase of this size comes at once, at most."""
    longest = same = 0  # tokens in a row that are equal to the token `size` places before
    for token, before in zip(tokens[size:], tokens, strict=False):
        same = same + 1 if token == before else 0
        longest = max(longest, same)
    return longest // size + 1


def _most_frequent(tokens: Sequence[str]) -> int:
    return max(Counter(zip(tokens, tokens[1:], tokens[2:], strict=False)).values(), default=0)
