"""Scores of translations by length, by rare words and by file, and faults of translations. Reads texts only."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.table import Table
from sacrebleu.metrics.base import Metric

from seq2seq.evaluation.faults import (
    FAULTS,
    INATTENTIVE,
    LANGUAGES,
    Check,
    Triple,
    invented_share,
    invented_words,
    make_checks,
    separates_words,
    word_forms,
)
from seq2seq.evaluation.metrics import METRICS, require_same_length

LENGTHS = (0, 1, 6, 11, 16, 21, 31, 41)  # for each group, the smallest number of words in a source
RARITY = (0, 1, 6, 51)  # for each group, the smallest number of occurrences of the rarest word in the training text
GROUPS = {  # name → meaning of the groups' names, for tables
    "length": "words in the source",
    "rarity": "occurrences of the rarest word",
    "file": "file",
}
SHOWN = 3  # number of lines that the terminal's table names for each fault


@dataclass(frozen=True)
class Translated:
    """The texts of one test set; line i of each belongs to line i of the others."""

    name: str
    sources: Sequence[str]
    hypotheses: Sequence[str]
    references: Sequence[str]


@dataclass(frozen=True)
class Focus:
    """A model's attention to a source while it reads the translation."""

    ignored: float  # share of source tokens whose attention sums to less than `IGNORED`
    entropy: float  # mean over the target's tokens of -Σ a ln a (nats)


@dataclass(frozen=True)
class Group:
    """The scores of a group of lines, by sacreBLEU."""

    name: str
    num_sentences: int
    bleu: float
    chrf: float  # chrF++


@dataclass(frozen=True)
class Line:
    """One translation and what is wrong with it."""

    file: str
    number: int  # in the file, from 1
    chrf: float  # sentence chrF++
    faults: dict[str, str]  # name of FAULTS → what was found
    source: str
    hypothesis: str
    reference: str


@dataclass(frozen=True)
class Fault:
    """How often translations have a fault."""

    name: str  # of FAULTS
    count: int
    share: float  # of the lines that were checked
    worst: list[Line]  # the lines with the lowest chrF++


@dataclass(frozen=True)
class InventedWord:
    """A word that neither the sources of its translations nor the training text's targets have."""

    word: str  # in lower case
    count: int
    line: Line  # of the lines with this word, the one with the lowest chrF++


@dataclass(frozen=True)
class InventedWords:
    """How often translations have invented words, and how often people's references have words that count as such."""

    share: float  # of the words of the translations
    of_references: float  # the same share of the references' words
    most_frequent: list[InventedWord]


@dataclass(frozen=True)
class Analysis:
    """Scores by groups, faults, and the lowest-scoring lines."""

    num_sentences: int
    bleu: float
    chrf: float
    signatures: dict[str, str]  # sacreBLEU's, of "bleu" and "chrf"
    groups: dict[str, list[Group]]  # by the names of GROUPS
    faults: list[Fault]
    invented: InventedWords | None  # None: no words are known
    worst: list[Line]
    left_out: list[str]  # the analyses that were left out, and why

    def to_dict(self) -> dict[str, object]:
        """Return plain values, for JSON."""
        return asdict(self)

    def report(self) -> list[Table | str]:
        """Return scores and faults as tables for the terminal, and the lowest-scoring lines as texts."""
        title = f"{self.num_sentences:,} sentences: BLEU {self.bleu:.1f}, chrF++ {self.chrf:.1f}"
        scores = Table("by", title=title, title_justify="left")
        scores.add_column("group", overflow="fold")
        for heading in ("sentences", "BLEU", "chrF++"):
            scores.add_column(heading, justify="right")
        for by, groups in self.groups.items():
            for number, group in enumerate(groups):
                row = (group.name, f"{group.num_sentences:,}", f"{group.bleu:.1f}", f"{group.chrf:.1f}")
                scores.add_row("" if number else GROUPS[by], *row, end_section=number == len(groups) - 1)
        faults = Table("fault", "lines", "share", "worst lines")
        for fault in self.faults:
            lines = ", ".join(self.place(line) for line in fault.worst[:SHOWN])
            faults.add_row(fault.name.replace("_", " "), f"{fault.count:,}", f"{fault.share:.1%}", lines)
        worst = ["lines with the lowest chrF++: source, translation, reference"]
        for line in self.worst:
            texts = (f"line {self.place(line)}: {line.chrf:.1f}", line.source, line.hypothesis, line.reference)
            worst.append("\n  ".join(texts))
        return [scores, faults, *filter(None, [self.invented_text(), *self.left_out]), *worst]

    def invented_text(self) -> str:
        """Return how many words are invented, and the most frequent ones, as a text; empty if no words are known."""
        if self.invented is None:
            return ""
        each = (f"{entry.word} ({entry.count}, line {self.place(entry.line)})" for entry in self.invented.most_frequent)
        shares = f"{self.invented.share:.1%} of the words, {self.invented.of_references:.1%} of the references' words"
        return f"invented words: {shares}" + (f"; most frequent: {', '.join(each)}" if self.invented.share else "")

    def place(self, line: Line) -> str:
        """Return a line's number, after the name of its file if there are several files."""
        return f"{line.file}:{line.number}" if "file" in self.groups else str(line.number)


