"""All attention of one sentence as one picture (matplotlib); computes nothing that `Explanation` does not know."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.explain.explanation import PARTS, Explanation
from seq2seq.explain.statistics import HeadStatistics
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
MARGIN, CAPTION, LINE = 0.35, 0.5, 0.24  # inches
MOST_PIXELS = 5000  # either way


@dataclass(frozen=True)
class Grid:
    """Small maps of all heads (columns) and layers (rows) of one attention."""

    title: str
    layers: list[Tensor]  # (h, t, s) each
    heads: list[list[HeadStatistics]]
    rows: list[str]
    columns: list[str]
    is_causal: bool

    @property
    def cell(self) -> float:
        """Side of a cell (inches)."""
        return min(0.2, 4.2 / max(len(self.rows), len(self.columns)))

    @property
    def font(self) -> float:
        """Size of words (points)."""
        return min(8.0, 0.8 * 72 * self.cell)

    @property
    def map_width(self) -> float:
        """Inches from map to map; its numbers need some."""
        return max(len(self.columns) * self.cell, 1.05) + 0.14

    @property
    def left(self) -> float:
        """Inches for layers' names and rows' words."""
        return MARGIN + 0.25 + _length(self.rows, self.font)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height (inches)."""
        above = CAPTION + LINE + _length(self.columns, self.font)
        width = max(self.left + self.layers[0].shape[0] * self.map_width, len(self.title) * 0.08 + MARGIN)
        return width + MARGIN, above + len(self.layers) * self._map_height

    @property
    def _map_height(self) -> float:
        return len(self.rows) * self.cell + LINE

    def draw(self, sheet: "Sheet", top: float) -> None:
        """Put it on the sheet."""
        sheet.write(MARGIN, top + 0.16, self.title, 10, weight="bold")
        maps_top = top + CAPTION + LINE + _length(self.columns, self.font)
        for number, (layer, statistics) in enumerate(zip(self.layers, self.heads, strict=True)):
            y = maps_top + number * self._map_height
            middle = y + len(self.rows) * self.cell / 2
            sheet.write(MARGIN + 0.05, middle, f"layer {number + 1}", 8, rotation=90, ha="center", va="center")
            for head, weights in enumerate(layer):
                x = self.left + head * self.map_width
                if number == 0:
                    sheet.write(x, top + CAPTION, f"head {head + 1}", 8, color=FAINT)
                axes = sheet.map(weights, x, y, self.cell, is_causal=self.is_causal)
                _label(axes, self.rows if head == 0 else [], self.columns if number == 0 else [], self.font, 90)
                told = statistics[head]
                numbers = f"{told.entropy:.1f} · {told.distance:.1f} · {told.diagonal:.0%}"
                sheet.write(x, y + len(self.rows) * self.cell + 0.04, numbers, 6.5, color=FAINT)


