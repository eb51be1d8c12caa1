"""Corpus scores of translations, by sacreBLEU. Reads texts only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec

from rich.table import Table
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from seq2seq.errors import UserError

_MECAB = {"ja": "MeCab", "ko": "mecab_ko"}  # language → the module that splits its words


def make_bleu(language: str = "") -> BLEU:
    """Return sacreBLEU's BLEU for targets in a language, such as es or zh-TW.

    Chinese is split into characters, Japanese and Korean into words by MeCab, or into characters where sacreBLEU's
    extra for the language is not installed. All other languages are split by `13a`, at spaces and punctuation. The
    signature names the way.
    """
    base = language.lower().replace("_", "-").partition("-")[0]
    if base in _MECAB and find_spec(_MECAB[base]) is None:
        return BLEU(tokenize="char")
    return BLEU(trg_lang=base)


METRICS: Mapping[str, tuple[str, Callable[[str], Metric]]] = {
    # name in JSON → name in tables, and the maker of sacreBLEU's metric for a target language
    "bleu": ("BLEU ↑", make_bleu),
    "chrf": ("chrF++ ↑", lambda language: CHRF(word_order=2)),
    "ter": ("TER ↓", lambda language: TER()),
}


@dataclass(frozen=True)
class Score:
    """One metric's value over a corpus, and the signature to reproduce it."""

    value: float  # percent; for TER, edits per 100 reference words
    signature: str  # sacreBLEU's: version, casing, tokenisation, …


@dataclass(frozen=True)
class Scores:
    """The scores of translations against their references."""

    bleu: Score  # higher is better
    chrf: Score  # chrF++ (word order 2); higher is better
    ter: Score  # lower is better
    num_sentences: int

    def to_dict(self) -> dict[str, object]:
        """Return plain values, for JSON."""
        return asdict(self)

    def table(self) -> Table:
        """Return the scores as a table for the terminal, signatures included."""
        table = Table("metric", title=f"{self.num_sentences:,} sentences", title_justify="left")
        table.add_column("score", justify="right")
        table.add_column("signature", overflow="fold")  # a score needs its whole signature
        for (name, _), score in zip(METRICS.values(), (self.bleu, self.chrf, self.ter), strict=True):
            table.add_row(name, f"{score.value:.1f}", score.signature)
        return table


def require_same_length(
    translations: int, references: int, what: str = "translations", against: str = "reference"
) -> None:
    """Raise an error if two files have different numbers of lines, or no lines."""
    if translations == 0 and references == 0:
        raise UserError(f"there is nothing to score: 0 {what} and 0 {against} lines")
    if translations != references:
        relation = "shorter" if references < translations else "longer"
        raise UserError(
            f"the {against} is {relation} than the {what}: {references} lines against {translations}; "
            "give files in which line i of one belongs to line i of the other"
        )


def score(hypotheses: Sequence[str], *references: Sequence[str], language: str = "") -> Scores:
    """Score translations against one or several references: BLEU, chrF++ and TER, on raw (detokenised, cased) text.

    language is the targets', which decides how BLEU splits lines into words (`make_bleu`).

    Raises:
        UserError: the numbers of hypotheses and references differ, or there are none.
    """
    for reference in references:
        require_same_length(len(hypotheses), len(reference))
    values = []
    for _, make in METRICS.values():
        metric = make(language)
        value = metric.corpus_score(list(hypotheses), [list(reference) for reference in references]).score
        values.append(Score(value, str(metric.get_signature())))
    return Scores(*values, num_sentences=len(hypotheses))


def bleu(hypotheses: Sequence[str], references: Sequence[str], language: str = "") -> float:
    """Return BLEU alone, in percent, for validation; language is the targets'.

    Raises:
        UserError: the numbers of hypotheses and references differ, or there are none.
    """
    require_same_length(len(hypotheses), len(references))
    return make_bleu(language).corpus_score(list(hypotheses), [list(references)]).score
