"""Draw the pictures of docs/why.md: what a trained model computes at each step of the page; darken a picture."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2seq.apps.explain.explanation import Explanation, explain, make_subject, over_words, require_engine
from seq2seq.apps.explain.interventions import Interventions, changed
from seq2seq.apps.explain.picture import INK, draw, show, write_shares
from seq2seq.apps.explain.steps import head_steps
from seq2seq.model.attention import attention_weights
from seq2seq.model.positions import rotate, rotations
from seq2seq.translate.translator import Translator

CELL = 0.42  # inches; width and height of a map's cell
MARGIN = 0.75  # inches left of a map and above it, for words
GAP = 0.25  # inches between maps
DPI = 100
DARK_GROUND = (13, 17, 23)  # GitHub's dark theme
CAT = "The black cat drank the milk."


def draw_all(page: Mapping[str, Any], folder: Path) -> None:
    """Write every picture of docs/why.md into a folder.

    page has the names that the page's code defines: the translator, the explanations of the two sentences, and layer
    and head of each attention that the page is about.
    """
    translator, ball, cat, noun = (page[name] for name in ("translator", "ball", "cat", "noun"))
    words = [word.text for word in cat.subject.words()["encoder"][0]]
    heads = cat.by_word["encoder"][noun[0]]
    draw_mixture(ball, noun, folder / "why-mixture.png")
    draw_scores(translator, noun, folder / "why-keys.png")
    tokens = _tokens(translator)
    shares = cat.attention["encoder"][noun[0]][noun[1]]
    draw_maps([("shares of one head", shares)], tokens, tokens, folder / "why-query.png")
    draw_scale(translator, words, folder / "why-scale.png")
    titles = [(f"head {number + 1}", weights) for number, weights in enumerate(heads)]
    draw_maps(titles, words, words, folder / "why-heads.png", cell=0.36)
    draw_order(translator, cat, page["before"], words, folder / "why-order.png")
    draw_mask(ball, page["without_mask"], page["ahead"], folder / "why-mask.png")
    draw(ball, folder / "why-cross.png", ["alignment"])


def darken(path: Path, output: Path) -> None:
    """Write an animated GIF for dark pages: light colours become as dark as they were light, and keep their hues."""
    import numpy as np
    from PIL import Image, ImageSequence

    ground = np.array(DARK_GROUND)
    with Image.open(path) as image:
        frames, durations = [], []
        for frame in ImageSequence.Iterator(image):
            colours = np.array(frame.convert("RGB"), dtype=int)
            turned = colours + 255 - colours.max(-1, keepdims=True) - colours.min(-1, keepdims=True)
            shown = (ground + turned * (255 - ground) // 255).astype(np.uint8)
            frames.append(Image.fromarray(shown).quantize(64))
            durations.append(frame.info["duration"])
    frames[0].save(output, save_all=True, append_images=frames[1:], duration=durations, loop=0)


def draw_maps(
    maps: Sequence[tuple[str, Tensor]],
    rows: Sequence[str],
    columns: Sequence[str],
    path: Path,
    *,
    cell: float = CELL,
    numbers: bool = True,
) -> None:
    """Write maps of shares (0 to 1, NaN grey) side by side, each with a title; only the first has labels of rows."""
    figure = _figure()
    width = len(columns) * cell + GAP
    for number, (title, weights) in enumerate(maps):
        axis = figure.add_axes((number * width, 0, len(columns) * cell, len(rows) * cell))
        show(axis, weights, [] if number else rows, columns, font=10.0)
        axis.set_title(title, fontsize=10, color=INK, loc="left", pad=6)
        if numbers:
            write_shares(axis, weights, font=21 * cell)
    _save(figure, path)


def draw_mixture(ball: Explanation, noun: tuple[int, int], path: Path) -> None:
    """Write a picture of a fixed mixture beside the mixture of one trained head."""
    rows, columns = ball.subject.words()["encoder"]
    words = [word.text for word in rows]
    weights = ball.by_word["encoder"][noun[0]][noun[1]]
    length = ball.attention["encoder"][0].shape[-1]
    fixed = over_words(torch.full((1, length, length), 1 / length), rows, columns)[0]
    draw_maps([("a fixed mixture", fixed), ("a trained head's mixture", weights)], words, words, path)


def draw_scores(translator: Translator, noun: tuple[int, int], path: Path) -> None:
    """Write a picture of scores from keys alone beside scores from queries and keys, over tokens."""
    tokens = _tokens(translator)
    queries, keys = _queries_keys(translator, *noun)
    figure, size = _figure(), len(tokens) * CELL
    for number, (title, asking) in enumerate((("keys · keys", keys), ("queries · keys", queries))):
        scores = asking @ keys.T
        most = scores.abs().max().item()
        axis = figure.add_axes((number * (size + GAP), 0, size, size))
        image = show(axis, scores, [] if number else tokens, tokens, font=10.0)
        image.set(cmap="RdBu_r", clim=(-most, most))
        axis.set_title(title, fontsize=10, color=INK, loc="left", pad=6)
        for row, values in enumerate(scores.tolist()):
            for column, score in enumerate(values):
                colour = "white" if abs(score) > 0.6 * most else INK
                axis.text(column, row, str(round(score)), ha="center", va="center", fontsize=9, color=colour)
    _save(figure, path)


def draw_scale(translator: Translator, words: Sequence[str], path: Path) -> None:
    """Write a picture of one head's weights with the factor 1/√c and without it, over words."""
    subject = make_subject(translator, CAT, None)
    rows, columns = subject.words()["encoder"]
    queries, keys = _queries_keys(translator, -1, 0)
    maps = []
    for title, factor in (("scores divided by √c", 1.0), ("the same scores, not divided", math.sqrt(keys.shape[1]))):
        weights = attention_weights(queries[None, None] * factor, keys[None, None], None)[0]
        maps.append((title, over_words(weights, rows, columns)[0]))
    draw_maps(maps, words, words, path)


