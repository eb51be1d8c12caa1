import dataclasses
import itertools
import re
import struct
import warnings
from typing import Any

import pytest
import torch
from matplotlib.image import imread
from matplotlib.text import Text
from torch.testing import assert_close

from seq2seq.errors import UserError
from seq2seq.explain.explanation import Explanation, explain
from seq2seq.explain.picture import MOST_PIXELS, UNMASKED, Grid, Large, blocks, colour_map, draw, make_figure
from seq2seq.model.transformer import Transformer
from seq2seq.settings.model import ModelConfig
from seq2seq.translator import Translator

TEXT, TARGET = "The cat sees a blue ball.", "El gato ve una bola."


@pytest.fixture(scope="module")
def explanation(untrained) -> Explanation:
    return explain(untrained, TEXT, TARGET)


def size_of(png):
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", png[16:24])


def test_a_picture_is_written_large_enough_to_read(explanation, tmp_path):
    draw(explanation, tmp_path / "a.png")
    width, height = size_of((tmp_path / "a.png").read_bytes())
    assert 600 < width < height <= MOST_PIXELS


def test_the_picture_shows_every_layer_of_every_attention_after_the_aligning_one(explanation):
    large, *rest = blocks(explanation)
    grids = [block for block in rest if isinstance(block, Grid)]
    assert isinstance(large, Large)
    assert len(grids) == len(rest)
    assert torch.equal(large.weights, explanation.aligning())
    assert (large.rows[0], large.columns[0]) == ("El", "The")
    assert [len(grid.layers) for grid in grids] == [1, 2, 2]
    assert [grid.is_causal for grid in grids] == [False, True, False]
    assert [(grid.rows[0], grid.columns[0]) for grid in grids] == [("The", "The"), ("<s>", "<s>"), ("El", "The")]


def maps_of(explanation: Explanation, block: Large | Grid) -> list[Any]:
    """The axes of the block's maps, drawn alone."""
    return [axes for axes in make_figure(explanation.subject, [block]).axes if axes.images]


def test_rows_ask_from_top_to_bottom_and_columns_are_asked(explanation):
    large = blocks(explanation)[0]
    assert isinstance(large, Large)
    (axes,) = maps_of(explanation, large)
    assert [label.get_text() for label in axes.get_yticklabels()] == large.rows
    assert [label.get_text() for label in axes.get_xticklabels()] == large.columns
    assert axes.yaxis_inverted()
    shown = axes.images[0].get_array()
    assert_close(torch.tensor(shown.tolist()), large.weights)
    told = {(round(text.get_position()[0]), round(text.get_position()[1])): text.get_text() for text in axes.texts}
    assert float(told[2, 1]) == pytest.approx(float(large.weights[1, 2]), abs=0.0051)
    marked = {(round(one.get_x() + 0.44), round(one.get_y() + 0.44)) for one in axes.patches}
    assert marked == set(explanation.alignment)


def test_what_may_not_be_seen_is_of_a_colour_of_its_own(explanation):
    decoder = next(block for block in blocks(explanation) if isinstance(block, Grid) and block.is_causal)
    maps = maps_of(explanation, decoder)
    assert len(maps) == 2 * 3
    shown = maps[0].images[0].get_array()
    assert shown.mask.tolist() == [[j > i for j in range(len(decoder.rows))] for i in range(len(decoder.rows))]
    assert colour_map()(float("nan")) not in [colour_map()(share) for share in (0.0, 0.5, 1.0)]


def test_a_decoder_that_looks_ahead_is_shown_looking_ahead(golden):
    """An ablation (model.decoder_mask=none): nothing that it takes of later words is hidden as forbidden."""
    config = ModelConfig(d_model=8, num_heads=2, d_ff=8, num_encoder_layers=1, num_decoder_layers=1)
    model = Transformer(dataclasses.replace(config, decoder_mask="none"), golden.tokenizer.vocab_size).eval()
    explanation = explain(Translator(model, golden.tokenizer), TEXT, TARGET)
    (decoder,) = [block for block in blocks(explanation) if isinstance(block, Grid) and "Decoder" in block.title]
    assert decoder.title == UNMASKED
    maps = maps_of(explanation, decoder)
    shown = maps[0].images[0].get_array()
    assert not shown.mask.any()
    assert_close(torch.tensor(shown.tolist()).sum(1), torch.ones(len(decoder.rows)))


LONG = "The old man who lives in the small white house near the river told the children that a cat drank the milk."
TEXTS = {
    "short": (TEXT, TARGET),
    "long": (LONG, "El viejo que vive en la casa blanca les dijo a los niños que el gato se había bebido la leche."),
    "narrow": ("Yes.", "Sí, claro que sí, señor."),
    "wide words": ("Incomprehensibilities internationalized!", "Incomprensibilidades internacionalizadas"),
}


@pytest.mark.parametrize("texts", TEXTS.values(), ids=TEXTS)
def test_no_text_overlaps_another(golden, texts: tuple[str, str]):
    explanation = explain(golden, *texts)
    figure = make_figure(explanation.subject, blocks(explanation))
    figure.draw_without_rendering()
    drawn = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text() and text.get_visible()]
    boxes = [text.get_window_extent() for text in drawn]
    assert len(boxes) > 60
    for number, box in enumerate(boxes):
        clashes = [drawn[i].get_text() for i in range(number) if box.shrunk(0.95, 0.9).overlaps(boxes[i])]
        assert not clashes, (drawn[number].get_text(), clashes)


@pytest.mark.parametrize("texts", TEXTS.values(), ids=TEXTS)
def test_nothing_is_clipped_at_the_edges(golden, tmp_path, texts: tuple[str, str]):
    draw(explain(golden, *texts), tmp_path / "a.png")
    pixels = imread(tmp_path / "a.png")
    assert all((edge == 1).all() for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]))
    assert (pixels < 0.5).any()


def test_lightness_falls_in_even_steps_so_that_hues_need_not_be_seen():
    def lightness(share: float) -> float:
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in colour_map()(share)[:3]]
        return 116 * sum(weight * x for weight, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True)) ** (1 / 3) - 16

    levels = [lightness(step / 20) for step in range(21)]
    steps = [before - after for before, after in itertools.pairwise(levels)]
    assert min(steps) > 0.8 * max(steps)
    assert levels[0] - levels[-1] > 75


@pytest.mark.parametrize("text", ["The $5 ball_x^2 costs $6.", "日本 ball", "a" * 60, "<b>&amp;</b>"])
def test_text_is_drawn_as_it_stands(golden, tmp_path, text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw(explain(golden, text, "x"), tmp_path / "a.png")


@pytest.mark.slow
def test_a_picture_of_the_longest_sentence_stays_within_bounds(golden, tmp_path):
    long = explain(golden, "a " * 48, "a " * 48)
    draw(long, tmp_path / "a.png")
    assert max(size_of((tmp_path / "a.png").read_bytes())) <= MOST_PIXELS + 1


def test_a_picture_that_cannot_be_written_is_told(explanation, tmp_path):
    with pytest.raises(UserError, match=re.escape(f"cannot write {tmp_path / 'no' / 'a.png'}: No such file")):
        draw(explanation, tmp_path / "no" / "a.png")
