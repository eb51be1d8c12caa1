"""The attention viewer in a real browser, from a file, without network."""

import re
from typing import Any

import pytest

from tests.browser import made_up

pytestmark = pytest.mark.browser

EXPLANATION = made_up.explanation()
HOSTILE = "<img src=x onerror=alert(1)></script>"


@pytest.fixture
def watched(opened):
    return opened(EXPLANATION, [made_up.walk("decoder")], made_up.beams())


@pytest.fixture
def page(watched):
    return watched.page


def shares(page: Any, side: str) -> list[float]:
    """Return the weights with which the words of a side are drawn, to four decimals."""
    words = page.get_by_role("toolbar", name=side).locator(".word")
    return words.evaluate_all("words => words.map((word) => Number(word.style.getPropertyValue('--share')))")


def written(page: Any, side: str) -> list[str]:
    return page.get_by_role("toolbar", name=side).locator(".share").all_text_contents()


def as_shown(weight: float) -> str:
    """.83, 1 or nothing."""
    text = f"{weight:.2f}"
    return {"0.00": "", "1.00": "1"}.get(text, text[1:])


def mean(heads: list) -> list[list[float]]:
    return [[sum(cell) / len(heads) for cell in zip(*rows, strict=True)] for rows in zip(*heads, strict=True)]


def word(page: Any, side: str, text: str) -> Any:
    return page.get_by_role("toolbar", name=side).get_by_role("button", name=re.compile(f"^{re.escape(text)}"))


def test_the_file_opens_without_network_and_without_a_fault(watched) -> None:
    assert watched.page.locator("h1").text_content() == EXPLANATION["source"]
    assert watched.page.get_by_role("heading", level=3).all_text_contents()[:3] == [
        "Cross-attention",
        "Encoder self-attention",
        "Masked decoder self-attention",
    ]
    assert [url for url in watched.requests if not url.startswith("file:")] == []
    assert len(watched.requests) == 1


def test_hovering_a_target_word_shows_what_it_looked_at(page) -> None:
    word(page, "Translation", "bebió").hover()
    row = 3  # of the words; the decoder has then read the word before
    cross = mean(EXPLANATION["by_word"]["cross"][0])[row]
    back = mean(EXPLANATION["by_word"]["decoder"][0])[row]
    assert shares(page, "Source sentence") == pytest.approx(cross)
    assert shares(page, "Translation") == pytest.approx([*back[: row + 1], *[0] * 3])
    assert written(page, "Source sentence") == [as_shown(weight) for weight in cross]
    reading = page.get_by_role("status").text_content()
    assert reading.startswith("To write bebió (probability .22) the decoder, having read negro, looked back at ")
    best = max(range(len(cross)), key=cross.__getitem__)
    assert (
        f"In the source it looked at {EXPLANATION['words']['source'][best]['text']} {as_shown(cross[best])}" in reading
    )
    assert page.locator(".heatmap tr.chosen th").all_text_contents() == ["bebió", "negro"]
    word(page, "Translation", "El").click()
    word(page, "Source sentence", "cat").hover()
    assert page.locator("path.seen").count() == sum(row[2] >= 0.02 for row in mean(EXPLANATION["by_word"]["cross"][0]))
    page.mouse.move(5, 5)
    assert page.get_by_role("status").text_content().startswith("To write El")


def test_another_layer_and_head_are_shown_when_picked(page) -> None:
    page.get_by_label("Layer").select_option(label="2")
    page.get_by_label("Head", exact=True).select_option(label="2")
    word(page, "Translation", "gato").click()
    assert shares(page, "Source sentence") == EXPLANATION["by_word"]["cross"][1][1][1]
    cells = page.get_by_role("group", name="Cross-attention, table of weights").locator("tbody tr").nth(1).locator("td")
    assert cells.all_text_contents() == [as_shown(weight) for weight in EXPLANATION["by_word"]["cross"][1][1][1]]
    statistics = EXPLANATION["heads"]["cross"][1][1]
    assert page.locator(".panel").nth(0).locator("dd").all_text_contents() == [
        f"{statistics['entropy']:.2f} nats",
        f"{statistics['distance']:.1f} pieces",
        f"{round(100 * statistics['diagonal'])} %",
    ]
    page.get_by_label("Head", exact=True).select_option(label="3")
    assert shares(page, "Source sentence") == EXPLANATION["by_word"]["cross"][1][2][1]


