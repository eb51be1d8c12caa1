"""Parts of the model are switched off on the server's page, in real Chromium."""

from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")

from playwright.sync_api import expect

from tests.browser.made_up import explanation
from tests.browser.test_translation_page import CAT, TRANSLATED, server, visit  # noqa: F401  (fixtures)

pytestmark = pytest.mark.browser


def source_word(page: Any, text: str) -> Any:
    return page.locator("#attention .side").nth(0).get_by_role("button", name=text)


def switch(page: Any, name: str) -> Any:
    return page.locator(f'#attention [data-name="{name}"]')


@pytest.fixture
def page(visit: Any) -> Any:  # noqa: F811
    visitor = visit()
    visitor.write(CAT)
    visitor.wait_for_text("#target", TRANSLATED)
    visitor.page.wait_for_selector("#attention .diagram")
    yield visitor.page
    assert visitor.faults == []


def test_a_hidden_word_changes_translation_score_and_maps_beside_the_unchanged_one(page: Any) -> None:
    source_word(page, "cat").click()
    switch(page, "source.2").click()
    caption = page.locator(".comparison caption")
    expect(caption).to_have_text("Without the word “cat”")
    unchanged, changed = page.locator(".comparison tr").all()
    expect(unchanged).to_contain_text(TRANSLATED)
    scores = [one.locator(".score").inner_text() for one in (unchanged, changed)]
    assert scores[0] != scores[1]
    assert all(
        text == "" for text in page.locator("table.heatmap").nth(0).locator("tbody td:nth-of-type(2)").all_inner_texts()
    )
    expect(switch(page, "source.2")).to_be_focused()
    expect(switch(page, "source.2")).to_have_attribute("aria-pressed", "false")
    switch(page, "source.2").click()
    expect(caption).to_have_count(0)


def test_heads_stay_off_for_another_sentence_and_words_do_not(page: Any) -> None:
    switch(page, "cross.1.head.2").click()
    caption = page.locator(".comparison caption")
    expect(caption).to_have_text("Without cross-attention layer 1 head 2")
    source_word(page, "cat").click()
    switch(page, "source.2").click()
    expect(caption).to_contain_text("cat")
    page.locator("#source").fill("The dog sees a ball.")
    expect(page.locator("#attention .side").nth(0)).to_contain_text("dog")
    expect(caption).to_have_text("Without cross-attention layer 1 head 2")
    page.get_by_role("button", name="Undo").click()
    expect(caption).to_have_count(0)
    expect(switch(page, "cross.1.head.2")).to_have_attribute("aria-pressed", "true")


def test_the_temperature_and_the_settings_of_the_whole_model(page: Any) -> None:
    page.locator(".choices", has_text="Softmax temperature").get_by_text("4", exact=True).click()
    caption = page.locator(".comparison caption")
    expect(caption).to_have_text("Without the usual temperature (4 instead)")
    switch(page, "positions").click()
    expect(caption).to_have_text("Without positions, the usual temperature (4 instead)")
    switch(page, "mask").click()
    expect(caption).to_contain_text("the causal mask")
    expect(page.locator(".panel h3").nth(2)).to_have_text("Decoder self-attention without mask")


def test_a_change_that_the_server_refuses_is_not_kept(visit: Any) -> None:  # noqa: F811
    visitor = visit()
    visitor.write(CAT)
    page = visitor.page
    page.wait_for_selector("#attention .diagram")
    page.route("**/explain", lambda route: route.fulfill(status=400, json={"error": "the translation is too long"}))
    switch(page, "cross.1.head.1").click()
    expect(page.locator("#look-state")).to_have_text("the translation is too long.")
    page.unroute("**/explain")
    with page.expect_request("**/explain") as asked:
        switch(page, "positions").click()
    assert asked.value.post_data_json["without"] == ["positions"]
    page.locator("#source").fill("The dog sees a ball.")
    expect(page.locator("#attention .side").nth(0)).to_contain_text("dog")
    expect(page.locator(".comparison caption")).to_have_text("Without positions")
    (fault,) = visitor.faults
    assert "status of 400" in fault


@pytest.mark.parametrize(("width", "theme"), [(1280, "dark"), (390, "light")])
def test_axe_finds_nothing_serious_in_the_switches(visit: Any, width: int, theme: str) -> None:  # noqa: F811
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    visitor = visit(width=width, theme=theme)
    visitor.write(CAT)
    visitor.page.wait_for_selector("#attention .diagram")
    switch(visitor.page, "encoder.1.head.1").click()
    expect(visitor.page.locator(".comparison caption")).to_have_count(1)
    found = axe.Axe().run(visitor.page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_file_shows_what_was_switched_off_and_has_no_switches(opened: Any) -> None:
    changed = explanation() | {
        "interventions": {"without": ["source.2"], "average": ["cross.1"], "temperature": 1.0},
        "unchanged": {"target": "<b>El</b> gato", "log_prob": -1.25},
    }
    watched = opened(changed, [], {})
    told = watched.page.locator(".compared").inner_text()
    assert "Without the word “black”, the choice of cross-attention layer 1" in told
    assert "<b>El</b> gato" in told
    assert "−1.25 nats" in told
    assert watched.page.locator(".switch").count() == 0
    assert watched.page.get_by_role("button", name="Undo").count() == 0
    assert watched.faults == []
