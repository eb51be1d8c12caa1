"""Tests whether systems' scores differ by more than chance: paired bootstrap and randomisation. Reads texts only."""

import os
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
from rich.table import Table
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from seq2seq.errors import UserError, shorten
from seq2seq.evaluation.metrics import METRICS, require_same_length

SAMPLES, TRIALS = 1000, 10_000  # sacreBLEU's defaults for the bootstrap and for approximate randomisation
TRIALS_AT_ONCE = 320  # bounds the memory; a multiple of 32, so that the draws are those of all trials at once
LEVEL = 0.05  # p-values below this level are marked in the table
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
    metrics: dict[str, MetricScores]  # by the names of METRICS
    num_sentences: int
    num_references: int

    def to_dict(self) -> dict[str, object]:
        """Return plain values, for JSON."""
        return {"baseline": self.systems[0], **asdict(self)}

    def report(self) -> list[Table | str]:
        """Return scores, intervals and p-values as a table for the terminal, and the signatures as lines."""
        names = self.systems
        is_compared = len(names) > 1
        title = f"{self.num_sentences:,} sentences" + (f"; baseline: {names[0]}" if is_compared else "")
        table = Table("metric", title=title, title_justify="left")
        table.add_column("system", overflow="fold")
        for heading in ("score", "95 % interval", *(("difference", "p (BS)", "p (AR)") * is_compared)):
            table.add_column(heading, justify="right")
        for metric, scores in self.metrics.items():
            name = METRICS[metric][0]
            for number, (system, score) in enumerate(zip(names, scores.systems, strict=True)):
                row = [f"{score.value:.1f}", f"{score.mean - score.interval:.1f}–{score.mean + score.interval:.1f}"]
                if number:
                    row.append(f"{score.value - scores.systems[0].value:+.1f}")
                    row += [_show(p) for p in (score.bootstrap_p, score.randomisation_p)]
                elif is_compared:
                    row.append("baseline")
                table.add_row("" if number else name, system, *row, end_section=number == len(names) - 1)
        return [table, *[TESTS] * is_compared, *(scores.signature for scores in self.metrics.values())]


def compare(
    systems: Sequence[tuple[str, Sequence[str]]],
    references: Sequence[Sequence[str]],
    metrics: Collection[str] = tuple(METRICS),
    samples: int = SAMPLES,
    trials: int = TRIALS,
    language: str = "",
) -> Comparison:
    """Score systems and test each against the first one, by paired bootstrap and by approximate randomisation.

    The p-values are sacreBLEU's, except for ties: a swap that gives exactly the observed difference counts as at least
    as large (Riezler & Maxwell 2005; sacreBLEU does not count it, so that systems that differ in one line would differ
    by more than chance), and a system with exactly the baseline's score has the p-value 1.

    Args:
        systems: names and translations of the same texts.
        references: one or several translations of each of these texts.
        metrics: names of METRICS.
        samples: number of samples of the bootstrap, which also gives the confidence intervals.
        trials: number of trials of approximate randomisation.
        language: the targets', which decides how BLEU splits lines into words (`make_bleu`).
    """
    seed = read_seed()
    for _, translations in systems:
        for reference in references:
            require_same_length(len(translations), len(reference))
    lines: list[tuple[str, Sequence[str]]] = [(name, tuple(translations)) for name, translations in systems]
    texts = tuple(map(tuple, references))
    chosen: dict[str, Any] = {name: make(language) for name, (_, make) in METRICS.items() if name in metrics}
    for metric in chosen.values():
        _read_once(metric)
    try:
        signatures, bootstrap = PairedTest(lines, chosen, texts, "bs", samples)()
        randomisation = {
            name: [randomise(metric, lines[0][1], system, texts, trials, seed) for _, system in lines[1:]]
            for name, metric in chosen.items()
        }
    except (MemoryError, OverflowError) as error:
        message = f"{samples:,} samples of {len(texts[0]):,} lines do not fit into memory"
        raise UserError(f"{message}: give `seq2seq evaluate` fewer, with --samples") from error
    scores = {}
    for name, (key, signature) in zip(chosen, signatures.items(), strict=True):
        if len(systems) > 1:
            signature.update("ar", trials)
        pairs = zip(bootstrap[key], [None, *randomisation[name]], strict=True)
        scores[name] = MetricScores(str(signature), [_system_score(*pair, bootstrap[key][0]) for pair in pairs])
    return Comparison([name for name, _ in systems], scores, len(texts[0]), len(texts))


def randomise(
    metric: Metric,
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[Sequence[str]],
    trials: int,
    seed: int | None,
) -> float:
    """Return the p-value of approximate randomisation (Riezler & Maxwell 2005), with sacreBLEU's draws.

    Each trial swaps the two translations of every line with a probability of one half. The p-value is the share of
    trials whose difference is at least as large as the systems' own, which counts as a trial, too.
    """
    theirs, ours = (np.asarray(metric._extract_corpus_statistics(texts, references)) for texts in (baseline, system))

    def difference(left: Any, right: Any) -> float:
        return abs(metric._compute_score_from_stats(left).score - metric._compute_score_from_stats(right).score)

    total = theirs.sum(0) + ours.sum(0)
    observed = difference(theirs.sum(0), ours.sum(0)) - 1e-9  # equal sums can differ by rounding
    draw, as_large = np.random.default_rng(seed), 0
    for begin in range(0, trials, TRIALS_AT_ONCE):
        swapped = draw.integers(2, size=(min(TRIALS_AT_ONCE, trials - begin), len(ours)), dtype=bool)
        swaps = swapped @ theirs + ~swapped @ ours
        as_large += sum(difference(swap, total - swap) >= observed for swap in swaps)
    return (as_large + 1) / (trials + 1)


def read_seed() -> int | None:
    """Return the seed of both tests: SACREBLEU_SEED, or sacreBLEU's default; None: a new seed each time."""
    value = os.environ.get("SACREBLEU_SEED", "12345").lower()
    if value == "none":
        return None
    if not (value.isdecimal() and int(value)):  # sacreBLEU takes 0 for no seed
        message = f"the environment variable SACREBLEU_SEED is {shorten(value)!r}, which is no seed: set it to a"
        raise UserError(f"{message} whole number of 1 or more, or to none (a new seed each time), or unset it (12345)")
    return int(value)


def _read_once(metric: Metric) -> None:
    """Make a metric read each system once for both tests, and return floats, which NumPy multiplies fast."""
    read = metric._extract_corpus_statistics
    metric._extract_corpus_statistics = cache(lambda *texts: np.array(read(*texts), dtype=float))


def _system_score(bootstrap: Any, randomisation_p: float | None, baseline: Any) -> SystemScore:
    """Return one system's scores from its and the baseline's `sacrebleu.significance.Result` of the bootstrap."""
    is_equal = bootstrap is not baseline and bootstrap.score == baseline.score
    bootstrap_p = 1.0 if is_equal else bootstrap.p_value  # sacreBLEU: no resampled difference is less than 0
    return SystemScore(float(bootstrap.score), float(bootstrap.mean), float(bootstrap.ci), bootstrap_p, randomisation_p)


def _show(p_value: float | None) -> str:
    assert p_value is not None  # only the baseline has no p-value
    return f"{p_value:.4f}{'*' if p_value < LEVEL else ' '}"
