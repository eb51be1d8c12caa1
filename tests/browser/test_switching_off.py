"""Parts of the model are switched off on the server's page, in real Chromium."""

from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")

from playwright.sync_api import expect

from tests.browser.made_up import explanation
from tests.browser.test_translation_page import CAT, TRANSLATED

pytestmark = pytest.mark.browser


def source_word(page: Any, text: str) -> Any:
    return page.locator("#attention .side").nth(0).get_by_role("button", name=text)


def switch(page: Any, name: str) -> Any:
    return page.locator(f'#attention [data-name="{name}"]')


@pytest.fixture
def page(visit: Any) -> Any:
    visitor = visit()
    visitor.look_into(CAT)
    yield visitor.page
    assert visitor.faults == []


def test_a_hidden_word_changes_translation_score_and_maps_beside_the_unchanged_one(page: Any) -> None:
    source_word(page, "cat").click()
    switch(page, "source.2").click()
    caption = page.locator(".comparison caption")
    expect(caption).to_have_text("Without the word “cat”")
    unchanged, changed = page.locator(".comparison tbody tr").all()
    expect(unchanged).to_contain_text(TRANSLATED)
    scores = [row.locator(".score").inner_text() for row in (unchanged, changed)]
    assert scores[0] != scores[1]
    column = page.locator("table.heatmap").nth(0).locator("tbody td:nth-of-type(2)")
    assert set(column.all_inner_texts()) == {""}
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
    expect(caption).to_have_text("Without the order of words, the usual temperature (4 instead)")
    switch(page, "mask").click()
    expect(caption).to_contain_text("the causal mask")
    expect(page.locator(".panel h3").nth(2)).to_have_text("Decoder self-attention without mask")


def test_a_change_that_the_server_refuses_is_not_kept(visit: Any) -> None:
    visitor = visit()
    visitor.look_into(CAT)
    page = visitor.page
    page.route("**/explain", lambda route: route.fulfill(status=400, json={"error": "the translation is too long"}))
    switch(page, "cross.1.head.1").click()
    expect(page.locator("#look-state")).to_have_text("the translation is too long.")
    page.unroute("**/explain")
    with page.expect_request("**/explain") as request:
        switch(page, "positions").click()
    assert request.value.post_data_json["without"] == ["positions"]
    page.locator("#source").fill("The dog sees a ball.")
    expect(page.locator("#attention .side").nth(0)).to_contain_text("dog")
    expect(page.locator(".comparison caption")).to_have_text("Without the order of words")
    (fault,) = visitor.faults
    assert "status of 400" in fault


def test_a_file_shows_what_was_switched_off_and_has_no_switches(opened: Any) -> None:
    changed = explanation() | {
        "interventions": {"without": ["source.2"], "average": ["cross.1"], "temperature": 1.0},
        "unchanged": {"target": "<b>El</b> gato", "log_prob": -1.25},
    }
    watched = opened(changed, [], {})
    text = watched.page.locator(".compared").inner_text()
    assert "Without the word “black”, the choice of cross-attention layer 1" in text
    assert "<b>El</b> gato" in text
    assert "−1.25 nats" in text
    assert watched.page.locator(".switch").count() == 0
    assert watched.page.get_by_role("button", name="Undo").count() == 0
