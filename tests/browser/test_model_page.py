"""A model in one page: what a browser computes is what Python computes with the same weights."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.browser import ASK
from seq2seq.apps.explain import model_page
from seq2seq.apps.explain.interventions import Interventions
from seq2seq.apps.explain.model_page import export_html, quantised
from seq2seq.apps.explain.page import assemble
from seq2seq.model import attention
from seq2seq.model.build import build_model
from seq2seq.model.transformer import Transformer
from seq2seq.settings.bundle import BundleConfig
from seq2seq.settings.data import TokenizerConfig
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import train_tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.bundle import Bundle, load_bundle, save_bundle
from seq2seq.translate.translator import Translator
from tests.browser.watched import Watched

pytestmark = pytest.mark.browser

GOLDEN = Path(__file__).parents[1] / "golden" / "bundle"
SENTENCES = ["The cat sees the milk.", "The black cat drank the milk.", "She sees an old house."]
ODD = [
    "naïve café 🎉",
    "<script>alert(1)</script>",
    'a "b" & c',
    "日本",
    "a\u200bb\u00a0c  d",
    "%s ▁ e\u0301",
    "x" * 60,
    "The <0x41> cat <0x0A>",
    "日本🎉🎉",
]
CODES = {"source": "en", "target": "es", "alternatives": 0}

Ask = Callable[[str, dict[str, Any]], Any]


@pytest.fixture
def opened_model(contexts: Callable[..., Any], tmp_path: Path) -> Callable[..., Watched]:
    """Export a bundle and open its page: opened_model(folder, text)."""

    def call(folder: Path = GOLDEN, text: str = "", **options: Any) -> Watched:
        file = tmp_path / "model.html"
        export_html(folder, file)
        return Watched(contexts(offline=True, **options).new_page(), f"{file.as_uri()}{'#' if text else ''}{text}")

    return call


def asker(watched: Watched) -> Ask:
    return lambda path, values: watched.page.evaluate(ASK, [path, values])


def same_weights(folder: Path) -> Translator:
    """Return a translator with the weights of the page."""
    bundle = load_bundle(folder)
    assert isinstance(bundle.model, Transformer)
    search = replace(bundle.config.search, repair=False)
    return Translator(quantised(bundle.model), bundle.tokenizer, search=search, trained_length=None)


def made(folder: Path, kind: str, *, byte_fallback: bool = True, **changes: Any) -> Path:
    """An untrained model's bundle with a vocabulary of its own."""
    texts = [
        f"{a} {b} {c}." for a in ("The cat", "El gato", "<2es> Ella") for b in ("sees", "ve") for c in ("milk", "leche")
    ]
    tokenizer = train_tokenizer(
        texts,
        TokenizerConfig(
            type=kind, vocab_size=280 if byte_fallback else 25, byte_fallback=byte_fallback, user_symbols=["<2es>"]
        ),
    )
    sizes = {"d_model": 24, "num_heads": 3, "d_ff": 40, "num_encoder_layers": 2, "num_decoder_layers": 2}
    config = ModelConfig(**{**sizes, **changes})
    torch.manual_seed(5)
    model = build_model(config, tokenizer.vocab_size)
    for parameter in model.parameters():
        parameter.data.mul_(3).add_(0.01)  # wide scores, so that rounding decides nothing
    search = SearchConfig(beam=3, max_length_ratio=0.5, max_length_offset=4)
    save_bundle(folder, Bundle(model, Tokenizers.joint(tokenizer), BundleConfig(config, search)), card="")
    return folder


def differences(found: Any, expected: Any, at: str = "") -> list[str]:
    """Return where JSON values differ by more than the last digits of numbers."""
    if isinstance(expected, dict) and found.keys() == expected.keys():
        return [line for key in expected for line in differences(found[key], expected[key], f"{at}.{key}")]
    if isinstance(expected, list) and len(found) == len(expected):
        pairs = enumerate(zip(found, expected, strict=True))
        return [line for index, (ours, theirs) in pairs for line in differences(ours, theirs, f"{at}[{index}]")]
    if isinstance(expected, float) and found is not None and abs(found - expected) <= 3e-4 * max(1.0, abs(expected)):
        return []
    return [] if found == expected else [f"{at}: {found!r:.60} instead of {expected!r:.60}"]


