"""Pages are single files that run only their own script, if any, for any text, and hold what was found."""

import base64
import hashlib
import json
from html.parser import HTMLParser

import pytest

from seq2seq.apps.explain.analysis import write_analysis_page
from seq2seq.apps.explain.page import write_page
from seq2seq.evaluation.error_analysis import Translated, analyse

HOSTILE = "<img src=x onerror=alert(1)></script></style></details><!-- $title & \u2028 '\""


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


@pytest.fixture(scope="module")
def analysis_page() -> Reader:
    texts = [f"{HOSTILE} muy"], [f"{HOSTILE} muy muy"], [f"{HOSTILE} muy"]
    analysis = analyse([Translated(HOSTILE, *texts), Translated("b", *texts)], "en", HOSTILE, {"x": 1})
    return Reader(write_analysis_page(analysis, [HOSTILE, "b"]))


def test_hostile_text_creates_no_element_and_stays_unchanged(page: Reader, analysis_page: Reader) -> None:
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 2
    assert page.texts["title"] == f"Attention: {HOSTILE}"
    data = json.loads(page.texts["data"])
    assert data == {"explanation": {"source": HOSTILE, "target": HOSTILE}, "walks": [], "beams": {"steps": []}}
    others = [tag for tag, _ in analysis_page.elements]
    assert not {*tags, *others} & {"img", "link", "a", "iframe"}
    assert "script" not in others
    text = "".join(text for name, text in analysis_page.texts.items() if name != "style")
    for part in (f"Analysis: {HOSTILE}, b", f"{HOSTILE} muy muy", f"not for {HOSTILE}", f"line {HOSTILE}:1 · chrF++"):
        assert part in text


@pytest.mark.parametrize("name", ["page", "analysis_page"])
def test_the_policy_allows_its_own_script_and_styles_only(name: str, request: pytest.FixtureRequest) -> None:
    page: Reader = request.getfixturevalue(name)
    policy = next(attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))

    def named(content: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

    assert rules.pop("style-src") == named(page.texts["style"])
    assert rules.pop("script-src") == (named(page.texts["module"]) if name == "page" else "'none'")
    assert rules == dict.fromkeys(("default-src", "base-uri", "form-action"), "'none'")
    assert not [name for _, attributes in page.elements for name in attributes if name in ("src", "href", "style")]


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        write_page({"explanation": {"source": "", "log_probs": [float("nan")]}})


def test_every_score_has_a_bar_of_its_length() -> None:
    texts = ["el gato ve la bola"], ["el gato ve la bola azul"], ["el gato ve la bola"]
    analysis = analyse([Translated("a", *texts)])
    (group,) = analysis.groups["length"]
    elements = Reader(write_analysis_page(analysis, ["a"])).elements
    widths = [attributes["width"] for tag, attributes in elements if attributes.get("class") == "part"]
    assert widths == [f"{group.bleu:.1f}", f"{group.chrf:.1f}"]
