"""The step-by-step view in a real browser: its numbers are the model's, and it goes by keyboard."""

import math
import re
from itertools import chain
from typing import Any

import pytest

from tests.browser import made_up

pytestmark = pytest.mark.browser

PARTS = ("encoder", "decoder", "cross")
WALKS = {part: made_up.walk(part) for part in PARTS}
STEPS = ["Embed", "Q, K, V", "QKᵀ", "÷ √c", "Mask", "Softmax", "× V", "Join"]


@pytest.fixture
def page(opened):
    return opened(made_up.explanation(), list(WALKS.values()), made_up.beams()).page


def number(text: str) -> float:
    return float(text.replace("−", "-").strip("()"))


def table(page: Any, name: str) -> list[list[str]]:
    """The cells of the matrix of that name."""
    rows = page.get_by_role("group", name=re.compile(f"^{re.escape(name)}, ")).locator("tbody tr")
    return [row.locator("td").all_text_contents() for row in rows.all()]


def same(cells: list[list[str]], values: list, cut: int | None = None) -> bool:
    """Whether cells are the values to two places, cut and an ellipsis after them if that is given."""
    if cut is not None and not all(row.pop() == "…" for row in cells):
        return False
    pairs = zip(chain.from_iterable(cells), (value for row in values for value in row[:cut]), strict=True)
    return all(text == "−∞" if value is None else abs(number(text) - value) < 0.0051 for text, value in pairs)


def follow(page: Any, part: str, row: int, column: int) -> dict:
    page.get_by_label("Attention", exact=True).select_option(index=PARTS.index(part))
    page.get_by_label("Follow the query of").select_option(index=row)
    page.get_by_label("and the key of").select_option(index=column)
    return WALKS[part]


def close(number: float, other: float) -> bool:
    return math.isclose(number, other, abs_tol=0.03)


def test_masked_scores_of_the_encoder_are_of_pieces_that_are_switched_off(opened) -> None:
    walk = made_up.walk("encoder")
    for mask, scores in zip(walk["mask"], walk["scaled"], strict=True):
        mask[1], scores[1] = False, None
    page = opened(made_up.explanation(), [walk, made_up.walk("decoder")], made_up.beams()).page
    page.get_by_role("tab", name="Mask").click()
    assert "pieces that are switched off" in page.locator(".walk").inner_text()
    assert "looks ahead" not in page.locator(".walk").inner_text()
    follow(page, "decoder", 2, 6)
    assert "looks ahead" in page.locator(".walk").inner_text()
    page.get_by_role("tab", name="Softmax").click()
    assert page.locator(".walk .worked").text_content() == "▁gato asks ió: masked, so its share is 0"


def test_a_query_of_cross_attention_names_the_piece_that_it_writes_and_the_clearest_one_is_first(page) -> None:
    page.get_by_label("Attention", exact=True).select_option(index=PARTS.index("cross"))
    walk, query = WALKS["cross"], page.get_by_label("Follow the query of")
    names = query.locator("option").all_inner_texts()
    assert names == [
        f"{piece} → {after}" for piece, after in zip(walk["rows"], [*walk["rows"][1:], "</s>"], strict=True)
    ]
    words = [
        [len(re.findall(r"[^\W\d_]", name)) > 1 and name[0] != "<" for name in walk[side]]
        for side in ("rows", "columns")
    ]
    shares = {
        (i, j): weight
        for i, row in enumerate(walk["weights"])
        for j, weight in enumerate(row)
        if words[0][i] and words[1][j]
    }
    row, column = max(shares, key=lambda at: shares[at])
    assert (query.input_value(), page.get_by_label("and the key of").input_value()) == (str(row), str(column))


def test_all_steps_by_keyboard_and_back(page) -> None:
    tabs = page.get_by_role("tablist", name="Steps of attention").get_by_role("tab")
    tabs.first.focus()
    titles = []
    for name in STEPS:
        chosen = page.locator(".walk [aria-selected=true]")
        assert chosen.locator("span").nth(1).text_content() == name
        assert chosen.evaluate("tab => tab === document.activeElement")
        assert page.locator(".walk math").count() >= 1
        titles.append(page.locator(".walk .step h3").text_content())
        page.keyboard.press("ArrowRight")
    assert len(set(titles)) == len(STEPS)
    assert page.locator(".walk .place").text_content() == "8 of 8"
    page.keyboard.press("ArrowLeft")
    page.locator(".walk .next").focus()
    page.keyboard.press("Enter")
    assert page.locator(".walk .next").is_disabled()
    assert page.locator(".walk .back").evaluate("button => button === document.activeElement")


def test_the_matrices_are_the_walks_own(page) -> None:
    tabs = page.get_by_role("tablist", name="Steps of attention").get_by_role("tab")
    expected = {
        0: {"E": "embedding", "P": "position", "X": "input"},
        1: {"Q": "queries", "K": "keys", "V": "values"},
        2: {"S": "scores"},
        4: {"S′, masked": "scaled"},
        5: {"A": "weights"},
        6: {"A": "weights", "V": "values", "Z": "mixture"},
        7: {"Z, all heads": "joined", "O": "output"},
    }
    for part in PARTS:
        walk = follow(page, part, 3, 1)
        for step, names in expected.items():
            tabs.nth(step).click()
            for name, key in names.items():
                is_wide = key in ("embedding", "position", "input", "joined", "output")
                assert same(table(page, name), walk[key], 5 if is_wide else None), (part, name)


