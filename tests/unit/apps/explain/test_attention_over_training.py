"""A sentence's attention over the checkpoints of a run, as a page and as an animated picture."""

import json
import re
from unittest.mock import patch

import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image, ImageSequence

from seq2seq.apps.explain.explanation import Explanation, explain
from seq2seq.apps.explain.picture import Moment, _draw, animate, make_moment, write_over_page
from tests.refusing import refuses

TEXT, TARGET = "The cat sees a blue ball.", "El gato <b>ve</b> una bola."


@pytest.fixture(scope="module")
def explanation(golden) -> Explanation:
    return explain(golden, TEXT, TARGET)


@pytest.fixture(scope="module")
def moments(explanation: Explanation) -> list[Moment]:
    first = make_moment(explanation, 20, 5.5, "¿" * 90)
    faint = [[1 / len(row)] * len(row) for row in first.weights]
    return [Moment(10, None, "", -30.0, faint), first]


def test_a_moment_has_the_aligning_attention_and_the_score(explanation: Explanation, moments: list[Moment]) -> None:
    weights = explanation.aligning()
    assert weights is not None
    assert torch.allclose(torch.tensor(moments[1].weights), weights, atol=1e-4)
    assert moments[1].log_prob == pytest.approx(sum(explanation.log_probs))


def test_the_page_holds_every_moment_and_no_markup(explanation: Explanation, moments: list[Moment]) -> None:
    page = write_over_page(explanation, moments)
    page_data = json.loads(re.findall(r'id="data">(.*?)</script>', page)[0])
    assert page_data["columns"] == [*TEXT.split(), "</s>"]
    assert page_data["rows"] == [*TARGET.split(), "</s>"]
    assert [moment["updates"] for moment in page_data["moments"]] == [10, 20]
    assert "<b>ve" not in page


def test_the_picture_has_a_frame_for_each_moment_and_stays_on_the_last(explanation, moments, tmp_path):
    animate(explanation, moments, tmp_path / "over.gif")
    with Image.open(tmp_path / "over.gif") as picture:
        seconds = [frame.info["duration"] / 1000 for frame in ImageSequence.Iterator(picture)]
    assert seconds == [0.25, 2.0]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("text", ["ñW" * 20, "日本語"])
def test_a_long_translation_and_letters_that_the_font_lacks_fit_into_the_picture(text: str) -> None:
    with patch.object(Figure, "savefig", autospec=True, side_effect=Figure.savefig) as save:
        _draw(Moment(10, 2.0, text, -1.0, [[1.0, 0.0]]), ["extraordinariamente"], [text, "</s>"])
    (figure, *_), _ = save.call_args
    for drawn in (*figure.texts, *figure.axes[0].get_yticklabels()):
        box, frame = drawn.get_window_extent(), figure.bbox
        assert frame.x0 <= box.x0 <= box.x1 <= frame.x1


def test_a_model_without_cross_attention_has_nothing_to_show(explanation: Explanation) -> None:
    object.__setattr__(blind := Explanation(**vars(explanation)), "by_word", {**explanation.by_word, "cross": []})
    refuses("no cross-attention to show", make_moment, blind, 1, None, "")
