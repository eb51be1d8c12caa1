"""Nothing that axe-core calls serious or critical, on a desk and on a phone, in the light and in the dark."""

from typing import Any

import pytest

from tests.browser import made_up

pytestmark = pytest.mark.browser


@pytest.fixture(params=[(1280, "light"), (390, "dark")], ids=["desk", "phone"])
def watched(opened: Any, request: pytest.FixtureRequest) -> Any:
    width, theme = request.param
    walks = [made_up.walk("decoder"), made_up.walk("cross")]
    return opened(made_up.explanation(), walks, made_up.beams(), width=width, theme=theme)


def test_axe_finds_nothing_serious(watched: Any) -> None:
    page = watched.page
    assert watched.serious_faults() == []
    page.get_by_label("Head", exact=True).select_option(label="side by side")
    for tab in ("Softmax", "Result"):
        page.get_by_role("tab", name=tab).click()
    assert watched.serious_faults() == []
    page.get_by_label("Head", exact=True).select_option(label="1")
    page.locator(".choices").get_by_text("pieces").click()
    page.locator("button.word").first.focus()
    for tab in ("Mask", "2"):
        page.get_by_role("tab", name=tab).last.click()
    assert watched.serious_faults() == []
    page.evaluate("document.querySelector('.reading').style.color = '#888a'")
    assert any(fault.startswith("color-contrast") for fault in watched.serious_faults())
