"""The server's page in real Chromium, with a real server and the stored model behind it."""

from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")

from playwright.sync_api import expect

from benchmarks.server_process import REPOSITORY, ServerProcess
from seq2seq.apps.documents.kept_strings import cut_sentences
from tests.browser.watched import Watched

pytestmark = pytest.mark.browser

CAT, TRANSLATED = "The cat sees the milk.", "El gato ve la leche."


def test_what_is_typed_is_translated_and_explained_with_nothing_from_elsewhere(visit: Any, server: ServerProcess):
    visitor = visit()
    page = visitor.page
    page.keyboard.type(CAT)  # the page puts the cursor there
    visitor.wait_for_text("#target", TRANSLATED)
    assert visitor.text("#count") == "22 / 5,000"
    assert page.locator("#target").get_attribute("lang") == "es"
    page.wait_for_selector("#attention .diagram")
    word = page.locator("#attention .side").nth(1).get_by_role("button", name="gato")
    word.hover()
    reading = visitor.text("#attention .reading")
    assert reading.startswith("To write gato")
    assert "the decoder, having read El, looked back at" in reading
    assert "In the source it looked at" in reading
    page.locator("#attention .side").nth(0).get_by_role("button", name="cat").hover()
    assert visitor.text("#attention .reading").startswith("cat looks at")
    assert visitor.faults == []
    assert {url.split("/")[2] for url in visitor.requests} == {server.url.removeprefix("http://")}


def test_the_steps_are_those_of_the_head_that_is_picked(visit: Any):
    visitor = visit()
    visitor.look_into(CAT)
    page = visitor.page
    button = page.get_by_role("button", name="Show the steps")
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#steps .stepper")
    assert button.count() == 0  # now it says Hide
    page.locator("#steps").get_by_role("tab", name="Softmax").click()
    visitor.wait_for_text("#steps", "Softmax")
    visitor.wait_for_text("#steps", "Cross-attention, layer 1, head 1")
    page.locator("#attention").get_by_label("Head", exact=True).select_option(label="4")
    visitor.wait_for_text("#steps", "Cross-attention, layer 1, head 4")
    assert "The beams" in visitor.text("#steps")
    button = page.get_by_role("button", name="Hide the steps")
    button.click()
    page.locator("#attention").get_by_label("Head", exact=True).select_option(label="2")
    page.get_by_role("button", name="Show the steps").click()
    visitor.wait_for_text("#steps", "Cross-attention, layer 1, head 2")
    assert visitor.faults == []


def test_another_translation_can_be_chosen_copied_and_looked_into(visit: Any):
    visitor = visit()
    visitor.write(CAT)
    page = visitor.page
    options = page.locator("#ranked input")
    assert options.count() == 5
    options.first.focus()
    page.keyboard.press("ArrowDown")
    second = visitor.text("#ranked label:nth-of-type(2)")
    assert visitor.text("#target") == second != TRANSLATED
    shown = page.locator("#attention .side").nth(1).locator(".text")
    expect(shown).to_have_text(["<s>", *second.split(), "</s>"])
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == second


def test_text_is_never_markup(visit: Any):
    visitor = visit()
    visitor.look_into("<img src=x onerror=alert(1)> cat")
    page = visitor.page
    assert "<img src=x onerror=alert(1)>" in visitor.text("#target")
    page.get_by_role("button", name="Show the steps").click()
    page.wait_for_selector("#steps .stepper")
    assert page.locator("main img").count() == 0
    assert visitor.faults == []


def test_each_sentence_can_be_looked_into(visit: Any):
    visitor = visit()
    visitor.write(f"{CAT} At 3.5 p.m. Mr. Cat sees it. — A dog?")
    visitor.wait_for_text("#target", TRANSLATED)
    page = visitor.page
    assert page.locator("#ranked").is_hidden()
    page.wait_for_selector("#attention .diagram")
    listed = page.get_by_label("Part of 4").locator("option").all_inner_texts()
    assert listed == [
        sentence for sentence in cut_sentences(page.locator("#source").input_value())[::2] if sentence != "—"
    ]
    page.get_by_label("Part of 4").select_option(label=CAT)
    visitor.wait_for_text("#attention .diagram", "milk.")


BUSY = {"status": 429, "headers": {"Retry-After": "10"}, "content_type": "application/json", "body": "{}"}


@pytest.mark.parametrize(
    ("answer", "reason", "seconds"),
    [
        (lambda route: route.fulfill(**BUSY), "The server is busy.", 10),
        (lambda route: route.abort(), "The server does not answer.", 3),
    ],
    ids=["busy", "gone"],
)
def test_a_question_without_an_answer_is_asked_again(visit: Any, answer: Any, reason: str, seconds: int):
    visitor = visit()
    page = visitor.page
    page.clock.install()
    page.route("**/translate", answer, times=1)
    page.locator("#source").fill(CAT)
    visitor.wait_for_text("#trouble", f"{reason} Trying again in {seconds} s.")
    page.clock.fast_forward(1000 * seconds)
    visitor.wait_for_text("#target", TRANSLATED)
    assert visitor.text("#trouble") == ""


def test_a_question_that_the_text_has_overtaken_is_given_up(visit: Any):
    visitor = visit()
    page = visitor.page
    page.route("**/translate", lambda route: None, times=1)  # never answers
    with page.expect_request("**/translate"):
        page.locator("#source").fill("A dog?")
    with page.expect_event("requestfailed"):
        page.locator("#source").fill(CAT)
    visitor.wait_for_text("#target", TRANSLATED)
    assert visitor.text("#trouble") == ""


def test_too_much_text_is_not_sent(visit: Any):
    visitor = visit()
    visitor.page.locator("#source").fill("a" * 5001)
    visitor.wait_for_text("#trouble", "At most 5,000 characters")
    assert visitor.page.locator("#source").get_attribute("aria-invalid") == "true"
    visitor.write("")
    assert visitor.text("#trouble") == ""
    assert visitor.page.locator("#look").is_hidden()


REFUSES_STORAGE = "Object.defineProperty(window, 'sessionStorage', { get() { throw new Error('refused'); } })"


def test_a_mistyped_key_can_be_typed_again(contexts: Any):
    bundle = REPOSITORY / "tests" / "golden" / "bundle"
    with ServerProcess(bundle, "--device", "cpu", OMP_NUM_THREADS="1", SEQ2SEQ_API_KEY="right") as server:
        for script in ("", REFUSES_STORAGE):
            context = contexts()
            context.add_init_script(script)
            visitor = Watched(context.new_page(), server.url)
            form, key = visitor.page.locator("#key-form"), visitor.page.get_by_label("API key")
            expect(form).to_be_visible()
            key.fill("wrong")
            key.press("Enter")
            expect(form).to_be_hidden()
            visitor.page.locator("#source").fill(CAT)
            visitor.wait_for_text("#trouble", "Invalid API key")
            expect(form).to_be_visible()
            key.fill("right")
            key.press("Enter")
            visitor.wait_for_text("#target", TRANSLATED)
            expect(form).to_be_hidden()


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_axe_finds_nothing_serious_and_nothing_is_wider_than_the_screen(visit: Any, width: int, theme: str):
    visitor = visit(width=width, theme=theme)
    page = visitor.page
    assert visitor.serious_faults() == []
    visitor.look_into(CAT)
    page.locator('#attention [data-name="encoder.1.head.1"]').click()
    expect(page.locator(".comparison caption")).to_have_count(1)
    page.get_by_role("button", name="Show the steps").click()
    page.wait_for_selector("#steps .stepper")
    assert visitor.serious_faults() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    lightness = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (max(lightness) < 60) == (theme == "dark")
