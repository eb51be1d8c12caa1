"""Pictures of attention: all heads over one sentence, and how an alignment emerges over a run's checkpoints."""

import html
import io
import math
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seq2seq.apps.explain.explanation import DECIMALS, PARTS, Explanation, plain
from seq2seq.apps.explain.page import embed, fill
from seq2seq.errors import UserError
from seq2seq.model.variants.trace import aligning_layer

TITLES = {
    "encoder": "Encoder self-attention: each source word (row) looks at the source words (columns)",
    "decoder": "Masked decoder self-attention: each word read so far looks at itself and those before it",
    "cross": "Cross-attention: each target word, as it is predicted, looks at the source words",
}
UNMASKED = "Decoder self-attention, not masked: each word read looks at all words read, later ones too"
NOTE = "Over words; each row sums to 1."
NUMBERS = " Below a map, over pieces: entropy (nats) · distance (positions) · diagonal"
COLOURS = ("#fbfcfd", "#a6c7e3", "#4e93c5", "#1a5d94", "#052d51")  # from 0 to 1; lightness falls in even steps
FORBIDDEN, INK, FAINT, MARK = "#e6e2dc", "#15181c", "#5b6470", "#d9480f"
LONGEST_WORD = 16  # letters; longer words are cut
MAX_PIXELS = 5000  # width and height of a picture
GAP = 0.25  # inches between the parts of a picture
_SECONDS = 0.25  # for which a picture is shown; _LAST is for the last picture
_LAST = 2.0
_DPI = 80
_LEAST = 4.2  # inches of width, for a translation of _LETTERS letters
_LETTERS = 40  # longest translation in a picture; longer ones are cut