def draw_order(
    translator: Translator, cat: Explanation, before: tuple[int, int], words: Sequence[str], path: Path
) -> None:
    """Write a picture of scores by distance, and of a head that attends by position, with positions and without."""
    blind = explain(changed(translator, Interventions(without=["positions"])), CAT, cat.subject.target)
    titles = {"with positions": cat, "without positions": blind}
    maps = [(title, one.by_word["encoder"][before[0]][before[1]]) for title, one in titles.items()]
    figure = _figure()
    one = torch.ones(1, 12, 1, 64) / 8  # a vector of length 1, at positions 0 to 11
    turned = rotate(one, rotations(0, 12, 64, one.device))[0, :, 0]
    size = len(words) * CELL
    axis = figure.add_axes((-size - GAP - MARGIN, 0, size, size))
    axis.imshow((turned @ turned.T).numpy(), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    axis.set_title("scores of one vector, turned", fontsize=10, color=INK, loc="left", pad=6)
    axis.set_xlabel("position of the key", fontsize=9, color=INK)
    axis.set_ylabel("position of the query", fontsize=9, color=INK)
    axis.tick_params(labelsize=8)
    for number, (title, weights) in enumerate(maps):
        axis = figure.add_axes((number * (size + GAP), 0, size, size))
        show(axis, weights, [] if number else words, words, font=10.0)
        axis.set_title(title, fontsize=10, color=INK, loc="left", pad=6)
        write_shares(axis, weights, font=21 * CELL)
    _save(figure, path)


def draw_mask(ball: Explanation, without_mask: Explanation, ahead: tuple[int, int], path: Path) -> None:
    """Write a picture of one head of the decoder's self-attention, with the causal mask and without."""
    rows = [word.text for word in ball.subject.words()["decoder"][0]]
    layer, head = ahead
    unmasked = without_mask.by_word["decoder"][layer][head]
    masked = ball.by_word["decoder"][layer][head].masked_fill(torch.ones_like(unmasked).triu(1).bool(), torch.nan)
    draw_maps([("with the causal mask", masked), ("the same head, mask off", unmasked)], rows, rows, path)


def _tokens(translator: Translator) -> list[str]:
    """Return the tokens of the sentence `CAT`, without the mark "▁" of a word's beginning."""
    src = make_subject(translator, CAT, None).src
    return [token.removeprefix("▁") for token in translator.tokenizer.source.tokens(src)]


def _queries_keys(translator: Translator, layer: int, head: int) -> tuple[Tensor, Tensor]:
    """Return the queries and keys of a head of an encoder layer (-1: the last) for the sentence `CAT`."""
    layer %= len(require_engine(translator)[1].encoder_layers)
    steps = head_steps(translator, make_subject(translator, CAT, None), "encoder", layer, head)
    return steps.queries, steps.keys


def _figure() -> Any:
    from matplotlib.figure import Figure

    return Figure((1, 1))  # one inch, so that coordinates of axes are in inches; `_save` saves everything


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, bbox_inches=figure.get_tightbbox().padded(0.1), dpi=DPI)
