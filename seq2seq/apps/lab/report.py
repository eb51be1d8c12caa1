"""The lab's report, with loss curves, tables, and values for programs; and BLEU by length of the source."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median
from typing import Any

from sacrebleu.metrics.bleu import BLEU

from seq2seq.apps.lab.runs import BASELINE, RULE, Curve, Lab, LabRun, Measured, Verdict, judge, read_claims, read_lab
from seq2seq.errors import UserError
from seq2seq.evaluation.error_analysis import LENGTHS, in_ranges
from seq2seq.storage.atomic import replacing
from seq2seq.storage.output import output_folder

Buckets = dict[str, list[int]]  # line numbers, from 0, of sources of similar length, by range of words such as "6–10"
Point = tuple[float, float]  # BLEU of a bucket, and half the width of its 95 % bootstrap interval (Koehn 2004)
TITLE = "The ablation lab"
PAGE, CURVES, VALUES = "lab.md", "curves.png", "lab.json"
MEASURES = {"bleu": "BLEU", "validation_loss": "validation loss"}
DECIMALS = {"bleu": 1, "validation_loss": 2, "training_loss": 2}  # BLEU to a tenth, nats to a hundredth
MISLEADING = "no_causal_mask"  # its loss is good, but its translations are bad
PANELS = 4  # most panels of loss curves per row
GREY, COLOUR, INK, FAINT = "#8a8f98", "#c2410c", "#1f2328", "#d8dbe0"
FEWEST = 20  # sentences; BLEU of fewer sentences is noise
RESAMPLES = 300


def write_report(runs: Path, output: Path) -> Lab:
    """Write the section about these runs in output/lab.md, and their picture and values into output/NAME OF runs/."""
    claims = read_claims()
    lab = read_lab(runs, [BASELINE, *dict.fromkeys(claim.experiment for claim in claims)])
    verdicts = [verdict for claim in claims if (verdict := judge(claim, lab)) is not None]
    key = runs.resolve().name
    with output_folder(output):
        (output / key).mkdir(exist_ok=True)
        draw_curves(lab, output / key / CURVES)
        text = json.dumps(to_plain(lab, verdicts), ensure_ascii=False)
        (output / key / VALUES).write_text(text + "\n", encoding="utf-8")
        fill(output / PAGE, key, to_markdown(lab, verdicts, key))
    return lab


def fill(page: Path, key: str, text: str) -> None:
    """Replace the text between the comments `<!-- begin KEY -->` and `<!-- end KEY -->` of a page.

    If the page lacks both comments, they are added at its end. A missing page is created with TITLE.
    """
    begin, end = f"<!-- begin {key} -->", f"<!-- end {key} -->"
    try:
        before = page.read_text(encoding="utf-8") if page.exists() else f"# {TITLE}\n"
    except UnicodeDecodeError as error:
        raise UserError(f"{page} is not UTF-8: convert it first, or give another --output") from error
    if begin not in before and end not in before:
        before = f"{before.rstrip()}\n\n{begin}\n{end}\n"
    head, has_begin, rest = before.partition(begin)
    _, has_end, tail = rest.partition(end)
    if not has_begin or not has_end:
        raise UserError(f"{page} has only one of {begin} and {end}: put the other one back")
    with replacing(page) as draft:
        draft.write_text(f"{head}{begin}\n{text.strip()}\n{end}{tail}", encoding="utf-8")


def to_plain(lab: Lab, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return verdicts, problems, differing settings and runs as JSON values."""
    return {
        "rule": RULE,
        "verdicts": [asdict(verdict) for verdict in verdicts],
        "problems": lab.problems,
        "differences": {
            name: lab.differences(name, BASELINE) for name in dict.fromkeys(run.experiment for run in lab.runs)
        },
        "runs": [{key: value for key, value in asdict(run).items() if key != "settings"} for run in lab.runs],
    }


