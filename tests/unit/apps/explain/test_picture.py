import dataclasses
import itertools
from typing import Any

import pytest
import torch
from matplotlib.image import imread
from matplotlib.text import Text
from torch.testing import assert_close

from seq2seq.apps.explain.explanation import PARTS, Explanation, explain
from seq2seq.apps.explain.picture import MAX_PIXELS, TITLES, UNMASKED, colour_map, draw, make_figure
from seq2seq.model.build import build_model
from seq2seq.settings.model import ModelConfig
from seq2seq.translate.translator import Translator
from tests.refusing import refuses

pytestmark = pytest.mark.slow

TEXT, TARGET = "The cat sees a blue ball.", "El gato ve una bola."


@pytest.fixture(scope="module")
def explanation(untrained) -> Explanation:
    return explain(untrained, TEXT, TARGET)


def maps_of(explanation: Explanation, part: str) -> list[Any]:
    """Return the axes of a part's maps, without the scale of colours."""
    return [axes for axes in make_figure(explanation, [part]).axes if axes.images]


def words_beside(axes: Any) -> tuple[list[str], list[str]]:
    """Return the words of a map's rows and columns."""
    rows, columns = axes.get_yticklabels(), axes.get_xticklabels()
    return [label.get_text() for label in rows], [label.get_text() for label in columns]


def test_the_picture_shows_the_alignment_and_every_head_of_every_layer(explanation):
    figure = make_figure(explanation, ("alignment", *PARTS))
    assert len([axes for axes in figure.axes if axes.images]) == 1 + (1 + 2 + 2) * 3
    titles = {text.get_text() for text in figure.texts}
    assert titles >= set(TITLES.values())
    for part, rows, columns in (("encoder", "The", "The"), ("decoder", "<s>", "<s>"), ("cross", "El", "The")):
        first, *others = maps_of(explanation, part)
        assert [words[0] for words in words_beside(first)] == [rows, columns]
        assert words_beside(others[0])[0] == []
        weights = [axes.images[0].get_array().filled(0).tolist() for axes in (first, *others)]
        assert_close(torch.tensor(weights), torch.cat(explanation.by_word[part]))


def test_rows_are_queries_from_top_to_bottom_and_columns_are_keys(explanation):
    axes = make_figure(explanation, ["alignment"]).axes[0]
    target, source = explanation.subject.words()["cross"]
    assert words_beside(axes) == ([word.text for word in target], [word.text for word in source])
    assert axes.yaxis_inverted()
    weights = explanation.aligning()
    assert weights is not None
    assert_close(torch.tensor(axes.images[0].get_array().tolist()), weights)
    numbers = {(round(text.get_position()[0]), round(text.get_position()[1])): text.get_text() for text in axes.texts}
    assert float(numbers[2, 1]) == pytest.approx(float(weights[1, 2]), abs=0.0051)
    marked = {(round(outline.get_x() + 0.44), round(outline.get_y() + 0.44)) for outline in axes.patches}
    assert marked == set(explanation.alignment)


def test_positions_that_may_not_be_seen_have_a_colour_of_their_own(explanation):
    maps = maps_of(explanation, "decoder")
    assert len(maps) == 2 * 3
    cells = maps[0].images[0].get_array()
    assert cells.mask.tolist() == [[j > i for j in range(cells.shape[1])] for i in range(cells.shape[0])]
    assert colour_map()(float("nan")) not in [colour_map()(share) for share in (0.0, 0.5, 1.0)]


def test_a_decoder_without_its_mask_is_shown_with_the_weights_of_later_words(golden):
    """The ablation model.decoder_mask=none: the picture hides nothing as forbidden."""
    config = ModelConfig(d_model=8, num_heads=2, d_ff=8, num_encoder_layers=1, num_decoder_layers=1)
    model = build_model(dataclasses.replace(config, decoder_mask="none"), golden.tokenizer.source.vocab_size).eval()
    explanation = explain(Translator(model, golden.tokenizer), TEXT, TARGET)
    figure = make_figure(explanation, ["decoder"])
    assert UNMASKED in [text.get_text() for text in figure.texts]
    cells = figure.axes[0].images[0].get_array()
    assert not cells.mask.any()
    assert_close(torch.tensor(cells.tolist()).sum(1), torch.ones(len(cells)))


LONG = "The old man who lives in the small white house near the river told the children that a cat drank the milk."
TEXTS = {
    "short": (TEXT, TARGET),
    "long": (LONG, "El viejo que vive en la casa blanca les dijo a los niños que el gato se había bebido la leche."),
    "narrow": ("Yes.", "Sí, claro que sí, señor."),
    "wide words": ("Incomprehensibilities internationalized!", "Incomprensibilidades internacionalizadas"),
}


@pytest.mark.parametrize("texts", TEXTS.values(), ids=TEXTS)
def test_no_text_overlaps_another_and_nothing_is_clipped_at_the_edges(golden, tmp_path, texts: tuple[str, str]):
    explanation = explain(golden, *texts)
    figure = make_figure(explanation, ("alignment", *PARTS))
    figure.draw_without_rendering()
    drawn = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text() and text.get_visible()]
    boxes = [text.get_window_extent() for text in drawn]
    assert len(boxes) > 60
    for number, box in enumerate(boxes):
        clashes = [drawn[i].get_text() for i in range(number) if box.shrunk(0.95, 0.9).overlaps(boxes[i])]
        assert not clashes, (drawn[number].get_text(), clashes)
    draw(explanation, tmp_path / "a.png")
    pixels = imread(tmp_path / "a.png")
    assert all((edge == 1).all() for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]))
    assert (pixels < 0.5).any()


def test_lightness_falls_in_even_steps_for_colour_blind_readers():
    def lightness(share: float) -> float:
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in colour_map()(share)[:3]]
        return 116 * sum(weight * x for weight, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True)) ** (1 / 3) - 16

    levels = [lightness(step / 20) for step in range(21)]
    steps = [before - after for before, after in itertools.pairwise(levels)]
    assert min(steps) > 0.8 * max(steps)
    assert levels[0] - levels[-1] > 75


@pytest.mark.parametrize("text", ["The $5 ball_x^2 costs $6.", "日本 ball", "a" * 60, "<b>&amp;</b>"])
@pytest.mark.filterwarnings("error")
def test_special_characters_are_drawn_unchanged(golden, tmp_path, text):
    draw(explain(golden, text, "x"), tmp_path / "a.png")


def test_a_picture_of_the_longest_sentence_stays_within_bounds(golden, tmp_path):
    long = explain(golden, "a " * 48, "a " * 48)
    draw(long, tmp_path / "a.png")
    assert max(imread(tmp_path / "a.png").shape) <= MAX_PIXELS + 1


def test_a_model_without_attention_has_no_picture(explanation, tmp_path):
    blind = dataclasses.replace(explanation, by_word={part: [] for part in PARTS})
    for parts in (["alignment"], ["alignment", *PARTS]):
        refuses("this model has no attention to draw", draw, blind, tmp_path / "a.png", parts)
