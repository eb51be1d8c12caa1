"""What attention costs: time and memory against the length of a text, measured, with the exponent that fits."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seq2seq.errors import UserError
from seq2seq.explain.lab.forms import CHANNELS, FORMS, HEADS, draw
from seq2seq.explain.lab.page import fill
from seq2seq.explain.lab.peak import measure_peak

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)  # positions
FIT_FROM = 1024  # below, what is not attention counts as well
KEY, PICTURE, VALUES = "cost", "cost.png", "cost.json"


@dataclass(frozen=True)
class Cost:
    """One form of attention at several lengths."""

    form: str  # fused | open
    lengths: list[int]  # positions
    seconds: list[float]  # of one text, forward
    bytes: list[int]  # at the peak, beyond inputs

    def exponent(self, values: Sequence[float | int]) -> float:
        """The b of a · N^b that fits best on logarithmic scales (least squares), over lengths from FIT_FROM on."""
        points = [(n, value) for n, value in zip(self.lengths, values, strict=True) if n >= FIT_FROM and value > 0]
        if len(points) < 2:
            return float("nan")
        lengths, found = np.log(np.array(points)).T
        return float(np.polyfit(lengths, found, 1)[0])


def measure(
    device: torch.device, rounds: int, lengths: Sequence[int] = LENGTHS, peak: Callable[..., int] = measure_peak
) -> list[Cost]:
    """Time the forms in turns and measure their memory, each in a process of its own (`peak`)."""
    seconds: dict[str, list[float]] = {form: [] for form in FORMS}
    for length in lengths:
        inputs = draw(length, device)
        times: dict[str, list[float]] = {form: [] for form in FORMS}
        with torch.no_grad():
            for number in range(rounds + 1):
                for form, compute in FORMS.items():
                    began = time.perf_counter()
                    compute(*inputs)
                    if device.type == "cuda":
                        torch.cuda.synchronize(device)
                    times[form] += [time.perf_counter() - began] if number else []  # the first one warms up
        for form in FORMS:
            seconds[form].append(min(times[form]))  # what else runs on the machine can only add
    return [
        Cost(form, list(lengths), seconds[form], [peak(form, length, device) for length in lengths]) for form in FORMS
    ]


def write_cost(device: torch.device, rounds: int, output: Path, lengths: Sequence[int] = LENGTHS) -> list[Cost]:
    """Measure, and write output/lab.md's part about cost, the picture and the values.

    Raises:
        UserError: something cannot be measured or written.
    """
    costs = measure(device, rounds, lengths)
    where = _where(device)
    try:
        (output / KEY).mkdir(parents=True, exist_ok=True)
        draw_costs(costs, output / KEY / PICTURE)
        values = {"where": where, "costs": [asdict(cost) for cost in costs]}
        (output / KEY / VALUES).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write to --output {output}: {error.strerror or error}") from error
    fill(output / "lab.md", KEY, to_markdown(costs, where, device), title="The ablation lab")
    return costs


def to_markdown(costs: Sequence[Cost], where: str, device: torch.device) -> str:
    """The page's part: how it was measured, a table, the exponents, the picture."""
    measured = "resident pages, each in a process of its own" if device.type == "cpu" else "PyTorch's allocator"
    header = [f"{cost.form} {what}" for cost in costs for what in ("ms", "MB")]
    rows = [f"| positions | {' | '.join(header)} |", "|---" * (len(header) + 1) + "|"]
    for index, length in enumerate(costs[0].lengths):
        cells = [
            cell for cost in costs for cell in (f"{cost.seconds[index] * 1e3:,.2f}", _megabytes(cost.bytes[index]))
        ]
        rows.append(f"| {length:,} | {' | '.join(cells)} |")
    fits = [f"{cost.exponent(values):.2f}" for cost in costs for values in (cost.seconds, cost.bytes)]
    rows.append(f"| exponent from {FIT_FROM:,} on | {' | '.join(fits)} |")
    return "\n\n".join(
        (
            f"One text of N positions that attends to itself: {HEADS} heads of {CHANNELS} channels, float32, forward, "
            f"on {where}. Time is the shortest of all rounds, which other programs disturb least; memory is the peak "
            f"beyond the inputs ({measured}). The exponent is the slope of the least-squares line on logarithmic "
            "scales: 2 means that a text twice as long costs four times as much.",
            "\n".join(rows),
            f"![Time and memory of attention against length]({KEY}/{PICTURE})",
        )
    )


def draw_costs(costs: Sequence[Cost], picture: Path) -> None:
    """Draw time and memory on logarithmic scales, with what N and N² would look like.

    Raises:
        OSError: the picture cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    axes = figure.subplots(1, 2)
    _panel(axes[0], costs, [[1e3 * one for one in cost.seconds] for cost in costs], "milliseconds, one text, forward")
    _panel(axes[1], costs, [[one / 1e6 for one in cost.bytes] for cost in costs], "megabytes at the peak")
    figure.savefig(picture, dpi=130)


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
    for side in axis.spines.values():
        side.set_visible(False)


def _where(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{threads} CPU thread{'s' if threads > 1 else ''} ({torch.backends.cpu.get_cpu_capability()})"


def _megabytes(number: int) -> str:
    return f"{number / 1e6:,.1f}"
