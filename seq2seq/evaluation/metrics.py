"""Corpus scores of translations, by sacreBLEU, its public test sets, and expected utilities. Reads texts only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from tarfile import TarError

import numpy as np
from fastchrf import pairwise_chrf
from rich.table import Table
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from seq2seq.errors import UserError
from seq2seq.settings.data import base_language
from seq2seq.storage.lines import Lines, refuse_bad_lines

_MECAB = {"ja": "MeCab", "ko": "mecab_ko"}  # language → the module that splits its words


def make_bleu(language: str = "") -> BLEU:
    """Return sacreBLEU's BLEU for targets in a language, such as es or zh-TW.

    Chinese is split into characters, Japanese and Korean into words by MeCab, or into characters where sacreBLEU's
    extra for the language is not installed. All other languages are split by `13a`, at spaces and punctuation. The
    signature names the way.
    """
    base = base_language(language)
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

    def report(self) -> list[Table | str]:
        """Return the scores as a table for the terminal, and their signatures as lines."""
        table = Table("metric", title=f"{self.num_sentences:,} sentences", title_justify="left")
        table.add_column("score", justify="right")
        scores = (self.bleu, self.chrf, self.ter)
        for (name, _), score in zip(METRICS.values(), scores, strict=True):
            table.add_row(name, f"{score.value:.1f}")
        return [table, *(score.signature for score in scores)]


def require_same_length(
    translations: int, references: int, what: str = "translations", against: str = "reference"
) -> None:
    """Raise an error if two files have different numbers of lines, or no lines."""
    if translations == 0 and references == 0:
        raise UserError(f"there is nothing to score: 0 {what} and 0 {against} lines")
    if translations != references:
        relation = "shorter" if references < translations else "longer"
        message = f"the {against} is {relation} than the {what}: {references} lines against {translations}"
        raise UserError(f"{message}; give files in which line i of one belongs to line i of the other")


def score(hypotheses: Sequence[str], *references: Sequence[str], language: str = "") -> Scores:
    """Score translations against one or several references: BLEU, chrF++ and TER, on raw (detokenised, cased) text.

    language is the targets', which decides how BLEU splits lines into words (`make_bleu`).
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
    """Return BLEU alone, in percent, for validation; language is the targets'."""
    require_same_length(len(hypotheses), len(references))
    return make_bleu(language).corpus_score(list(hypotheses), [list(references)]).score


def load_testset(name: str, src_lang: str = "en", tgt_lang: str = "es") -> tuple[list[str], list[str]]:
    """Read the sources and (first) references of a test set by its name in sacreBLEU, for example wmt13."""
    from sacrebleu.dataset import DATASETS

    pair = f"{src_lang}-{tgt_lang}"
    if name not in DATASETS or pair not in DATASETS[name].langpairs:
        known = sorted(key for key, dataset in DATASETS.items() if pair in dataset.langpairs)
        raise UserError(f"sacreBLEU has no test set {name!r} for {pair}: choose one of {', '.join(known) or '(none)'}")
    dataset = DATASETS[name]
    try:
        files = dataset.get_source_file(pair), dataset.get_reference_files(pair)[0]
    except (OSError, EOFError, TarError, SystemExit) as error:  # sacreBLEU exits on a wrong checksum
        message = f"test set {name} is not in {dataset._outdir} and could not be downloaded ({error})"
        raise UserError(f"{message}: connect to the network, or copy the folder from a machine that has it") from error
    sources, references = ([line.strip() for line in refuse_bad_lines(Lines(Path(file)))] for file in files)
    return sources, references


def expected_utilities(candidates: Sequence[str]) -> list[float]:
    """Return the expected utility of each translation of one source, from 0 to 100 (Eikema & Aziz 2022).

    The utility of a candidate for a reference is its sentence chrF (Popović 2015), as sacreBLEU computes it. Every
    candidate serves as a reference, itself included; repeated candidates, such as samples, count each time.
    """
    texts = ["".join(text.split()) for text in candidates]  # chrF ignores white space
    return np.array(pairwise_chrf([texts], [texts])[0]).mean(1).tolist()
