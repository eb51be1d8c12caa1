"""The page of an analysis runs no script, for any text, and holds what was found."""

import base64
import hashlib
from html.parser import HTMLParser

import pytest

from seq2seq.evaluation.analysis import Translated, analyse
from seq2seq.explain.analysis_page import write_analysis_page

HOSTILE = "<img src=x onerror=alert(1)></style></details><script>alert(2)</script><!-- $title & '\""


class Reader(HTMLParser):
    """Collects elements and all texts outside of the style sheet."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.styles, self.text, self.inside = "", "", ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside == "style":
            self.styles += data
        else:
            self.text += data


@pytest.fixture(scope="module")
def page() -> Reader:
    texts = [f"{HOSTILE} muy"], [f"{HOSTILE} muy muy"], [f"{HOSTILE} muy"]
    analysis = analyse([Translated(HOSTILE, *texts), Translated("b", *texts)], "en", HOSTILE, {"x": 1})
    return Reader(write_analysis_page(analysis, [HOSTILE, "b"]))


def test_hostile_text_creates_no_element_and_stays_unchanged(page: Reader) -> None:
    assert not {tag for tag, _ in page.elements} & {"img", "script", "link", "a", "iframe"}
    assert f"Analysis: {HOSTILE}, b" in page.text
    assert f"{HOSTILE} muy muy" in page.text
    assert f"not for {HOSTILE}" in page.text
    assert f"line {HOSTILE}:1 · chrF++" in page.text


def test_the_policy_allows_its_style_sheet_and_no_script(page: Reader) -> None:
    policy = next(attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    digest = base64.b64encode(hashlib.sha256(page.styles.encode()).digest()).decode()
    assert rules.pop("style-src") == f"'sha256-{digest}'"
    assert set(rules) == {"default-src", "script-src", "base-uri", "form-action"}
    assert set(rules.values()) == {"'none'"}
    assert not [name for _, attributes in page.elements for name in attributes if name in ("src", "href", "style")]


def test_every_score_has_a_bar_of_its_length(page: Reader) -> None:
    texts = ["el gato ve la bola"], ["el gato ve la bola azul"], ["el gato ve la bola"]
    analysis = analyse([Translated("a", *texts)])
    (group,) = analysis.groups["length"]
    elements = Reader(write_analysis_page(analysis, ["a"])).elements
    widths = [attributes["width"] for tag, attributes in elements if attributes.get("class") == "part"]
    assert widths == [f"{group.bleu:.1f}", f"{group.chrf:.1f}"]