@dataclass(frozen=True)
class Large:
    """One map with its numbers in it, and the words that it aligns outlined."""

    title: str
    weights: Float[Tensor, "t s"]
    rows: list[str]
    columns: list[str]
    alignment: list[tuple[int, int]]

    @property
    def cell(self) -> float:
        """Side of a cell (inches)."""
        return min(0.6, 9 / max(len(self.rows), len(self.columns)))

    @property
    def font(self) -> float:
        """Size of words (points)."""
        return min(11.0, 0.7 * 72 * self.cell)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height (inches)."""
        width = MARGIN + max(
            _length(self.rows, self.font) + len(self.columns) * self.cell + 1.5, len(self.title) * 0.08
        )
        return width + MARGIN, self._above + len(self.rows) * self.cell + 0.35

    def draw(self, sheet: "Sheet", top: float) -> None:
        """Put it on the sheet, and the scale of all colours beside it."""
        sheet.write(MARGIN, top + 0.16, self.title, 10, weight="bold")
        x, y = MARGIN + _length(self.rows, self.font), top + self._above
        axes = sheet.map(self.weights, x, y, self.cell)
        _label(axes, self.rows, self.columns, self.font, 0 if self._fits else 90)
        if self.cell >= 0.3:
            for i, row in enumerate(self.weights.tolist()):
                for j, share in enumerate(row):
                    colour = "white" if share > 0.5 else INK
                    axes.text(
                        j, i, f"{share:.2f}"[-3:] if share < 0.995 else "1", ha="center", va="center", color=colour
                    )
        for source, target in self.alignment:
            corner = (source - 0.44, target - 0.44)
            axes.add_patch(sheet.rectangle(corner, 0.88, 0.88, fill=False, edgecolor=MARK, linewidth=2))
        sheet.scale(x + len(self.columns) * self.cell + 0.35, y, max(1.2, min(3.0, len(self.rows) * self.cell)))

    @property
    def _above(self) -> float:
        return CAPTION + (0.3 if self._fits else _length(self.columns, self.font))

    @property
    def _fits(self) -> bool:
        return max(map(len, self.columns)) * self.font * 0.0085 < self.cell


class Sheet:
    """A page measured in inches from its upper left corner."""

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle

        self.width, self.height, self.rectangle = width, height, Rectangle
        self.figure = Figure(figsize=(width, height), facecolor="white")
        self.colours = colour_map()

    def axes(self, left: float, top: float, width: float, height: float) -> Any:
        """A place to draw in."""
        place = (left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(place)

    def map(
        self, weights: Float[Tensor, "t s"], left: float, top: float, cell: float, *, is_causal: bool = False
    ) -> Any:
        """A map of weights, its first row at the top; what may not be attended to is grey."""
        if is_causal:
            weights = weights.masked_fill(torch.ones_like(weights, dtype=torch.bool).triu(1), torch.nan)
        axes = self.axes(left, top, weights.shape[1] * cell, weights.shape[0] * cell)
        axes.imshow(weights.numpy(), cmap=self.colours, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        axes.tick_params(length=0, pad=3)
        for side in axes.spines.values():
            side.set(color=FAINT, linewidth=0.6)
        return axes

    def write(self, left: float, top: float, text: str, size: float | int, **how: Any) -> None:
        """Text below and right of a point, as it stands: no formula in it."""
        how = {"color": INK, "va": "top", **how}
        self.figure.text(left / self.width, 1 - top / self.height, text, fontsize=size, parse_math=False, **how)

    def scale(self, left: float, top: float, height: float) -> None:
        """What the colours mean."""
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        axes = self.axes(left, top, 0.16, height)
        bar = self.figure.colorbar(ScalarMappable(Normalize(0, 1), self.colours), cax=axes)
        bar.set_label("share of a row's attention", color=INK, fontsize=8)
        bar.ax.tick_params(labelsize=8)
        bar.outline.set(edgecolor=FAINT, linewidth=0.6)


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
    _draw(explanation, _blocks(explanation), path)


def draw_alignment(explanation: Explanation, path: Path) -> None:
    """Write a PNG of the aligning layer's cross-attention over words alone.

    Raises:
        UserError: the model has no cross-attention, or the file cannot be written.
    """
    _draw(explanation, [block for block in _blocks(explanation) if isinstance(block, Large)], path)


def _draw(explanation: Explanation, blocks: Sequence[Large | Grid], path: Path) -> None:
    """Blocks one below the other, under the two sentences."""
    if not blocks:
        raise UserError("this model has no attention to draw")
    heading = 1.25
    width = max([5.5, *(block.size[0] for block in blocks)])
    sheet = Sheet(width, heading + sum(block.size[1] for block in blocks) + 0.2)
    subject = explanation.subject
    sheet.write(MARGIN, 0.3, f"{subject.source}\n→ {subject.target}", 13, linespacing=1.4, wrap=True)
    told = "Over words; each row sums to 1."
    if any(isinstance(block, Grid) for block in blocks):
        told += " Below a map, over pieces: entropy (nats) · distance (positions) · diagonal"
    sheet.write(MARGIN, 0.93, told, 7.5, color=FAINT)
    top = heading
    for block in blocks:
        block.draw(sheet, top)
        top += block.size[1]
    resolution = min(110, MOST_PIXELS / max(sheet.width, sheet.height))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")  # is drawn as a box
            sheet.figure.savefig(path, dpi=resolution)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def _blocks(explanation: Explanation) -> list[Large | Grid]:
    subject = explanation.subject
    source, target, read = (
        [_short(word.text) for word in words]
        for words in (subject.source_words(), subject.target_words(), subject.read_words())
    )
    words = {"encoder": (source, source), "decoder": (read, read), "cross": (target, source)}
    blocks: list[Large | Grid] = []
    large = explanation.aligning()
    if large is not None:
        layers = len(explanation.by_word["cross"])
        which = f" of layer {aligning_layer(layers) + 1}, mean of its heads" if layers else ""
        blocks.append(
            Large(f"Cross-attention{which}; outlined: the alignment", large, target, source, explanation.alignment)
        )
    for part in PARTS:
        if layers := explanation.by_word[part]:
            looks_ahead = part == "decoder" and any(bool(layer.triu(1).any()) for layer in layers)
            title, is_causal = (UNMASKED, False) if looks_ahead else (TITLES[part], part == "decoder")
            blocks.append(Grid(title, layers, explanation.heads[part], *words[part], is_causal))
    return blocks


def _label(axes: Any, rows: Sequence[str], columns: Sequence[str], font: float, rotation: int) -> None:
    """Words at the left and above, as they stand."""
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=3)
    axes.set_yticks(range(len(rows)), rows, fontsize=font, parse_math=False)
    axes.set_xticks(range(len(columns)), columns, fontsize=font, rotation=rotation, parse_math=False)


def _length(words: Sequence[str], font: float) -> float:
    """Inches that the longest word takes, with the space about it."""
    return max(map(len, words)) * font * 0.0082 + 0.1


def _short(word: str) -> str:
    return word if len(word) <= LETTERS else word[: LETTERS - 1] + "…"