@contextmanager
def any_letters() -> Iterator[None]:
    """Silence matplotlib's warnings of letters that its font lacks; it draws boxes instead of them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


@any_letters()
def draw(explanation: Explanation, file: Path | io.BytesIO, parts: Sequence[str] = ("alignment", *PARTS)) -> None:
    """Write a PNG of the parts: by default, everything."""
    figure = make_figure(explanation, parts)
    box = figure.get_tightbbox().padded(0.3)
    figure.savefig(file, bbox_inches=box, dpi=min(110, MAX_PIXELS / max(box.size)))


def make_figure(explanation: Explanation, parts: Sequence[str]) -> Any:
    """Return a matplotlib Figure of the parts, from top to bottom, below the sentence and its translation.

    "alignment" is a large map of the aligning layer's cross-attention over words; "encoder", "decoder" and "cross" are
    all heads of all layers. Rows are queries, columns are keys, and every row sums to 1. All maps share one scale of
    colours from 0 to 1. Parts that the model does not have are left out. The figure is one inch wide and high, so its
    coordinates are in inches. Save it with bbox_inches="tight" to include everything.
    """
    from matplotlib.figure import Figure

    subject = explanation.subject
    attentions = {"alignment": "cross"} | {part: part for part in PARTS}
    present = [part for part in parts if explanation.by_word[attentions[part]]]
    if not present:
        raise UserError("this model has no attention to draw")
    figure = Figure((1, 1))
    sentences = "\n".join(textwrap.fill(text, 80) for text in (subject.source, f"→ {subject.target}"))
    figure.text(0, 0, sentences, va="top", fontsize=13, color=INK, linespacing=1.4, parse_math=False)
    note = NOTE if present == ["alignment"] else NOTE + NUMBERS
    figure.text(0, _bottom(figure) - GAP / 2, note, va="top", fontsize=7.5, color=FAINT)
    for part in present:
        rows, columns = ([shorten(word.text) for word in words] for words in subject.words()[attentions[part]])
        (_alignment if part == "alignment" else _heads)(figure, explanation, part, rows, columns)
    return figure


def _alignment(figure: Any, explanation: Explanation, part: str, rows: list[str], columns: list[str]) -> None:
    """Add one large map with its numbers, outlines around aligned words, and the scale of colours beside the map."""
    from matplotlib.patches import Rectangle

    weights = explanation.aligning()
    assert weights is not None
    layer = aligning_layer(len(explanation.by_word["cross"])) + 1
    _add_title(figure, f"Cross-attention of layer {layer}, mean of its heads; outlined: the alignment")
    cell = min(0.6, 9 / max(len(rows), len(columns)))  # inches
    axis = figure.add_axes((0, 0, len(columns) * cell, len(rows) * cell))
    image = show(axis, weights, rows, columns, font=min(11.0, 50 * cell))
    if max(map(len, columns)) < 11 * cell:  # the words fit above their columns
        axis.tick_params(axis="x", rotation=0)
    if cell >= 0.3:
        write_shares(axis, weights, font=10.0)
    for source, target in explanation.alignment:
        axis.add_patch(Rectangle((source - 0.44, target - 0.44), 0.88, 0.88, fill=False, edgecolor=MARK, linewidth=2))
    height = max(2.0, len(rows) * cell)  # inches; the scale's label needs two
    scale = figure.add_axes((len(columns) * cell + GAP, len(rows) * cell - height, 0.2, height))
    bar = figure.colorbar(image, cax=scale)
    bar.set_label("share of a row's attention", color=INK, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set(edgecolor=FAINT, linewidth=0.6)
    _move_below(figure, [axis, scale])


def _heads(figure: Any, explanation: Explanation, part: str, rows: list[str], columns: list[str]) -> None:
    """Add one small map per head of one kind of attention: a row of maps per layer, statistics below each map."""
    layers = explanation.by_word[part]
    looks_ahead = part == "decoder" and any(bool(layer.triu(1).any()) for layer in layers)
    _add_title(figure, UNMASKED if looks_ahead else TITLES[part])
    cell = min(0.2, 4.2 / max(len(rows), len(columns)))  # inches
    width, height = max(len(columns) * cell, 1.05) + 0.14, len(rows) * cell + 0.3  # the statistics need an inch
    axes = []
    for layer, (heads, statistics) in enumerate(zip(layers, explanation.heads[part], strict=True)):
        for head, (weights, numbers) in enumerate(zip(heads, statistics, strict=True)):
            if part == "decoder" and not looks_ahead:
                weights = weights.masked_fill(torch.ones_like(weights, dtype=torch.bool).triu(1), torch.nan)
            axis = figure.add_axes((head * width, -layer * height, len(columns) * cell, len(rows) * cell))
            show(axis, weights, [] if head else rows, [] if layer else columns, font=min(8.0, 58 * cell))
            caption = f"{numbers.entropy:.1f} · {numbers.distance:.1f} · {numbers.diagonal:.0%}"
            axis.set_xlabel(caption, fontsize=6.5, color=FAINT, loc="left", labelpad=2)
            if head == 0:
                axis.set_ylabel(f"layer {layer + 1}", fontsize=8, color=INK)
            if layer == 0:
                axis.set_title(f"head {head + 1}", fontsize=8, color=FAINT, loc="left")
            axes.append(axis)
    _move_below(figure, axes)


def show(axis: Any, weights: Float[Tensor, "t s"], rows: Sequence[str], columns: Sequence[str], font: float) -> Any:
    """Draw one map, and return its image: the first row is at the top, words are left and above, NaN is grey."""
    image = axis.imshow(weights.numpy(), cmap=colour_map(), vmin=0, vmax=1, interpolation="nearest")
    axis.xaxis.tick_top()
    axis.tick_params(length=0, pad=3)
    axis.set_yticks(range(len(rows)), rows, fontsize=font, parse_math=False)
    axis.set_xticks(range(len(columns)), columns, fontsize=font, rotation=90, parse_math=False)
    axis.spines[:].set(color=FAINT, linewidth=0.6)
    return image


def write_shares(axis: Any, weights: Float[Tensor, "t s"], font: float) -> None:
    """Write the number of each cell of a map that `show` has drawn, without leading 0; NaN has no number."""
    for row, shares in enumerate(weights.tolist()):
        for column, share in enumerate(shares):
            if not math.isnan(share):
                number = f"{share:.2f}"[-3:] if share < 0.995 else "1"
                colour = "white" if share > 0.5 else INK
                axis.text(column, row, number, ha="center", va="center", fontsize=font, color=colour)


def colour_map() -> Any:
    """Return a colour map of one hue with even steps of lightness (CIE L*), readable in grey and if colour-blind."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("share", COLOURS).with_extremes(bad=FORBIDDEN)