def explained(translator: Translator, source: str, target: str | None = None, **changes: Any) -> dict[str, Any]:
    """Return what Python says of a sentence, as the page's worker says it."""
    interventions = Interventions(**changes) if changes else None
    data = assemble(translator, source, target, interventions, head=(0, 1)).data
    for part, name in (("explanation", "version"), ("explanation", "alignment"), ("beams", "source")):
        del data[part][name]  # which no page shows
    return json.loads(json.dumps({**data.pop("explanation"), **data}))


def test_the_page_translates_what_its_address_has_and_shows_all_views(opened_model: Callable[..., Watched]) -> None:
    watched = opened_model(text="The%20cat%20sees%20the%20milk.")
    page = watched.page
    page.locator("#target").filter(has_text="El gato ve la leche.").wait_for()
    page.wait_for_selector("#attention .diagram")
    assert watched.text("h1") == "English to Spanish"
    page.click("#open-steps")
    page.get_by_role("tab", name="Result").wait_for()
    page.get_by_label("Why ve and not").fill("come")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_selector(".contrasted")
    assert page.locator(".contrasted tbody tr").count() == 5
    assert page.locator(".contrasted caption").inner_text().startswith("ve (")
    page.get_by_role("button", name="Word order on").click()
    page.get_by_text("Without the order of words").wait_for()
    watched.write('Two 🎉 <b>words</b> & "quotes"')
    page.wait_for_selector("#attention:not([aria-busy])")
    assert watched.faults == []
    assert page.locator("#warning").text_content() == ""
    assert [url for url in watched.requests if not url.startswith(("file:", "blob:"))] == []
    assert watched.serious_faults() == []


def test_opening_the_steps_on_a_phone_leaves_the_page_where_it_is(opened_model: Callable[..., Watched]) -> None:
    words = "The%20black%20cat%20drank%20the%20milk%20of%20the%20old%20woman%20who%20sees%20a%20red%20ball."
    page = opened_model(text=words, width=390, is_mobile=True).page
    page.wait_for_selector("#attention .diagram[data-flow=columns]")
    page.get_by_label("Head", exact=True).first.select_option(label="2")  # the page asks for the steps of this head
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    before = page.evaluate("scrollY")
    page.locator("#open-steps").tap()
    page.get_by_role("tab", name="Result").wait_for()
    assert page.evaluate("scrollY") == before > 0


def test_the_address_has_the_text_that_is_shown(opened_model: Callable[..., Watched]) -> None:
    watched = opened_model(text="The%20cat%20sees%20the%20milk.")
    watched.page.locator("#target").filter(has_text="El gato ve la leche.").wait_for()
    watched.write("The dog.")
    watched.page.wait_for_url("**#The%20dog.")


