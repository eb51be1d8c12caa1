"""Measure time and memory of attention by the length of a text, and fit the exponents of power laws."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.attention import FORMS, random_text
from benchmarks.peak import measure_peak
from benchmarks.race import race
from benchmarks.tables import Table
from seq2seq.errors import UserError

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)  # positions
PICTURES = (".png", ".svg", ".pdf")
FIT_FROM = 1024  # positions; in shorter texts, other work also takes a visible share of the time


@dataclass(frozen=True)
class Cost:
    """Time and memory of one form of attention at several lengths."""

    form: str  # fused | open
    lengths: list[int]  # positions
    seconds: list[float]  # forward pass of one text; the shortest of all rounds
    bytes: list[int]  # peak of memory, inputs excluded

    def exponent(self, values: Sequence[float | int]) -> float:
        """Return b of a fitted power law a · N^b; NaN: too few values.

        The fit is by least squares on logarithmic scales, over lengths N of at least FIT_FROM positions.
        """
        points = [(n, value) for n, value in zip(self.lengths, values, strict=True) if n >= FIT_FROM and value > 0]
        if len(points) < 2:
            return float("nan")
        lengths, found = np.log(np.array(points)).T
        return float(np.polyfit(lengths, found, 1)[0])


def run(
    rounds: int, device: torch.device, picture: Path | None = None, lengths: Sequence[int] = LENGTHS
) -> dict[str, Any]:
    """Measure both forms at all lengths; return plain values, and draw the picture if a file is given.

    Raises:
        UserError: a peak cannot be measured, or the picture cannot be written.
    """
    if picture is not None and picture.suffix not in PICTURES:
        raise UserError(f"--picture {picture}: let its name end in {', '.join(PICTURES)}")
    costs = measure(rounds, device, lengths)
    if picture is not None:
        draw_costs(costs, picture)
    return {"costs": [asdict(cost) for cost in costs], "tables": [asdict(table(costs))]}


def measure(rounds: int, device: torch.device, lengths: Sequence[int]) -> list[Cost]:
    """Time the forms in turns, and measure the memory of each in a separate process."""
    seconds: dict[str, list[float]] = {form: [] for form in FORMS}
    contestants = {form: lambda inputs, f=compute: f(*inputs) for form, compute in FORMS.items()}
    for length in lengths:
        with torch.no_grad():
            found = race(contestants, [random_text(length, device)], work=1, rounds=rounds, device=device)
        for form in FORMS:
            seconds[form].append(min(found.seconds[form]))
    return [
        Cost(form, list(lengths), seconds[form], [measure_peak(form, length, device) for length in lengths])
        for form in FORMS
    ]


def table(costs: Sequence[Cost]) -> Table:
    """Return a table with one row per length, then the exponents."""
    rows = []
    for index, length in enumerate(costs[0].lengths):
        cells = [(f"{cost.seconds[index] * 1e3:,.2f}", f"{cost.bytes[index] / 1e6:,.1f}") for cost in costs]
        rows.append([f"{length:,}", *(cell for pair in cells for cell in pair)])
    fits = [f"{cost.exponent(values):.2f}" for cost in costs for values in (cost.seconds, cost.bytes)]
    rows.append([f"exponent from {FIT_FROM:,} on", *fits])
    header = ["positions", *(f"{cost.form} {unit}" for cost in costs for unit in ("ms", "MB"))]
    return Table("Attention by length of the text", header, rows)


def draw_costs(costs: Sequence[Cost], picture: Path) -> None:
    """Draw time and memory on logarithmic scales, with lines ∝ N and ∝ N².

    Raises:
        UserError: the picture cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    time, memory = figure.subplots(1, 2)
    _panel(time, costs, [[1e3 * one for one in cost.seconds] for cost in costs], "milliseconds, one text, forward")
    _panel(memory, costs, [[one / 1e6 for one in cost.bytes] for cost in costs], "megabytes at the peak")
    try:
        picture.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(picture, dpi=130)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write --picture {picture}: {error}") from error


def _panel(axis: Any, costs: Sequence[Cost], values: Sequence[Sequence[float]], title: str) -> None:
    for cost, numbers, color in zip(costs, values, ("#0f766e", "#c2410c"), strict=True):
        points = [(n, number) for n, number in zip(cost.lengths, numbers, strict=True) if number > 0]
        label = f"{cost.form}, ∝ N^{cost.exponent(numbers):.2f} from {FIT_FROM:,} on"
        axis.plot(*zip(*points, strict=True), color=color, marker="o", markersize=4, linewidth=1.8, label=label)
    top, longest = max(max(numbers) for numbers in values), costs[0].lengths[-1]
    for power, style, name in ((1, ":", "N"), (2, "--", "N²")):
        guide = [top * (length / longest) ** power for length in costs[0].lengths]
        axis.plot(costs[0].lengths, guide, color="#8a8f98", linewidth=1, linestyle=style, label=f"∝ {name}")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(costs[0].lengths, [f"{length:,}" for length in costs[0].lengths], fontsize=8)
    axis.set_title(title, fontsize=10, loc="left", color="#1f2328")
    axis.set_xlabel("N, positions", fontsize=9)
    axis.grid(color="#d8dbe0", linewidth=0.6)
    axis.tick_params(labelsize=8, length=0)
    axis.legend(fontsize=8, frameon=False)
    axis.spines[:].set_visible(False)