@pytest.mark.parametrize("unit", ["words", "pieces"])
def test_every_word_shows_the_weights_of_its_rows(page, unit: str) -> None:
    page.locator(".choices").get_by_text(unit).click()
    page.get_by_label("Head", exact=True).select_option(label="2")
    weights = EXPLANATION["by_word" if unit == "words" else "attention"]
    cross, decoder, encoder = (weights[part][0][1] for part in ("cross", "decoder", "encoder"))
    for row, button in enumerate(page.get_by_role("toolbar", name="Translation").get_by_role("button").all()):
        button.focus()
        assert shares(page, "Source sentence") == cross[row]
        assert shares(page, "Translation") == [*decoder[row][: row + 1], *[0] * (len(cross) - row)]
    for row, button in enumerate(page.get_by_role("toolbar", name="Source sentence").get_by_role("button").all()):
        button.focus()
        assert shares(page, "Source sentence") == encoder[row]
        assert shares(page, "Translation") == [0, *(asking[row] for asking in cross)]


def test_all_heads_side_by_side_and_from_there_to_one(page) -> None:
    page.get_by_label("Head", exact=True).select_option(label="side by side")
    assert page.locator(".tile").count() == 9
    page.get_by_role("button", name=re.compile("^Head 3")).first.click()
    assert page.get_by_label("Head", exact=True).input_value() == "2"
    assert page.locator("table.heatmap").count() == 3


def test_an_overview_of_all_layers_opens_any_head(watched) -> None:
    page = watched.page
    page.get_by_text("All layers and heads").click()
    tiles = page.locator(".overview .tile")
    heads = [
        head for part in ("cross", "encoder", "decoder") for layer in EXPLANATION["attention"][part] for head in layer
    ]
    tiles.first.wait_for()
    assert tiles.count() == len(heads)
    page.get_by_role("button", name=re.compile("^Cross-attention, layer 1, head 2, spread")).click()
    assert [page.get_by_label(name, exact=True).input_value() for name in ("Layer", "Head")] == ["0", "1"]
    assert shares(page, "Source sentence") in EXPLANATION["by_word"]["cross"][0][1]
    assert tiles.and_(page.locator("[aria-pressed=true]")).count() == 3  # it stays open
    assert watched.serious_faults() == []
    page.evaluate("document.querySelector('.reading').style.color = '#888a'")
    assert any(fault.startswith("color-contrast") for fault in watched.serious_faults())


def test_arrow_keys_go_along_a_sentence_and_across(page) -> None:
    def here() -> str:
        return page.evaluate("document.activeElement.querySelector('.text').textContent")

    word(page, "Translation", "gato").focus()
    for key, text in [("ArrowRight", "negro"), ("End", "</s>"), ("Home", "El"), ("ArrowLeft", "El")]:
        page.keyboard.press(key)
        assert here() == text
    page.keyboard.press("ArrowUp")
    assert page.get_by_role("toolbar", name="Source sentence").locator(":focus").count() == 1
    assert page.get_by_role("status").text_content().startswith(here())
    page.keyboard.press("ArrowDown")
    assert page.get_by_role("toolbar", name="Translation").locator(":focus").count() == 1


def test_markup_in_a_sentence_is_shown_as_text(opened) -> None:
    explanation = made_up.explanation(source=HOSTILE, target=HOSTILE)
    explanation["words"]["source"][0]["text"] = explanation["words"]["target"][0]["text"] = HOSTILE
    explanation["pieces"] = {side: [HOSTILE, *pieces[1:]] for side, pieces in explanation["pieces"].items()}
    walk = made_up.walk("encoder")
    walk["rows"] = walk["columns"] = [HOSTILE, *walk["rows"][1:]]
    beams = made_up.beams()
    beams["result"][0]["text"] = beams["steps"][0]["candidates"][0]["text"] = HOSTILE
    page = opened(explanation, [walk], beams).page
    assert page.locator("h1").text_content() == HOSTILE
    assert page.locator("button.word .text").first.text_content() == HOSTILE
    for tab in page.get_by_role("tab").all():
        tab.click()
    assert page.get_by_role("cell", name=HOSTILE, exact=True).count() == 1
    assert page.locator("img").count() == 0