def to_markdown(lab: Lab, verdicts: Sequence[Verdict], key: str) -> str:
    """Return the page's section in Markdown: rule, claims, losses, the picture, missing runs."""
    parts = [_summary(lab), f"**The rule**, stated before the runs: {RULE}", _claims(lab, verdicts)]
    if lab.of(BASELINE) and lab.of(MISLEADING):
        parts.append("**A loss that lies.** Means over seeds; losses are nats a target token, teacher-forced:")
        measures = ("training_loss", "validation_loss", "bleu")
        rows = [[name, *(_mean(lab.of(name), measure) for measure in measures)] for name in (BASELINE, MISLEADING)]
        parts.append(_table("experiment | training loss | validation loss | BLEU", rows))
    parts.append(f"![Validation loss of every experiment beside the whole model's]({key}/{CURVES})")
    if lab.problems:
        parts.append("**Missing or not comparable:**\n\n" + "\n".join(f"- {problem}" for problem in lab.problems))
    return "\n\n".join(parts)


def _summary(lab: Lab) -> str:
    first, seeds = lab.runs[0], sorted({run.seed for run in lab.runs})
    minutes, hardware = median(run.seconds for run in lab.runs) / 60, sorted({run.hardware for run in lab.runs})
    return (
        f"{len(lab.runs)} runs of {len({run.experiment for run in lab.runs})} experiments, "
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}: {first.updates:,} updates on "
        f"{first.pairs:,} sentence pairs each, {minutes:.1f} minutes of training (median) on {' and '.join(hardware)}. "
        f"BLEU is that of {first.test_set}; ± is the standard deviation over seeds. Below each name is all that its "
        "runs' own settings have other than the baseline's."
    )


def _claims(lab: Lab, verdicts: Sequence[Verdict]) -> str:
    rows = []
    if baseline := lab.of(BASELINE):
        rows.append(_row(f"**{BASELINE}**", "the whole model", baseline, "", ""))
    experiments = [verdict.claim.experiment for verdict in verdicts]
    for verdict in verdicts:
        claim = verdict.claim
        settings = lab.differences(claim.experiment, BASELINE)
        name = "<br>".join([claim.experiment, *(f"`{key}={value}`" for key, value in settings.items())])
        measure = f" *(its {MEASURES[claim.measure]})*" if experiments.count(claim.experiment) > 1 else ""
        against = "" if claim.against == BASELINE else f" *(beside {claim.against})*"
        word = f"**{verdict.word}**" if verdict.word in ("borne out", "contradicted") else verdict.word
        runs = lab.of(claim.experiment)
        rows.append(_row(name, claim.text + measure + against, runs, _difference(verdict), word))
    header = "experiment | claim | weights | n | BLEU | difference (95 % interval) | validation loss | verdict"
    return _table(header, rows)


def _row(name: str, text: str, runs: Sequence[LabRun], difference: str, word: str) -> list[str]:
    weights, bleu, loss = f"{runs[0].parameters / 1000:,.0f} k", _mean(runs, "bleu"), _mean(runs, "validation_loss")
    return [name, text, weights, str(len(runs)), bleu, difference, loss, word]