def _bottom(figure: Any) -> float:
    """Return the lower edge of the drawn content (inches)."""
    return figure.get_tightbbox().y0


def _add_title(figure: Any, title: str) -> None:
    figure.text(0, _bottom(figure) - GAP, title, va="top", fontsize=10, fontweight="bold", color=INK)


def _move_below(figure: Any, axes: list[Any]) -> None:
    """Move new axes, with the words around them, to the left edge and below the other content."""
    from matplotlib.transforms import Bbox

    for axis in axes:
        axis.set_visible(False)
    top = _bottom(figure) - GAP / 2
    for axis in axes:
        axis.set_visible(True)
    box = Bbox.union([axis.get_tightbbox() for axis in axes])
    for axis in axes:
        axis.set_position(axis.get_position().translated(-box.x0 / figure.dpi, top - box.y1 / figure.dpi))


def shorten(text: str, longest: int = LONGEST_WORD) -> str:
    """Return a text of at most `longest` letters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


@dataclass(frozen=True)
class Moment:
    """A model's attention and translation after a number of updates."""

    updates: int
    loss: float | None  # of the last validation, or of training without one (nats per token); None: not known
    translation: str  # by the model
    log_prob: float  # of the target whose attention is shown (nats)
    weights: list[list[float]]  # the aligning layer's cross-attention over words, mean of its heads; rows: target words


def make_moment(explanation: Explanation, updates: int, loss: float | None, translation: str) -> Moment:
    """Return the moment with an explanation's attention and log-probability."""
    weights = explanation.aligning()
    if weights is None:
        raise UserError("this model has no cross-attention to show over time")
    return Moment(updates, loss, translation, sum(explanation.log_probs), plain(weights, DECIMALS))


def write_over_page(explanation: Explanation, moments: Sequence[Moment]) -> str:
    """Return a page with a slider over updates; explanation provides the words of rows and columns."""
    subject = explanation.subject
    rows, columns = ([word.text for word in words] for words in subject.words()["cross"])
    data = {"source": subject.source, "target": subject.target, "rows": rows, "columns": columns}
    data["moments"] = [asdict(moment) for moment in moments]
    title = html.escape(f"Attention over time: {subject.source}")
    return fill("over.html", ("viewer.css", "page.css", "over.css"), title, "over", data=embed(data))


def animate(explanation: Explanation, moments: Sequence[Moment], path: Path) -> None:
    """Write an animated GIF with one map of attention per moment."""
    rows, columns = ([word.text for word in words] for words in explanation.subject.words()["cross"])
    first, *others = (_draw(moment, rows, columns).quantize(64) for moment in moments)
    milliseconds = [*[1000 * _SECONDS] * len(others), 1000 * _LAST]
    first.save(path, save_all=True, append_images=others, duration=milliseconds, loop=0)


@any_letters()
def _draw(moment: Moment, rows: list[str], columns: list[str]) -> Any:
    """Return a Pillow image of a moment."""
    from matplotlib.figure import Figure
    from PIL import Image

    width, height = max(_LEAST, 1.7 + 0.5 * len(columns)), 2.1 + 0.42 * len(rows)  # inches
    figure = Figure((width, height), dpi=_DPI, facecolor="white")
    left, below = 1.4 / width, 0.25 / height
    axis = figure.add_axes((left, below, 0.5 * len(columns) / width, 0.42 * len(rows) / height))
    show(axis, torch.tensor(moment.weights), [*map(shorten, rows)], [*map(shorten, columns)], font=10.0)
    axis.set_aspect("auto")
    loss = "" if moment.loss is None else f", loss {moment.loss:.2f}"
    texts = ((f"update {moment.updates:,}{loss}", 9, FAINT), (shorten(moment.translation, _LETTERS), 11, INK))
    for line, (text, size, colour) in enumerate(texts):
        y = 1 - (0.3 + 0.28 * line) / height
        label = figure.text(0.15 / width, y, text, fontsize=size, color=colour, parse_math=False)
        label.set_fontsize(size * min(1, (width - 0.3) * _DPI / max(1, label.get_window_extent().width)))
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI)
    return Image.open(file).convert("RGB")
