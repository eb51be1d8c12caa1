"""Pages are single files that run only their own script, if any, for any text, and hold what was found."""

import base64
import hashlib
import io
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import sentencepiece
import torch

from seq2seq.apps.explain.analysis import write_analysis_page
from seq2seq.apps.explain.explanation import explain
from seq2seq.apps.explain.interventions import Interventions
from seq2seq.apps.explain.model_page import export_html, quantise, require_plain
from seq2seq.apps.explain.page import assemble, write_page
from seq2seq.apps.explain.steps import beam_steps
from seq2seq.evaluation.error_analysis import Translated, analyse
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.bundle import load_bundle
from seq2seq.translate.translator import Translator
from tests.refusing import refuses

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


SENTENCE, TARGET = "The black cat drank the milk.", "El gato negro bebió la leche."


def heads_of(data: dict) -> list[tuple[str, int, int]]:
    return [(walk["part"], walk["layer"], walk["head"]) for walk in data["walks"]]


@pytest.mark.slow
def test_data_has_the_explanation_the_first_heads_and_the_search(untrained: Translator) -> None:
    assembly = assemble(untrained, SENTENCE)
    assert assembly.translator is untrained
    assert list(assembly.data) == ["explanation", "walks", "beams"]
    assert assembly.data["explanation"] == explain(untrained, SENTENCE).to_plain() == assembly.explanation.to_plain()
    parts = ("encoder", "decoder", "cross")  # the first of two decoder layers aligns
    assert heads_of(assembly.data) == [(part, 0, head) for part in parts for head in range(3)]
    assert assembly.data["beams"] == beam_steps(untrained, SENTENCE)


@pytest.mark.slow
def test_one_head_is_shown_in_every_part_that_has_its_layer(untrained: Translator) -> None:
    data = assemble(untrained, SENTENCE, TARGET, head=(1, 2), with_beams=False).data
    assert heads_of(data) == [("decoder", 1, 2), ("cross", 1, 2)]
    assert data["beams"] == {}
    refuses(r"layer=2", assemble, untrained, SENTENCE, TARGET, head=(2, 0))


@pytest.mark.slow
def test_a_search_without_steps_leaves_the_beams_empty(golden: Translator) -> None:
    data = assemble(golden, SENTENCE, settings=SearchConfig(mbr=3)).data
    assert data["beams"] == {}
    assert data["explanation"]["translated"]


@pytest.mark.slow
def test_without_the_mask_maps_and_scores_change_and_the_translation_does_not(golden: Translator) -> None:
    assembly = assemble(golden, SENTENCE, None, Interventions(without=["mask"]))
    plain = assembly.data["explanation"]
    assert plain["interventions"] == {"without": ["mask"], "average": (), "temperature": 1.0}
    assert plain["target"] == plain["unchanged"]["target"]
    assert sum(assembly.explanation.log_probs) != pytest.approx(plain["unchanged"]["log_prob"], abs=0.1)
    assert assembly.explanation.attention["decoder"][0].triu(1).sum() > 0
    assert assembly.translator is not golden


def test_a_row_of_zeros_stays_zero() -> None:
    numbers, scales = quantise(torch.tensor([[0.0, 0.0], [-2.0, 1.0]]))
    assert numbers.tolist() == [[0, 0], [-127, 64]]
    assert (scales > 0).all()


def test_what_a_page_cannot_compute_is_refused(bundle_folder: Path) -> None:
    bundle = load_bundle(bundle_folder)
    config, model = bundle.config, io.BytesIO()
    search = replace(config, search=replace(config.search, no_repeat_ngram=3))
    message = r"^search.no_repeat_ngram=3 is stored in the bundle, and pages know plain beam search"
    refuses(message, require_plain, replace(bundle, config=search))
    ablation = replace(config, model=replace(config.model, relevance="unscaled"))
    refuses(r"^model.relevance=unscaled: a page computes no ablations", require_plain, replace(bundle, config=ablation))
    sentencepiece.SentencePieceTrainer.train(  # as `spm_train` does by itself: Unicode's form NFKC
        sentence_iterator=iter([SENTENCE, TARGET]), model_writer=model, vocab_size=28, pad_id=0, unk_id=1, bos_id=2,
        eos_id=3, minloglevel=2,
    )  # fmt: skip
    other = Tokenizers.joint(Tokenizer(model.getvalue()))
    message = "the vocabulary was made by another program, with rules of its own"
    refuses(message, require_plain, replace(bundle, tokenizer=other))


def test_a_page_is_a_new_file_that_ends_in_html(bundle_folder: Path, tmp_path: Path) -> None:
    refuses(r"does not end in .html: give --output NAME.html", export_html, bundle_folder, tmp_path / "model.txt")
    (tmp_path / "model.html").write_text("mine")
    refuses(r"model.html is there already: give --output a", export_html, bundle_folder, tmp_path / "model.html")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]
