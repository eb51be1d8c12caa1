"""Nothing that axe-core calls serious or critical, in both themes, on a desk and on a phone."""

from typing import Any

import pytest

from tests.browser import made_up

pytestmark = pytest.mark.browser
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")


def faults(page: Any) -> list[str]:
    found = axe.Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {one['help']}: {node['html'][:120]} {node['failureSummary']}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]


@pytest.fixture(params=[1280, 390])
def width(request) -> int:
    return request.param


@pytest.fixture(params=["light", "dark"])
def page(opened, request, width: int) -> Any:
    walks = [made_up.walk("decoder"), made_up.walk("cross")]
    return opened(made_up.explanation(), walks, made_up.beams(), width=width, theme=request.param).page


def test_axe_finds_nothing_serious(page) -> None:
    assert faults(page) == []
    page.get_by_label("Head", exact=True).select_option(label="side by side")
    for tab in ("Softmax", "Result"):
        page.get_by_role("tab", name=tab).click()
    assert faults(page) == []
    page.get_by_label("Head", exact=True).select_option(label="1")
    page.locator(".choices").get_by_text("pieces").click()
    page.locator("button.word").first.focus()
    for tab in ("Mask", "2"):
        page.get_by_role("tab", name=tab).last.click()
    assert faults(page) == []


def test_axe_sees_what_it_should(page) -> None:
    page.evaluate("document.querySelector('.reading').style.color = '#888a'")
    assert any(fault.startswith("color-contrast") for fault in faults(page))


def test_the_attribute_overrides_the_systems_theme(opened) -> None:
    def paper(theme: str, attribute: str | None) -> str:
        page = opened(made_up.explanation(), [], {}, theme=theme).page
        if attribute:
            page.evaluate("theme => document.documentElement.dataset.theme = theme", attribute)
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light, dark = paper("light", None), paper("dark", None)
    assert light != dark
    assert paper("light", "dark") == dark
    assert paper("dark", "light") == light
