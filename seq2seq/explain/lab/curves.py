"""All loss curves of a lab in one picture: a small panel for each experiment, the whole model's curve in each."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from seq2seq.explain.lab.claims import BASELINE
from seq2seq.explain.lab.runs import Curve, Lab, Run

COLUMNS = 4
WHOLE, TAKEN, INK, FAINT = "#8a8f98", "#c2410c", "#1f2328", "#d8dbe0"


def draw_curves(lab: Lab, picture: Path) -> None:
    """Draw validation losses (nats per target token) against updates; experiments in the order of their BLEU.

    Raises:
        OSError: the picture cannot be written.
    """
    from matplotlib.figure import Figure

    names = {run.experiment for run in lab.runs} - {BASELINE}
    ordered = sorted(names, key=lambda name: -fmean(run.bleu for run in lab.of(name)))
    panels = [*([BASELINE] if lab.of(BASELINE) else []), *ordered]
    rows = -(-len(panels) // COLUMNS)
    figure = Figure(figsize=(12, 0.9 + 2.25 * rows), layout="constrained")
    axes = figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False)
    for axis, name in zip(axes.flat, panels, strict=False):
        _draw(axis, lab, name)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for index, axis in enumerate(axes.flat):
        if index < len(panels) <= index + COLUMNS:
            axis.tick_params(labelbottom=True)
    figure.suptitle(
        "Validation loss (nats a target token) by updates; best BLEU first; seeds thin, mean thick; grey: baseline",
        fontsize=11, color=INK, x=0.008, ha="left",
    )  # fmt: skip
    figure.savefig(picture, dpi=130)


def _draw(axis: Any, lab: Lab, name: str) -> None:
    runs, whole = lab.of(name), lab.of(BASELINE)
    if name != BASELINE and whole:
        axis.plot(*zip(*mean_curve(whole), strict=True), color=WHOLE, linewidth=1.6)
    color = WHOLE if name == BASELINE else TAKEN
    for run in runs:
        axis.plot(*zip(*run.validation_losses, strict=True), color=color, linewidth=0.7, alpha=0.45)
    axis.plot(*zip(*mean_curve(runs), strict=True), color=color, linewidth=1.8)
    axis.set_title(name.replace("_", " "), fontsize=10, loc="left", color=INK, fontweight="bold")
    axis.set_title(f"BLEU {fmean(run.bleu for run in runs):.1f}", fontsize=10, loc="right", color=color)
    axis.grid(color=FAINT, linewidth=0.6)
    axis.tick_params(labelsize=8, colors=INK, length=0)
    for side in axis.spines.values():
        side.set_visible(False)


def mean_curve(runs: Sequence[Run]) -> Curve:
    """The mean of several runs' curves, at updates that all of them were validated at."""
    values = [dict(run.validation_losses) for run in runs]
    shared = set.intersection(*(set(one) for one in values))
    return [(step, fmean(one[step] for one in values)) for step in sorted(shared)]
