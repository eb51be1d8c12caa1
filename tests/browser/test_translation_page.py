"""The server's page in real Chromium, with a real server and the stored model behind it."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")

from playwright.sync_api import expect

from benchmarks.server_process import REPOSITORY, ServerProcess
from seq2seq.documents.keeping import cut_sentences

pytestmark = pytest.mark.browser

CAT, TRANSLATED = "The cat sees the milk.", "El gato ve la leche."


@pytest.fixture(scope="module")
def server(chromium: Any) -> Iterator[ServerProcess]:
    with ServerProcess(REPOSITORY / "tests" / "golden" / "bundle", "--device", "cpu", OMP_NUM_THREADS="1") as process:
        yield process


class Visitor:
    """A page of the server, and all that went wrong in it."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.faults, self.hosts = page, [], set()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: self.faults.append(message.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("dialog", lambda dialog: (self.faults.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        page.goto(url)
        page.wait_for_selector("#examples button", state="attached")

    def write(self, text: str) -> None:
        self.page.locator("#source").fill(text)
        expect(self.page.locator("#target")).not_to_have_attribute("data-old", "", timeout=60_000)

    def text(self, place: str) -> str:
        return self.page.locator(place).inner_text()

    def wait_for_text(self, place: str, text: str) -> None:
        expect(self.page.locator(place)).to_contain_text(text, timeout=60_000)


@pytest.fixture
def visit(chromium: Any, server: ServerProcess) -> Iterator[Callable[..., Visitor]]:
    """Open the page: visit(width=, theme=)."""
    contexts = []

    def call(*, width: int = 1280, theme: str = "light") -> Visitor:
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
        contexts.append(context)
        return Visitor(context.new_page(), server.url)

    yield call
    for context in contexts:
        context.close()


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
    told = visitor.text("#attention .reading")
    assert told.startswith("To write gato")
    assert "the decoder, having read El, looked back at" in told
    assert "In the source it looked at" in told
    page.locator("#attention .side").nth(0).get_by_role("button", name="cat").hover()
    assert visitor.text("#attention .reading").startswith("cat looks at")
    assert visitor.faults == []
    assert visitor.hosts == {server.url.removeprefix("http://")}


def test_the_head_that_is_picked_is_the_one_that_is_shown(visit: Any):
    visitor = visit()
    visitor.write(CAT)
    visitor.page.wait_for_selector("#attention .heatmap")
    shown = {}
    for head in ("mean of all", "1", "2"):
        visitor.page.locator("#attention").get_by_label("Head", exact=True).select_option(label=head)
        shown[head] = visitor.text("#attention .panels")
    assert len(set(shown.values())) == 3


def test_the_steps_are_those_of_the_head_that_is_picked(visit: Any):
    visitor = visit()
    visitor.write(CAT)
    page = visitor.page
    page.wait_for_selector("#attention .diagram")
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


def test_the_map_of_cross_attention_comes_first(visit: Any):
    visitor = visit()
    visitor.write(CAT)
    page = visitor.page
    page.wait_for_selector("#attention .heatmap")
    assert page.locator(".panel h3").all_inner_texts() == [
        "Cross-attention",
        "Encoder self-attention",
        "Masked decoder self-attention",
    ]


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
    expect(shown).to_have_text(["<s>", *second.split(), "</s>"], timeout=60_000)
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == second


def test_text_is_never_markup(visit: Any):
    visitor = visit()
    attack = "<img src=x onerror=alert(1)> cat"
    visitor.write(attack)
    page = visitor.page
    assert "<img src=x onerror=alert(1)>" in visitor.text("#target")
    page.wait_for_selector("#attention .diagram")
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
    listed = page.get_by_label("Sentence", exact=True).locator("option").all_inner_texts()
    assert listed == [
        sentence for sentence in cut_sentences(page.locator("#source").input_value())[::2] if sentence != "—"
    ]
    page.get_by_label("Sentence", exact=True).select_option(label=CAT)
    visitor.wait_for_text("#attention .diagram", "milk.")


def test_a_busy_server_is_asked_again_when_it_said(visit: Any):
    visitor = visit()
    answers = iter([429])

    def busy(route: Any) -> None:
        if next(answers, None):
            body = json.dumps({"error": "Slowdown"})
            route.fulfill(status=429, headers={"Retry-After": "10"}, content_type="application/json", body=body)
        else:
            route.continue_()

    visitor.page.route("**/translate", busy)
    visitor.page.locator("#source").fill(CAT)
    visitor.wait_for_text("#trouble", "The server is busy. Trying again in 10 s.")
    visitor.wait_for_text("#target", TRANSLATED)
    assert visitor.text("#trouble") == ""


def test_a_server_that_is_gone_is_told_and_found_again(visit: Any):
    visitor = visit()
    visitor.page.route("**/translate", lambda route: route.abort())
    visitor.page.locator("#source").fill(CAT)
    visitor.wait_for_text("#trouble", "The server does not answer. Trying again in 3 s.")
    visitor.page.unroute("**/translate")
    visitor.wait_for_text("#target", TRANSLATED)
    assert visitor.text("#trouble") == ""


def test_an_answer_to_what_stood_there_before_is_dropped(visit: Any):
    visitor = visit()
    held: list[Any] = []
    visitor.page.route("**/translate", lambda route: held.append(route) if not held else route.continue_())
    with visitor.page.expect_request("**/translate"):
        visitor.page.locator("#source").fill("A dog?")
    visitor.page.locator("#source").fill(CAT)
    visitor.wait_for_text("#target", TRANSLATED)
    held[0].abort()
    visitor.page.wait_for_timeout(300)
    assert (visitor.text("#target"), visitor.text("#trouble")) == (TRANSLATED, "")


def test_too_much_text_is_not_sent(visit: Any):
    visitor = visit()
    visitor.page.locator("#source").fill("a" * 5001)
    visitor.wait_for_text("#trouble", "At most 5,000 characters")
    assert visitor.page.locator("#source").get_attribute("aria-invalid") == "true"
    visitor.write("")
    assert visitor.text("#trouble") == ""
    assert visitor.page.locator("#look").is_hidden()


REFUSES_STORAGE = "Object.defineProperty(window, 'sessionStorage', { get() { throw new Error('refused'); } })"


@pytest.mark.parametrize("script", ["", REFUSES_STORAGE])
def test_a_mistyped_key_can_be_typed_again(chromium: Any, script: str):
    bundle = REPOSITORY / "tests" / "golden" / "bundle"
    with ServerProcess(bundle, "--device", "cpu", OMP_NUM_THREADS="1", SEQ2SEQ_API_KEY="right") as server:
        context = chromium.new_context()
        context.add_init_script(script)
        visitor = Visitor(context.new_page(), server.url)
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
        context.close()


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_axe_finds_nothing_serious_and_nothing_is_wider_than_the_screen(visit: Any, width: int, theme: str):
    from tests.browser.test_accessibility import faults

    visitor = visit(width=width, theme=theme)
    page = visitor.page
    assert faults(page) == []
    visitor.write(CAT)
    page.wait_for_selector("#attention .diagram")
    page.get_by_role("button", name="Show the steps").click()
    page.wait_for_selector("#steps .stepper")
    assert faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Light" if theme == "dark" else "Dark", exact=True).click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != background
    page.wait_for_timeout(200)
    assert faults(page) == []
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != background