def _table(header: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the header's cells are separated by " | "."""
    rule = "---|" * len(header.split(" | "))
    return "\n".join([f"| {header} |", f"|{rule}", *(f"| {' | '.join(row)} |" for row in rows)])


def _mean(runs: Sequence[LabRun], measure: str) -> str:
    measured, decimals = Measured.of([getattr(run, measure) for run in runs]), DECIMALS[measure]
    spread = "" if measured.deviation is None else f" ± {measured.deviation:.{decimals}f}"
    return f"{measured.mean:.{decimals}f}{spread}"


def _difference(verdict: Verdict) -> str:
    decimals, interval = DECIMALS[verdict.claim.measure], verdict.difference
    value = f"{verdict.ours.mean - verdict.theirs.mean:+.{decimals}f}"
    return value if interval is None else f"{value} ({interval.low:+.{decimals}f} to {interval.high:+.{decimals}f})"


def draw_curves(lab: Lab, picture: Path) -> None:
    """Write a picture of validation losses (nats per target token) by updates, a panel for each experiment.

    The baseline's panel is first; the others are in the order of BLEU, best first.
    """
    from matplotlib.figure import Figure

    names = {run.experiment for run in lab.runs} - {BASELINE}
    ordered = sorted(names, key=lambda name: -fmean(run.bleu for run in lab.of(name)))
    panels = [BASELINE, *ordered] if lab.of(BASELINE) else ordered
    columns = min(PANELS, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(12, 0.9 + 2.25 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axis, name in zip(axes.flat, panels, strict=False):
        _draw_panel(axis, lab, name)
    for index, axis in enumerate(axes.flat):
        if index >= len(panels):
            axis.remove()
        elif index + columns >= len(panels):
            axis.tick_params(labelbottom=True)
    figure.suptitle(
        "Validation loss (nats a target token) by updates; best BLEU first; seeds thin, mean thick; grey: baseline",
        fontsize=11, color=INK, x=0.008, ha="left",
    )  # fmt: skip
    figure.savefig(picture, dpi=130)


def _draw_panel(axis: Any, lab: Lab, name: str) -> None:
    runs, baseline = lab.of(name), lab.of(BASELINE)
    if name != BASELINE and baseline:
        axis.plot(*zip(*mean_curve(baseline), strict=True), color=GREY, linewidth=1.6)
    color = GREY if name == BASELINE else COLOUR
    for run in runs:
        axis.plot(*zip(*run.validation_losses, strict=True), color=color, linewidth=0.7, alpha=0.45)
    axis.plot(*zip(*mean_curve(runs), strict=True), color=color, linewidth=1.8)
    axis.set_title(name.replace("_", " "), fontsize=10, loc="left", color=INK, fontweight="bold")
    axis.set_title(f"BLEU {fmean(run.bleu for run in runs):.1f}", fontsize=10, loc="right", color=color)
    axis.grid(color=FAINT, linewidth=0.6)
    axis.tick_params(labelsize=8, colors=INK, length=0)
    axis.spines[:].set_visible(False)


def mean_curve(runs: Sequence[LabRun]) -> Curve:
    """Return the mean of several runs' validation curves, at the updates where all runs were validated."""
    curves = [dict(run.validation_losses) for run in runs]
    shared = set.intersection(*map(set, curves))
    return [(update, fmean(curve[update] for curve in curves)) for update in sorted(shared)]


def make_buckets(sources: Sequence[str]) -> Buckets:
    """Return the sources' line numbers by number of words, without buckets of fewer than FEWEST sentences."""
    lengths = [len(source.split()) for source in sources]
    ranges = in_ranges(lengths, LENGTHS)
    buckets = {name: lines for name, lines in ranges if lengths[lines[0]] and len(lines) >= FEWEST}
    if not buckets:
        raise UserError(f"{len(sources)} sentences are too few: no group of like length has {FEWEST}")
    return buckets


def bleu_by_length(buckets: Buckets, translations: Sequence[str], references: Sequence[str]) -> list[Point]:
    """Return sacreBLEU's score of each bucket; intervals come from RESAMPLES draws with a fixed seed."""
    points = []
    for lines in buckets.values():
        hypotheses, expected = ([texts[line] for line in lines] for texts in (translations, references))
        score = BLEU().corpus_score(hypotheses, [expected], n_bootstrap=RESAMPLES)
        points.append((score.score, float(score._ci)))
    return points


def draw_lengths(buckets: Buckets, curves: Mapping[str, Sequence[Point]], picture: Path) -> None:
    """Write a picture with a line and intervals for each model, and with the number of sentences of each bucket."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axis = figure.subplots()
    for number, (name, points) in enumerate(curves.items()):
        shift = (number - (len(curves) - 1) / 2) * 0.06  # so that intervals do not overlap
        positions = [position + shift for position in range(len(buckets))]
        bleu, width = zip(*points, strict=True)
        axis.errorbar(positions, bleu, yerr=width, marker="o", markersize=5, capsize=3, linewidth=1.8, label=name)
    axis.set_xticks(range(len(buckets)), [f"{name}\n({len(lines):,})" for name, lines in buckets.items()])
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


def table(buckets: Buckets, curves: Mapping[str, Sequence[Point]]) -> str:
    """Return the numbers of the picture as tab-separated text."""
    rows = [["words", "sentences", *curves]]
    for (name, lines), *points in zip(buckets.items(), *curves.values(), strict=True):
        rows.append([name, str(len(lines)), *(f"{bleu:.1f} ± {half_width:.1f}" for bleu, half_width in points)])
    return "\n".join("\t".join(row) for row in rows)
