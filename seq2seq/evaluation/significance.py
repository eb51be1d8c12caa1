"""Tests whether systems' scores differ by more than chance, by sacreBLEU's paired tests. Reads texts only."""

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from seq2seq.errors import UserError, in_short
from seq2seq.evaluation.comet import Comet
from seq2seq.evaluation.metrics import METRICS, require_same_length

SAMPLES, TRIALS = 1000, 10_000  # sacreBLEU's defaults for the bootstrap and for approximate randomisation
LEVEL = 0.05  # p-values below this level are marked in the table
TITLES = {name: title for name, (title, _) in METRICS.items()} | {"comet": "COMET ↑"}  # in tables
TESTS = f"BS: paired bootstrap, AR: paired approximate randomisation, *: p < {LEVEL}"


@dataclass(frozen=True)
class SystemScore:
    """One system's score by one metric, and the p-values of its difference from the baseline's."""

    value: float
    mean: float  # over the bootstrap samples
    interval: float  # 95 % of the bootstrap samples have scores of mean ± interval
    bootstrap_p: float | None  # by paired bootstrap resampling; None for the baseline
    randomisation_p: float | None  # by paired approximate randomisation; None for the baseline


@dataclass(frozen=True)
class MetricScores:
    """All systems' scores by one metric."""

    signature: str  # sacreBLEU's, with both tests' numbers of samples and their seed
    systems: list[SystemScore]  # in the order of `Comparison.systems`


@dataclass(frozen=True)
class Comparison:
    """Scores of systems that translated the same texts; the first system is the baseline for all others."""

    systems: list[str]
    metrics: dict[str, MetricScores]  # by the names of TITLES
    num_sentences: int
    num_references: int

    def to_dict(self) -> dict[str, object]:
        """Return plain values, for JSON."""
        return {"baseline": self.systems[0], **asdict(self)}

    def table(self, testset: str = "") -> Group:
        """Return scores, intervals and p-values as a table for the terminal, with the signatures below."""
        names = [escape(name) for name in self.systems]
        is_compared = len(names) > 1
        title = f"{testset and escape(testset) + ': '}{self.num_sentences:,} sentences"
        title += f"; baseline: {names[0]}" if is_compared else ""
        table = Table("metric", title=title, title_justify="left")
        table.add_column("system", overflow="fold")
        for heading in ("score", "95 % interval", *(("difference", "p (BS)", "p (AR)") * is_compared)):
            table.add_column(heading, justify="right")
        signatures = Table("metric", caption=TESTS if is_compared else None, caption_justify="left")
        signatures.add_column("signature", overflow="fold")
        for metric, scores in self.metrics.items():
            name = TITLES[metric]
            signatures.add_row(name, scores.signature)
            for number, (system, one) in enumerate(zip(names, scores.systems, strict=True)):
                row = [f"{one.value:.1f}", f"{one.mean - one.interval:.1f}–{one.mean + one.interval:.1f}"]
                if number:
                    row.append(f"{one.value - scores.systems[0].value:+.1f}")
                    row += [_show(p) for p in (one.bootstrap_p, one.randomisation_p)]
                elif is_compared:
                    row.append("baseline")
                table.add_row("" if number else name, system, *row, end_section=number == len(names) - 1)
        return Group(table, signatures)


def compare(
    systems: Sequence[tuple[str, Sequence[str]]],
    references: Sequence[Sequence[str]],
    metrics: Collection[str] = tuple(METRICS),
    samples: int = SAMPLES,
    trials: int = TRIALS,
    comet: Callable[[], Comet] | None = None,
) -> Comparison:
    """Score systems and test each against the first one, by paired bootstrap and by approximate randomisation.

    The p-values are sacreBLEU's, except that a system with exactly the baseline's score has the p-value 1 (sacreBLEU
    gives it the smallest possible p-value).

    Args:
        systems: names and translations of the same texts.
        references: one or several translations of each of these texts.
        metrics: names of METRICS.
        samples: number of samples of the bootstrap, which also gives the confidence intervals.
        trials: number of trials of approximate randomisation.
        comet: returns a further metric; called after the texts are checked.

    Raises:
        UserError: the numbers of lines differ, or there are no lines; SACREBLEU_SEED is no seed; samples and trials do
            not fit into memory.
    """
    _require_seed()
    for _, translations in systems:
        for one in references:
            require_same_length(len(translations), len(one))
    lines: list[tuple[str, Sequence[str]]] = [(name, tuple(translations)) for name, translations in systems]
    texts = tuple(map(tuple, references))
    made: dict[str, Any] = {name: make() for name, (_, make) in METRICS.items() if name in metrics}
    if comet is not None:
        made["comet"] = comet()
    for metric in made.values():
        _read_once(metric)
    try:
        signatures, bootstrap = PairedTest(lines, made, texts, "bs", samples)()
        _, randomisation = PairedTest(lines, made, texts, "ar", trials)()
    except (MemoryError, OverflowError) as error:
        raise UserError(
            f"{samples:,} samples and {trials:,} trials of {len(texts[0]):,} lines do not fit into memory: "
            "give smaller --samples and --trials"
        ) from error
    found = {}
    for name, (key, signature) in zip(made, signatures.items(), strict=True):
        if len(systems) > 1:
            signature.update("ar", trials)
        pairs = zip(bootstrap[key], randomisation[key], strict=True)
        found[name] = MetricScores(str(signature), [_system_score(*pair, bootstrap[key][0]) for pair in pairs])
    return Comparison([name for name, _ in systems], found, len(texts[0]), len(texts))


def _require_seed() -> None:
    """Raise an error if sacreBLEU would fail with the value of SACREBLEU_SEED.

    Raises:
        UserError: the value is neither a whole number of 0 or more nor `none`.
    """
    given = os.environ.get("SACREBLEU_SEED", "none")
    try:
        is_seed = given.lower() == "none" or int(given) >= 0
    except ValueError:
        is_seed = False
    if not is_seed:
        raise UserError(
            f"the environment variable SACREBLEU_SEED is {in_short(given)!r}, which is no seed: set it to a whole "
            "number of 0 or more, or to none (a new seed each time), or unset it (12345)"
        )


def _read_once(metric: Metric | Comet) -> None:
    """Make a metric read each system once for both tests, and return floats, which NumPy multiplies fast."""
    read = metric._extract_corpus_statistics

    @cache
    def read_once(*texts: Sequence[Any]) -> np.ndarray:
        return np.array(read(*texts), dtype=float)

    metric._extract_corpus_statistics = read_once  # type: ignore[method-assign]


def _system_score(bootstrap: Any, randomisation: Any, baseline: Any) -> SystemScore:
    """Return one system's scores from its `sacrebleu.significance.Result` of each test and the baseline's."""
    p_values = bootstrap.p_value, randomisation.p_value
    if bootstrap is not baseline and bootstrap.score == baseline.score:  # no resampled difference is less than 0
        p_values = 1.0, 1.0
    return SystemScore(float(bootstrap.score), float(bootstrap.mean), float(bootstrap.ci), *p_values)


def _show(p_value: float | None) -> str:
    assert p_value is not None  # only the baseline has no p-value
    return f"{p_value:.4f}{'*' if p_value < LEVEL else ' '}"
