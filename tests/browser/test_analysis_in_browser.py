"""The page of an analysis on a phone and on a screen, light and dark."""

from pathlib import Path
from typing import Any

import pytest

from seq2seq.evaluation.analysis import Translated, analyse
from seq2seq.explain.analysis_page import write_analysis_page

pytestmark = pytest.mark.browser

LONG = "Donaudampfschifffahrtsgesellschaftskapitän" * 3


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_and_its_faults_open(chromium: Any, tmp_path: Path, width: int, theme: str) -> None:
    texts = [f"The {LONG}.", "It is big."], [f"El {LONG} es es.", "Es grande."], ["El capitán.", "Es grande."]
    found = analyse([Translated(LONG, *texts), Translated("b", *texts)], frequencies={"the": 3})
    file = tmp_path / "analysis.html"
    file.write_text(write_analysis_page(found, [LONG, "b"]), encoding="utf-8")
    context = chromium.new_context(offline=True, viewport={"width": width, "height": 900}, color_scheme=theme)
    page = context.new_page()
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    page.goto(file.as_uri())
    for summary in page.locator("summary").all():
        summary.click()
    assert page.locator("details[open]").count() == len(found.faults)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    lightness = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (max(lightness) < 60) == (theme == "dark")
    assert told == []
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    violations = axe.Axe().run(page).response["violations"]
    assert [one["id"] for one in violations if one["impact"] in ("serious", "critical")] == []
    context.close()