def analyse(
    files: Sequence[Translated],
    src_lang: str = "en",
    tgt_lang: str = "es",
    frequencies: Mapping[str, int] | None = None,
    focus: Sequence[Focus | None] | None = None,
    worst: int = 10,
    known: Collection[str] | None = None,
) -> Analysis:
    """Score groups of translations, and find faults.

    Args:
        files: the test sets.
        src_lang: language of the sources.
        tgt_lang: language of the translations.
        frequencies: how often words occur in the training text (see `count_words`); None: not known.
        focus: a model's attention for every line of all files, None for a line that the model has not read; None
            without a model.
        worst: number of lowest-scoring lines to return for each fault, and of all lines; and of invented words.
        known: the words of the training text's targets in lower case; None: not known.
    """
    for file in files:
        require_same_length(len(file.hypotheses), len(file.references))
        require_same_length(len(file.hypotheses), len(file.sources), against="input")
    texts = [Triple(*row) for file in files for row in zip(file.sources, file.hypotheses, file.references, strict=True)]
    places = [(file.name, number) for file in files for number in range(1, len(file.sources) + 1)]
    scorer = _Scorer([text.hypothesis for text in texts], [text.reference for text in texts], tgt_lang)
    grouped = {"length": in_ranges([len(text.source.split()) for text in texts], LENGTHS)}
    if frequencies is not None:
        counts = ([frequencies.get(word, 0) for word in word_forms(text.source)] for text in texts)
        ranges = in_ranges([min(of_line, default=None) for of_line in counts], RARITY)
        grouped["rarity"] = [("unseen" if name == "0" else name, lines) for name, lines in ranges]
    if len(files) > 1:
        names = dict.fromkeys(file.name for file in files)
        grouped["file"] = [(name, [i for i, place in enumerate(places) if place[0] == name]) for name in names]
    line_faults, checked = _find_faults(texts, make_checks(texts, src_lang, tgt_lang, known), focus)
    lines = [
        Line(*places[i], scorer.score("chrf", [i]), line_faults[i], text.source, text.hypothesis, text.reference)
        for i, text in enumerate(texts)
    ]
    lines.sort(key=lambda line: line.chrf)
    faults = []
    for name, number in checked.items():
        faulty = [line for line in lines if name in line.faults]
        faults.append(Fault(name, len(faulty), len(faulty) / max(1, number), faulty[:worst]))
    everything = range(len(texts))
    return Analysis(
        len(texts),
        scorer.score("bleu", everything),
        scorer.score("chrf", everything),
        scorer.signatures,
        {by: [scorer.group(*group) for group in groups] for by, groups in grouped.items()},
        faults,
        None if known is None else _count_invented(lines, known, worst),
        lines[:worst],
        _left_out(src_lang, tgt_lang, frequencies, focus, known),
    )


