"""Show how an alignment emerges: one sentence's cross-attention at each checkpoint of a run, as a page and a GIF."""

import html
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from seq2seq.apps.explain.explanation import DECIMALS, Explanation, plain
from seq2seq.apps.explain.page import embed, fill
from seq2seq.apps.explain.picture import FAINT, INK, any_letters, shorten, show
from seq2seq.errors import UserError

_STYLES = ("viewer.css", "page.css", "over.css")
_SECONDS = 0.25  # for which a picture is shown; _LAST is for the last picture
_LAST = 2.0
_DPI = 80
_LEAST = 4.2  # inches of width, for a translation of _LETTERS letters
_LETTERS = 40  # longest translation in a picture; longer ones are cut


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
    return fill("over.html", _STYLES, title, "over", data=embed(data))


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
