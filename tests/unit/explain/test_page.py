"""The page is one file that runs only its own script, for any text."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from seq2seq.explain.page import write_page

HOSTILE = "<img src=x onerror=alert(1)></script><!-- $title & \u2028 '\""


class Reader(HTMLParser):
    """Collects elements, and texts by id, type or tag."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.texts: dict[str, str] = {}
        self.inside = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = dict(attrs).get("id") or dict(attrs).get("type") or tag

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        self.texts[self.inside] = self.texts.get(self.inside, "") + data


@pytest.fixture
def page() -> Reader:
    explanation = {"source": HOSTILE, "target": HOSTILE}
    return Reader(write_page({"explanation": explanation, "walks": [], "beams": {"steps": []}}))


def test_hostile_text_creates_no_element_and_stays_unchanged(page: Reader) -> None:
    tags = [tag for tag, _ in page.elements]
    assert "img" not in tags
    assert tags.count("script") == 2
    assert page.texts["title"] == f"Attention: {HOSTILE}"
    data = json.loads(page.texts["data"])
    assert data == {"explanation": {"source": HOSTILE, "target": HOSTILE}, "walks": [], "beams": {"steps": []}}


def test_the_policy_allows_its_own_script_and_styles_only(page: Reader) -> None:
    policy = next(attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))

    def named(content: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == named(page.texts["module"])
    assert rules["style-src"] == named(page.texts["style"])
    assert rules["base-uri"] == rules["form-action"] == "'none'"


def test_the_page_fetches_nothing_and_turns_no_text_into_html(page: Reader) -> None:
    assert not [name for _, attributes in page.elements for name in attributes if name in ("src", "href", "style")]
    code = page.texts["module"] + page.texts["style"]
    assert not re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|fetch\(|@import|url\(", code
    )
    assert set(re.findall(r"https?://[\w./]+", code)) == {
        "http://www.w3.org/2000/svg",  # names, not addresses
        "http://www.w3.org/1998/Math/MathML",
    }


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        write_page({"explanation": {"source": "", "log_probs": [float("nan")]}})
