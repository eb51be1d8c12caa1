"""What a real model's attention gives is what the browser shows."""

from pathlib import Path

import pytest

from seq2seq.explain.explanation import explain
from seq2seq.translator import Translator

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
    for head in range(len(weights["cross"][0])):
        page.get_by_label("Head", exact=True).select_option(index=head + 1)
        cross, decoder, encoder = (weights[part][0][head] for part in ("cross", "decoder", "encoder"))
        target = page.get_by_role("toolbar", name="Translation").get_by_role("button")
        assert target.count() == len(cross)
        for row, word in enumerate(target.all()):
            word.focus()
            assert shares(page, "Source sentence") == cross[row]
            assert shares(page, "Translation") == [*decoder[row][: row + 1], *[0] * (len(cross) - row)]
        for row, word in enumerate(page.get_by_role("toolbar", name="Source sentence").get_by_role("button").all()):
            word.focus()
            assert shares(page, "Source sentence") == encoder[row]
            assert shares(page, "Translation") == [0, *(asking[row] for asking in cross)]
    assert watched.faults == []
