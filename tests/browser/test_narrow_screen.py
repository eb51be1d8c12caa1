"""On a phone no page is wider than the screen, whatever fonts the machine has and however long a word is."""

from typing import Any

import pytest

from tests.browser import made_up

pytestmark = pytest.mark.browser

WIDTH = 390  # CSS pixels
LONG = "Donaudampfschifffahrtsgesellschaftskapitän"
FONTS = {
    "wide": "* { font-family: monospace !important; letter-spacing: 0.1em !important; }",
    "spaced": "* { letter-spacing: 0.25em !important; word-spacing: 0.3em !important; }",
    "large": ":root { font-size: 22px; }",
}


def with_long_words() -> tuple[dict, list, dict]:
    """An explanation, walks and beams that have a word of 42 letters wherever a text stands."""
    explanation = made_up.explanation(source=f"The {LONG}", target=f"El {LONG}")
    for side in ("source", "target"):
        explanation["words"][side][1]["text"] = LONG
    explanation["pieces"] = {side: [*pieces[:2], LONG, *pieces[3:]] for side, pieces in explanation["pieces"].items()}
    walks = [made_up.walk("decoder"), made_up.walk("cross")]
    for walk in walks:
        for side in ("rows", "columns"):
            walk[side] = [LONG, *walk[side][1:]]
    beams = made_up.beams()
    for hypothesis in (*(step["candidates"][0] for step in beams["steps"]), *beams["result"]):
        hypothesis |= {"text": f"{LONG} {LONG}", "piece": LONG}
    return explanation, walks, beams


def set_fonts(page: Any, styles: str) -> None:
    """Add a style sheet, which the page's Content-Security-Policy does not let an element do."""
    page.evaluate(
        "css => { const sheet = new CSSStyleSheet(); sheet.replaceSync(css); document.adoptedStyleSheets = [sheet]; }",
        styles,
    )


def require_narrow(page: Any, state: str) -> None:
    """Nothing is wider than the screen, and no row's name takes more than half of it from the row's numbers."""
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTH, state
    widths = "names => Math.max(0, ...names.map((name) => name.getBoundingClientRect().width))"
    assert page.locator("th[scope=row]").evaluate_all(widths) <= WIDTH / 2, state


def look_at_everything(page: Any) -> None:
    """Choose a word of each sentence, all heads and one, and go through all steps."""
    require_narrow(page, "at first")
    assert page.locator(".diagram").get_attribute("data-flow") == "columns"
    for side in ("Source sentence", "Translation"):
        page.get_by_role("toolbar", name=side).locator("button.word").nth(1).tap()
        require_narrow(page, side)
    page.locator(".viewer").get_by_label("Head", exact=True).first.select_option(label="side by side")
    require_narrow(page, "heads side by side")
    page.locator(".viewer").get_by_label("Head", exact=True).first.select_option(label="1")
    tabs = page.get_by_role("tab").all()
    assert len(tabs) == 8 + 4  # steps of attention, of the search
    for tab in tabs:
        tab.click()
        require_narrow(page, tab.text_content())


@pytest.mark.parametrize(("unit", "font"), [("words", "wide"), ("pieces", "spaced")])
def test_the_attention_viewer_never_scrolls_sideways_on_a_phone(opened, unit: str, font: str) -> None:
    watched = opened(*with_long_words(), width=WIDTH)
    set_fonts(watched.page, FONTS[font])
    watched.page.locator(".choices").get_by_text(unit).click()
    look_at_everything(watched.page)
    assert watched.serious_faults() == []


@pytest.mark.parametrize("font", ["wide", "large"])
def test_the_servers_page_never_scrolls_sideways_on_a_phone(visit: Any, font: str) -> None:
    page = visit(width=WIDTH).page
    explanation, walks, beams = with_long_words()
    answers = {
        "translate": {"translatedText": f"El {LONG}", "alternatives": [LONG], "sentences": [f"The {LONG}"]},
        "explain": {**explanation, "walks": walks, "beams": beams},
    }
    page.route("**/translate", lambda route: route.fulfill(json=answers["translate"]))
    page.route("**/explain", lambda route: route.fulfill(json=answers["explain"]))
    set_fonts(page, FONTS[font])
    page.evaluate("document.getElementById('key-form').hidden = false")
    require_narrow(page, "empty")
    page.locator("#source").fill(f"The {LONG}")
    page.wait_for_selector("#attention .diagram")
    require_narrow(page, "translated")
    page.get_by_role("button", name="Show the steps").click()
    page.wait_for_selector("#steps .stepper")
    look_at_everything(page)
