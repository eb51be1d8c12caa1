"""Pictures of one sentence's attention (matplotlib); all numbers come from `Explanation`."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.explain.explanation import PARTS, Explanation
from seq2seq.explain.statistics import HeadStatistics
from seq2seq.explain.subject import Subject
from seq2seq.model.state import aligning_layer

TITLES = {
    "encoder": "Encoder self-attention: each source word (row) looks at the source words (columns)",
    "decoder": "Masked decoder self-attention: each word read so far looks at itself and those before it",
    "cross": "Cross-attention: each target word, as it is predicted, looks at the source words",
}
UNMASKED = "Decoder self-attention, not masked: each word read looks at all words read, later ones too"
COLOURS = ("#fbfcfd", "#a6c7e3", "#4e93c5", "#1a5d94", "#052d51")  # from 0 to 1; lightness falls in even steps
FORBIDDEN, INK, FAINT, MARK = "#e6e2dc", "#15181c", "#5b6470", "#d9480f"
LETTERS = 16  # of a word; longer ones are cut
MOST_PIXELS = 5000  # either way


@dataclass(frozen=True)
class Grid:
    """Small maps of one attention: layers one below the other, heads side by side."""

    title: str
    rows: list[str]
    columns: list[str]
    layers: list[Float[Tensor, "h t s"]]
    heads: list[list[HeadStatistics]]
    is_causal: bool

    @property
    def cell(self) -> float:
        """Side of a cell (inches)."""
        return min(0.2, 4.2 / max(len(self.rows), len(self.columns)))

    @property
    def font(self) -> float:
        """Size of words (points)."""
        return min(8.0, 58 * self.cell)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height (inches) that give cells about their size."""
        head = max(len(self.columns) * self.cell, 1.05) + 0.14  # the numbers below a map need an inch
        layer = len(self.rows) * self.cell + 0.3
        beside, above = 0.45 + length(self.rows, self.font), 0.75 + length(self.columns, self.font)
        return beside + self.layers[0].shape[0] * head, above + len(self.layers) * layer

    def draw(self, figure: Any) -> None:
        """Draw all maps, each with its head's statistics below."""
        axes = figure.subplots(len(self.layers), self.layers[0].shape[0], squeeze=False)
        for layer, (line, statistics) in enumerate(zip(axes, self.heads, strict=True)):
            line[0].set_ylabel(f"layer {layer + 1}", fontsize=8, color=INK)
            for head, axis in enumerate(line):
                weights = self.layers[layer][head]
                if self.is_causal:
                    weights = weights.masked_fill(torch.ones_like(weights, dtype=torch.bool).triu(1), torch.nan)
                rows, columns = self.rows if head == 0 else [], self.columns if layer == 0 else []
                show(axis, weights, rows, columns, self.font)
                one = statistics[head]
                numbers = f"{one.entropy:.1f} · {one.distance:.1f} · {one.diagonal:.0%}"
                axis.set_xlabel(numbers, fontsize=6.5, color=FAINT, loc="left", labelpad=2)
        for head, axis in enumerate(axes[0]):
            axis.set_title(f"head {head + 1}", fontsize=8, color=FAINT, loc="left")


@dataclass(frozen=True)
class Large:
    """One map with its numbers in it, and the aligned words outlined."""

    title: str
    rows: list[str]
    columns: list[str]
    weights: Float[Tensor, "t s"]
    alignment: list[tuple[int, int]]  # (source word, target word)

    @property
    def cell(self) -> float:
        """Side of a cell (inches)."""
        return min(0.6, 9 / max(len(self.rows), len(self.columns)))

    @property
    def font(self) -> float:
        """Size of words (points)."""
        return min(11.0, 50 * self.cell)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height (inches) that give cells about their size."""
        beside, above = 1.2 + length(self.rows, self.font), 0.5 + length(self.columns, self.font)
        return beside + len(self.columns) * self.cell, max(2.5, above + len(self.rows) * self.cell)

    def draw(self, figure: Any) -> None:
        """Draw the map, and the scale of all colours beside it."""
        from matplotlib.patches import Rectangle

        axis = figure.subplots()
        image = show(axis, self.weights, self.rows, self.columns, self.font)
        if length(self.columns, self.font) < self.cell:
            axis.tick_params(axis="x", rotation=0)
        for target, row in enumerate(self.weights.tolist() if self.cell >= 0.3 else []):
            for source, share in enumerate(row):
                number = f"{share:.2f}"[-3:] if share < 0.995 else "1"
                axis.text(source, target, number, ha="center", va="center", color="white" if share > 0.5 else INK)
        for source, target in self.alignment:
            axis.add_patch(
                Rectangle((source - 0.44, target - 0.44), 0.88, 0.88, fill=False, edgecolor=MARK, linewidth=2)
            )
        bar = figure.colorbar(image, ax=axis, fraction=0.05, aspect=18, shrink=0.7, anchor=(0, 1))
        bar.set_label("share of a row's attention", color=INK, fontsize=8)
        bar.ax.tick_params(labelsize=8)
        bar.outline.set(edgecolor=FAINT, linewidth=0.6)


def show(axis: Any, weights: Float[Tensor, "t s"], rows: Sequence[str], columns: Sequence[str], font: float) -> Any:
    """Draw one map, its first row at the top, NaN in grey, words at the left and above as they stand; the image."""
    image = axis.imshow(weights.numpy(), cmap=colour_map(), vmin=0, vmax=1, interpolation="nearest")
    axis.set_anchor("NW")
    axis.xaxis.tick_top()
    axis.tick_params(length=0, pad=3)
    axis.set_yticks(range(len(rows)), rows, fontsize=font, parse_math=False)
    axis.set_xticks(range(len(columns)), columns, fontsize=font, rotation=90, parse_math=False)
    axis.spines[:].set(color=FAINT, linewidth=0.6)
    return image


def length(words: Sequence[str], font: float) -> float:
    """About how long the longest word is (inches), at a size in points."""
    return max(map(len, words)) * font * 0.0085


def colour_map() -> Any:
    """One hue, whose lightness (CIE L*) falls in even steps: to be read in grey and without seeing colours."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("share", COLOURS).with_extremes(bad=FORBIDDEN)


