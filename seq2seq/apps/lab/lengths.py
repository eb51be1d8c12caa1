"""BLEU by length of the source, for several models in one picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU

from seq2seq.errors import UserError
from seq2seq.evaluation.error_analysis import LENGTHS, in_ranges

FEWEST = 20  # sentences; BLEU of fewer sentences is noise
RESAMPLES = 300


@dataclass(frozen=True)
class Bucket:
    """Sources of similar length: their range of words, such as "6–10" or "41+", and their line numbers from 0."""

    name: str
    lines: list[int]


@dataclass(frozen=True)
class Point:
    """BLEU of a bucket, and half the width of its 95 % bootstrap interval (Koehn 2004)."""

    bleu: float
    half_width: float


def make_buckets(sources: Sequence[str]) -> list[Bucket]:
    """Return sources grouped by their number of words, without buckets of fewer than FEWEST sentences."""
    lengths = [len(source.split()) for source in sources]
    ranges = in_ranges(lengths, LENGTHS)
    buckets = [Bucket(name, lines) for name, lines in ranges if lengths[lines[0]] and len(lines) >= FEWEST]
    if not buckets:
        raise UserError(f"{len(sources)} sentences are too few: no group of like length has {FEWEST}")
    return buckets


def bleu_by_length(buckets: Sequence[Bucket], translations: Sequence[str], references: Sequence[str]) -> list[Point]:
    """Return sacreBLEU's score of each bucket; intervals come from RESAMPLES draws with a fixed seed."""
    points = []
    for bucket in buckets:
        hypotheses, expected = ([texts[line] for line in bucket.lines] for texts in (translations, references))
        score = BLEU().corpus_score(hypotheses, [expected], n_bootstrap=RESAMPLES)
        points.append(Point(score.score, float(score._ci)))
    return points


def draw_lengths(buckets: Sequence[Bucket], curves: Mapping[str, Sequence[Point]], picture: Path) -> None:
    """Write a picture with a line and intervals for each model, and with the number of sentences of each bucket."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axis = figure.subplots()
    for number, (name, points) in enumerate(curves.items()):
        shift = (number - (len(curves) - 1) / 2) * 0.06  # so that intervals do not overlap
        positions = [position + shift for position in range(len(buckets))]
        bleu, width = [point.bleu for point in points], [point.half_width for point in points]
        axis.errorbar(positions, bleu, yerr=width, marker="o", markersize=5, capsize=3, linewidth=1.8, label=name)
    axis.set_xticks(range(len(buckets)), [f"{bucket.name}\n({len(bucket.lines):,})" for bucket in buckets])
    axis.set_xlabel("words in the source (sentences)")
    axis.set_ylabel("BLEU, 95 % interval")
    axis.set_ylim(bottom=0)
    axis.grid(axis="y", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    try:
        figure.savefig(picture, dpi=150)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write {picture}: {error}") from error


def names_of(folders: Sequence[Path]) -> list[str]:
    """Return different names for bundles: the runs' names, or the paths of runs that share a name."""
    names = [(folder.resolve().parent if folder.name == "model" else folder.resolve()).name for folder in folders]
    return [name if names.count(name) == 1 else str(folder) for name, folder in zip(names, folders, strict=True)]


def table(buckets: Sequence[Bucket], curves: Mapping[str, Sequence[Point]]) -> str:
    """Return the numbers of the picture as tab-separated text."""
    rows = [["words", "sentences", *curves]]
    for bucket, *points in zip(buckets, *curves.values(), strict=True):
        scores = [f"{point.bleu:.1f} ± {point.half_width:.1f}" for point in points]
        rows.append([bucket.name, str(len(bucket.lines)), *scores])
    return "\n".join("\t".join(row) for row in rows)
