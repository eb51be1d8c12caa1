"""What a real model's attention gives is what the browser shows."""

from pathlib import Path

import pytest

from seq2seq.explain.explanation import explain
from seq2seq.explain.steps import beam_steps
from seq2seq.translator import Translator

pytestmark = pytest.mark.browser

GOLDEN = Path(__file__).parents[1] / "golden" / "bundle"


@pytest.fixture(scope="module")
def explanation() -> dict:
    return explain(Translator.load(GOLDEN, "cpu"), "The ball is blue.").to_plain()


def shares(page, side: str) -> list[float]:
    words = page.get_by_role("toolbar", name=side).locator(".word")
    return words.evaluate_all("words => words.map((word) => Number(word.style.getPropertyValue('--share')))")


@pytest.mark.parametrize("unit", ["words", "pieces"])
def test_every_word_shows_the_weights_of_its_rows(opened, explanation: dict, unit: str) -> None:
    watched = opened(explanation, [], {})
    page = watched.page
    page.locator(".choices").get_by_text(unit).click()
    weights = explanation["by_word" if unit == "words" else "attention"]
    words = [word["text"] for word in explanation["words"]["source"]]
    texts = page.get_by_role("toolbar", name="Source sentence").locator(".text").all_text_contents()
    assert texts == (words if unit == "words" else explanation["pieces"]["source"])
    for head in (0, len(weights["cross"][0]) - 1):
        page.get_by_label("Head", exact=True).select_option(index=head + 1)
        cross, decoder, encoder = (weights[part][0][head] for part in ("cross", "decoder", "encoder"))
        target = page.get_by_role("toolbar", name="Translation").get_by_role("button")
        assert target.count() == len(cross)
        for row, word in enumerate(target.all()):
            word.focus()
            assert shares(page, "Source sentence") == cross[row]
            assert shares(page, "Translation") == [*decoder[row][: row + 1], *[0] * (len(cross) - row)]
        source = page.get_by_role("toolbar", name="Source sentence").get_by_role("button")
        assert source.count() == len(encoder)
        for row, word in enumerate(source.all()):
            word.focus()
            assert shares(page, "Source sentence") == encoder[row]
            assert shares(page, "Translation") == [0, *(asking[row] for asking in cross)]
    assert watched.faults == []


def test_the_beams_end_in_the_translation_shown_above(opened, explanation: dict) -> None:
    beams = beam_steps(Translator.load(GOLDEN, "cpu"), explanation["source"])
    page = opened(explanation, [], beams).page
    page.get_by_role("tab", name="Result").click()
    assert page.locator(".candidates tbody td").first.text_content() == explanation["target"]
    pieces = page.locator(".node.winner .piece").all_text_contents()
    assert pieces == [*explanation["pieces"]["target_in"], "</s>"]