def test_a_model_without_self_attention_shows_its_cross_attention(opened) -> None:
    explanation: Any = made_up.explanation() | {"architecture": "recurrent"}
    for table in ("attention", "by_word", "heads"):
        explanation[table] = {"encoder": [], "decoder": [], "cross": [explanation[table]["cross"][0][:1]]}
    page = opened(explanation, [], {}).page
    assert page.locator("h3").all_text_contents() == ["Cross-attention"]
    word(page, "Translation", "gato").click()
    reading = page.get_by_role("status").text_content()
    assert reading.startswith("To write gato (probability .61) the decoder, having read El, looked at ")
    assert shares(page, "Source sentence") == explanation["by_word"]["cross"][0][0][1]
    word(page, "Source sentence", "cat").click()
    assert page.get_by_role("status").text_content().startswith("cat is looked at by ")
    assert page.locator("#steps").count() == 0


@pytest.mark.parametrize(("encoder", "decoder", "opening"), [(4, 1, "1"), (1, 4, "1"), (2, 4, "2"), (4, 3, "2")])
def test_it_opens_on_a_layer_that_every_stack_has(opened, encoder: int, decoder: int, opening: str) -> None:
    explanation = made_up.explanation()
    for table in ("attention", "by_word", "heads"):
        for part, count in (("encoder", encoder), ("decoder", decoder), ("cross", decoder)):
            explanation[table][part] = (explanation[table][part] * 2)[:count]
    page = opened(explanation, [], {}).page
    layer = page.get_by_label("Layer")
    assert layer.evaluate("list => list.selectedOptions[0].textContent") == opening
    assert page.locator(".none").count() == 0
    layer.select_option(index=max(encoder, decoder) - 1)
    assert "This part has no layer 4; its last layer is " in page.locator(".none").first.text_content()


def test_a_model_without_attention_says_so(opened) -> None:
    explanation: Any = made_up.explanation() | {"architecture": "recurrent"}
    for table in ("attention", "by_word", "heads"):
        explanation[table] = {"encoder": [], "decoder": [], "cross": []}
    page = opened(explanation, [], made_up.beams()).page
    assert page.locator("#attention").text_content().startswith("This model has no attention")
    assert page.locator(".beams").count() == 1


def test_a_decoder_that_looks_ahead_is_not_called_masked(opened) -> None:
    explanation = made_up.explanation()
    explanation["by_word"]["decoder"] = explanation["by_word"]["cross"]
    explanation["attention"]["decoder"] = explanation["attention"]["cross"]
    page = opened(explanation, [], {}).page
    assert page.locator("h3").all_text_contents()[2] == "Decoder self-attention without mask"
    page.get_by_label("Head", exact=True).select_option(label="1")
    word(page, "Translation", "El").click()
    assert shares(page, "Translation") == [*explanation["by_word"]["decoder"][0][0][0], 0]


def test_served_as_modules_it_keeps_what_was_picked(served) -> None:
    """As a server's page uses it, which shows one explanation after another in one element."""
    show = """async (explanation) => {
      const { showAttention } = await import("/viewer/attention.js");
      showAttention(document.getElementById("place"), explanation);
    }"""
    served.evaluate(show, EXPLANATION)
    served.get_by_label("Layer").select_option(label="2")
    served.get_by_label("Head", exact=True).select_option(label="2")
    served.evaluate(show, made_up.explanation(source="Other"))
    assert served.get_by_label("Layer").input_value() == "1"
    assert served.get_by_label("Head", exact=True).input_value() == "1"
    smaller = made_up.explanation()
    for table in ("attention", "by_word", "heads"):
        smaller[table] = {part: [stack[0][:1]] for part, stack in smaller[table].items()}
    served.evaluate(show, smaller)
    assert served.get_by_label("Head", exact=True).input_value() == "mean"
    assert served.locator("table.heatmap").count() == 3