def test_translations_and_explanations_are_pythons(opened_model: Callable[..., Watched]) -> None:
    ask, translator = asker(opened_model()), same_weights(GOLDEN)
    find = translator.tokenizer.find_strings  # which a page does not keep
    texts = [text for text in (*SENTENCES, *ODD) if not find(text).strings]
    expected = translator.translate(texts)
    assert [ask("translate", {"q": text, **CODES})["translatedText"] for text in texts] == expected
    head = {"layer": 0, "head": 1}
    for text in texts:
        ours, theirs = ask("explain", {"source": text, **head}), explained(translator, text)
        if text in ODD:  # the model knows nothing like it: candidates of a step are nearly equal, and rounding decides
            ours["beams"] = theirs["beams"] = {}
        assert differences(ours, theirs) == []
    many: dict[str, Any] = {"without": ["cross.1.head.1", "source.2", "positions"], "average": ["encoder.1.head.2"]}
    for target, changes in (("La bola roja.", {**many, "temperature": 2.0}), (None, {"without": ["mask"]})):
        found = ask("explain", {"source": SENTENCES[0], "target": target, **head, **changes})
        assert differences(found, explained(translator, SENTENCES[0], target, **changes)) == []
    compared = {"source": SENTENCES[0], "word": 2, "other": "roja"}
    for target, without in ((None, ["cross.1.head.2", "source.1"]), ("El gato ve.", ["cross.1"])):  # no source at all
        data = assemble(translator, SENTENCES[0], target, Interventions(without), instead=(2, "roja")).data
        found = ask("explain", {**compared, "target": target, "without": without})
        assert differences(found["contrast"], data["contrast"]) == []


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("unigram", {"activation": "gelu", "norm": "rmsnorm", "norm_position": "pre", "positions": "sinusoidal"}),
        ("bpe", {"activation": "swish", "positions": "rotary", "bias": False, "scale_embedding": False}),
        ("bpe", {"activation": "swiglu", "positions": "sinusoidal", "norm_position": "pre", "byte_fallback": False}),
        ("unigram", {"byte_fallback": False}),
    ],
)
def test_every_style_and_vocabulary_is_computed(opened_model, tmp_path, kind, changes):
    folder = made(tmp_path / "made", kind, **changes)
    ask, translator = asker(opened_model(folder)), same_weights(folder)
    assert ask("check", {}) == {"differs": False}
    find = translator.tokenizer.find_strings
    for text in (text for text in ("The cat sees milk.", "<2es> Ella ve", *ODD) if not find(text).strings):
        found = ask("explain", {"source": text, "layer": 0, "head": 1})
        assert differences(found, explained(translator, text)) == []


def test_several_sentences_and_lines_keep_the_space_between_them(opened_model: Callable[..., Watched]) -> None:
    ask = asker(opened_model())
    answer = ask(
        "translate",
        {"q": "The cat sees the milk. The cat sees the milk.\n\nThe cat sees the milk.", **CODES, "alternatives": 1},
    )
    assert answer["translatedText"] == "El gato ve la leche. El gato ve la leche.\n\nEl gato ve la leche."
    assert answer["sentences"] == ["The cat sees the milk."] * 3


def test_a_text_that_cannot_be_shown_is_refused_in_one_line(opened_model: Callable[..., Watched]) -> None:
    watched = opened_model()
    long = "cat " * 120
    with pytest.raises(Exception, match="attention is shown for at most 99: shorten it"):
        asker(watched)("explain", {"source": long, "layer": 0, "head": 0})
    watched.write("The cat sees the milk.")
    assert watched.text("#target") == "El gato ve la leche."


def test_abbreviations_and_initials_end_no_sentence_and_long_sentences_are_cut(opened_model):
    ask = asker(opened_model())

    def sentences(text: str) -> list[str]:
        return ask("translate", {"q": text, **CODES, "source": "en_XX"})["sentences"]

    assert sentences("Mr. Hill left. J. R. Smith did, too.") == ["Mr. Hill left.", "J. R. Smith did, too."]
    assert sentences('"Why?" he asked. 1. Go.') == ['"Why?" he asked.', "1. Go."]
    tokenizer = load_bundle(GOLDEN).tokenizer.source
    long = sentences(", ".join(["the cat sees the milk"] * 80))
    assert len(long) > 1
    assert max(len(ids) for ids in tokenizer.encode(long)) <= 200


@pytest.mark.parametrize("changed", ["Python", "JavaScript"])
def test_a_page_says_that_it_computes_something_else_than_the_model(opened_model, monkeypatch, changed):
    weights, script = attention.attention_weights, model_page.script
    if changed == "Python":
        monkeypatch.setattr(attention, "attention_weights", lambda queries, *rest: weights(1.5 * queries, *rest))
    else:
        edit = ("sum / Math.sqrt(channels)", "sum / channels")
        monkeypatch.setattr(model_page, "script", lambda *names: script(*names).replace(*edit))
    watched = opened_model()
    watched.page.get_by_role("alert").filter(has_text="This page computes something else than the model").wait_for()
    assert watched.serious_faults() == []
