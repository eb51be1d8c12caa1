"""The page of an analysis on a phone and on a screen, light and dark."""

from pathlib import Path
from typing import Any

import pytest

from seq2seq.apps.explain.analysis import write_analysis_page
from seq2seq.evaluation.error_analysis import Translated, analyse
from tests.browser.watched import Watched

pytestmark = pytest.mark.browser

LONG = "Donaudampfschifffahrtsgesellschaftskapitän" * 3


@pytest.mark.parametrize(("width", "theme"), [(390, "light"), (1280, "dark")])
def test_the_page_fits_and_its_faults_open(contexts: Any, tmp_path: Path, width: int, theme: str) -> None:
    texts = [f"The {LONG}.", "It is big."], [f"El {LONG} es es.", "Es grande."], ["El capitán.", "Es grande."]
    analysis = analyse([Translated(LONG, *texts), Translated("b", *texts)], frequencies={"the": 3})
    file = tmp_path / "analysis.html"
    file.write_text(write_analysis_page(analysis, [LONG, "b"]), encoding="utf-8")
    watched = Watched(contexts(offline=True, width=width, theme=theme).new_page(), file.as_uri())
    page = watched.page
    for summary in page.locator("summary").all():
        summary.click()
    assert page.locator("details[open]").count() == len(analysis.faults)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    lightness = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (max(lightness) < 60) == (theme == "dark")
    assert watched.faults == []
    assert watched.serious_faults() == []