def count_words(texts: Iterable[str], of: Iterable[str]) -> dict[str, int]:
    """Count how often the words of sources, in lower case, occur in a training text, which may have any length."""
    wanted = {word for text in of for word in word_forms(text)}
    counts = Counter(word for text in texts for word in word_forms(text) if word in wanted)
    return dict(counts)


def in_ranges(values: Sequence[int | None], starts: Sequence[int]) -> list[tuple[str, list[int]]]:
    """Return each range's name, such as "6–10" or "41+", and the indices of the values in the range.

    Empty ranges are left out. Values that are None or below the first start are in no range.
    """
    ranges = []
    for first, end in zip(starts, (*starts[1:], None), strict=True):
        inside = [i for i, n in enumerate(values) if n is not None and first <= n and (end is None or n < end)]
        name = f"{first}+" if end is None else f"{first}–{end - 1}" if end - 1 > first else str(first)
        if inside:
            ranges.append((name, inside))
    return ranges


class _Scorer:
    """sacreBLEU's BLEU and chrF++ of any of the lines; each line is read once."""

    def __init__(self, hypotheses: Sequence[str], references: Sequence[str], language: str) -> None:
        self._metrics: dict[str, Metric] = {name: METRICS[name][1](language) for name in ("bleu", "chrf")}
        self._read = {
            name: metric._extract_corpus_statistics(hypotheses, [references]) for name, metric in self._metrics.items()
        }
        self.signatures = {name: str(metric.get_signature()) for name, metric in self._metrics.items()}

    def score(self, metric: str, lines: Collection[int]) -> float:
        return self._metrics[metric]._aggregate_and_compute([self._read[metric][line] for line in lines]).score

    def group(self, name: str, lines: Collection[int]) -> Group:
        return Group(name, len(lines), self.score("bleu", lines), self.score("chrf", lines))


def _count_invented(lines: Sequence[Line], known: Collection[str], most: int) -> InventedWords:
    """Count the invented words of lines that are sorted by chrF++; return at most `most` of the words."""
    occurrences = [(word, line) for line in lines for word in invented_words(line.source, line.hypothesis, known)]
    worst = dict(reversed(occurrences))
    counts = Counter(word for word, _ in occurrences).most_common(most)
    return InventedWords(
        invented_share([(line.source, line.hypothesis) for line in lines], known),
        invented_share([(line.source, line.reference) for line in lines], known),
        [InventedWord(word, count, worst[word]) for word, count in counts],
    )


def _find_faults(
    texts: Sequence[Triple], checks: Mapping[str, Check], focus: Sequence[Focus | None] | None
) -> tuple[list[dict[str, str]], dict[str, int]]:
    """Return every line's faults, and how many lines were checked for each fault."""
    faults = [{name: proof for name, check in checks.items() if (proof := check(text)) is not None} for text in texts]
    checked = dict.fromkeys(checks, len(texts))
    if focus is not None:
        checked["inattention"] = sum(view is not None for view in focus)
        for of_line, view in zip(faults, focus, strict=True):
            if view is not None and view.ignored >= INATTENTIVE:
                of_line["inattention"] = f"{view.ignored:.0%} of the source ignored, entropy {view.entropy:.1f} nats"
    return faults, {name: checked[name] for name in FAULTS if name in checked}


def _left_out(
    src_lang: str,
    tgt_lang: str,
    frequencies: Mapping[str, int] | None,
    focus: Sequence[Focus | None] | None,
    known: Collection[str] | None,
) -> list[str]:
    unknown = [lang for lang in dict.fromkeys((src_lang, tgt_lang)) if lang not in LANGUAGES]
    is_spaced = separates_words(tgt_lang)
    why = "the prepared text of the model's run is not here" if is_spaced else f"{tgt_lang} has no spaces between words"
    reasons = {
        "scores by rarity: no training text is given": frequencies is None,
        "inattention: no model is given": focus is None,
        f"numbers and negation: known for {' and '.join(LANGUAGES)}, not for {' and '.join(unknown)}": bool(unknown),
        f"invented words: {why}": known is None,
    }
    return [f"left out: {reason}" for reason, holds in reasons.items() if holds]