@pytest.mark.parametrize(("part", "row", "column"), [("encoder", 2, 5), ("decoder", 4, 1), ("cross", 3, 6)])
def test_the_numbers_worked_out_come_out(page, part: str, row: int, column: int) -> None:
    walk = follow(page, part, row, column)

    def worked(step: int) -> str:
        page.get_by_role("tablist", name="Steps of attention").get_by_role("tab").nth(step).click()
        return page.locator(".walk .worked").text_content()

    if part != "cross":  # whose queries have gone through the decoder's self-attention
        embedded, position, total = map(number, re.findall(r": (\S+) \+ (\S+) = (\S+)$", worked(0))[0])
        assert close(embedded + position, total)
    terms = re.findall(r"(\(?[−\d.]+\)?) × (\(?[−\d.]+\)?)", worked(2))
    assert [(number(q), number(k)) for q, k in terms] == [
        (pytest.approx(q, abs=0.0051), pytest.approx(k, abs=0.0051))
        for q, k in zip(walk["queries"][row][:3], walk["keys"][column][:3], strict=True)
    ]
    product = sum(q * k for q, k in zip(walk["queries"][row], walk["keys"][column], strict=True))
    assert close(number(worked(2).split(" = ")[1]), product)
    assert close(number(worked(3).split(" = ")[1]), product / math.sqrt(walk["channels"]))
    assert f"may look at {sum(walk['mask'][row])} of {len(walk['columns'])} pieces" in worked(4)
    power, total = map(number, re.findall(r"= (\S+) / (\S+) =", worked(5))[0])
    assert close(power / total, walk["weights"][row][column])
    assert close(number(worked(6).split(" = ")[1]), walk["mixture"][row][0])
    first = walk["head"] * walk["channels"]
    assert worked(7) == f"This head's numbers are channels {first + 1} to {first + walk['channels']}."


def test_a_click_on_a_cell_follows_it_and_a_list_keeps_the_keyboard(page) -> None:
    page.get_by_role("tablist", name="Steps of attention").get_by_role("tab").nth(2).click()
    page.get_by_role("group", name=re.compile("^S, ")).locator("tbody tr").nth(5).locator("td").nth(2).click()
    assert page.get_by_label("Follow the query of").input_value() == "5"
    assert page.get_by_label("and the key of").input_value() == "2"
    assert page.locator(".walk td.here").count() == 1
    query = page.get_by_label("Follow the query of")
    query.focus()
    page.keyboard.press("ArrowUp")
    assert query.input_value() == "4"
    assert query.evaluate("list => list === document.activeElement")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"position": None, "input": WALKS["encoder"]["embedding"]}, "turn queries and keys instead"),
        ({"layer": 1, "input": WALKS["encoder"]["output"]}, "Layer 2 sees what the layers below have made of it"),
        ({"input": WALKS["encoder"]["output"]}, "Normalised, it is X."),
    ],
)
def test_other_kinds_of_model(opened, change: dict, text: str) -> None:
    page = opened(made_up.explanation(), [WALKS["encoder"] | change], {}).page
    assert text in page.locator(".walk .told p").text_content()
    for tab in page.get_by_role("tab").all():
        tab.click()


def test_the_beams_grow_and_name_the_fate_of_every_candidate(page) -> None:
    beams = made_up.beams()
    tabs = page.get_by_role("tablist", name="Steps of the search").get_by_role("tab")
    tabs.first.focus()
    for index, step in enumerate(beams["steps"]):
        columns = page.locator(".tree .column:not([hidden])")
        assert columns.count() == index + 2  # the start is one
        assert columns.last.locator(".piece").all_text_contents() == [
            candidate["piece"] for candidate in step["candidates"]
        ]
        rows = page.locator(".candidates tbody tr")
        fates = [fate.split()[-1] for fate in rows.locator("td:last-child").all_text_contents()]
        assert fates == [candidate["fate"] for candidate in step["candidates"]]
        scores = rows.locator("td:nth-child(3)").all_text_contents()
        assert [number(text) for text in scores] == [candidate["score"] for candidate in step["candidates"]]
        page.keyboard.press("ArrowRight")
    assert page.locator(".candidates td:first-child").all_text_contents() == ["El gato", "El"]
    assert page.locator(".node.winner .piece").all_text_contents() == ["<s>", "▁El", "▁gato", "</s>"]
    assert page.locator(".place").last.text_content() == "4 of 4"


def test_the_next_walks_in_an_element_open_where_the_last_were(served) -> None:
    show = """async ([walks, beams]) => {
      const { showSteps } = await import("/viewer/steps.js");
      showSteps(document.getElementById("place"), walks, beams);
    }"""
    served.evaluate(show, [list(WALKS.values()), made_up.beams()])
    served.get_by_label("Attention", exact=True).select_option(index=2)
    served.get_by_role("tab", name="Mask").click()
    served.evaluate(show, [list(WALKS.values()), made_up.beams()])
    assert served.get_by_label("Attention", exact=True).input_value() == "2"
    assert served.locator(".walk [aria-selected=true]").text_content() == "5Mask"
    served.evaluate(show, [[made_up.walk(part, head=2) for part in PARTS], {}])
    assert served.get_by_label("Attention", exact=True).input_value() == "2"
    assert served.locator(".beams").count() == 0
    served.evaluate(show, [[WALKS["encoder"]], {}])
    assert served.get_by_label("Attention", exact=True).input_value() == "0"