def draw(explanation: Explanation, path: Path) -> None:
    """Write a PNG: cross-attention over words in large, then every head of every layer of the three attentions.

    Rows ask, columns are asked, every row sums to 1, and one scale of colours from 0 to 1 holds for all.

    Raises:
        UserError: the model has no attention, or the file cannot be written.
    """
    _write(explanation.subject, blocks(explanation), path)


def draw_alignment(explanation: Explanation, path: Path) -> None:
    """Write a PNG of the aligning layer's cross-attention over words alone.

    Raises:
        UserError: the model has no cross-attention, or the file cannot be written.
    """
    _write(explanation.subject, [block for block in blocks(explanation) if isinstance(block, Large)], path)


def blocks(explanation: Explanation) -> list[Large | Grid]:
    """What the whole picture shows, from top to bottom."""
    subject = explanation.subject
    source, target, read = (
        [word.text if len(word.text) <= LETTERS else word.text[: LETTERS - 1] + "…" for word in words]
        for words in (subject.source_words(), subject.target_words(), subject.read_words())
    )
    words = {"encoder": (source, source), "decoder": (read, read), "cross": (target, source)}
    found: list[Large | Grid] = []
    large = explanation.aligning()
    if large is not None:
        layer = aligning_layer(len(explanation.by_word["cross"])) + 1
        title = f"Cross-attention of layer {layer}, mean of its heads; outlined: the alignment"
        found.append(Large(title, target, source, large, explanation.alignment))
    for part in PARTS:
        if layers := explanation.by_word[part]:
            looks_ahead = part == "decoder" and any(bool(layer.triu(1).any()) for layer in layers)
            title, is_causal = (UNMASKED, False) if looks_ahead else (TITLES[part], part == "decoder")
            found.append(Grid(title, *words[part], layers, explanation.heads[part], is_causal))
    return found


def make_figure(subject: Subject, shown: Sequence[Large | Grid]) -> Any:
    """Lay the blocks out one below the other, under the two sentences; a matplotlib Figure.

    Raises:
        UserError: there is no block.
    """
    if not shown:
        raise UserError("this model has no attention to draw")
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    heights = [block.size[1] for block in shown]
    width = max(7.0, *(block.size[0] for block in shown))
    height = 1.2 + sum(heights)
    resolution = min(110, MOST_PIXELS / (max(width, height) + 1))
    figure = Figure((width, height), resolution, layout=ConstrainedLayoutEngine(h_pad=0.07))
    sentences = [fill(text, int(10.5 * width)) for text in (subject.source, f"→ {subject.target}")]  # letters an inch
    figure.suptitle("\n".join(sentences), x=0, ha="left", fontsize=13, color=INK, linespacing=1.4, parse_math=False)
    note = "Over words; each row sums to 1."
    if any(isinstance(block, Grid) for block in shown):
        note += " Below a map, over pieces: entropy (nats) · distance (positions) · diagonal"
    body = figure.subfigures(1, 1, squeeze=False)[0, 0]
    body.suptitle(note, x=0, ha="left", fontsize=7.5, color=FAINT)
    parts = body.subfigures(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
    for block, part in zip(shown, parts, strict=True):
        part.suptitle(block.title, x=0, ha="left", fontsize=10, fontweight="bold", color=INK)
        left, _ = part.subfigures(1, 2, width_ratios=(block.size[0], width - block.size[0] + 0.01))
        block.draw(left)
    return figure


def _write(subject: Subject, shown: Sequence[Large | Grid], path: Path) -> None:
    figure = make_figure(subject, shown)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")  # is drawn as a box
            figure.savefig(path, bbox_inches="tight", pad_inches=0.3)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
