"""`seq2seq attend`, as a user calls it."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from matplotlib.pyplot import imread as read_png

from seq2seq.bundle import Bundle, BundleConfig, save_bundle
from seq2seq.cli import app
from seq2seq.model.build import build_model
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.vocabulary import Tokenizers

GOLDEN = Path(__file__).parents[2] / "golden" / "bundle"
TEXT = "The cat sees the milk."


@pytest.fixture
def attend(run, tmp_path):
    def call(*more: object, text: str = TEXT, model: Path = GOLDEN):
        given = ("attend", text, "--model", model, "--device", "cpu", "--output", tmp_path / "deep" / "out")
        return run(*given, *more, command=(), application=app), tmp_path / "deep" / "out"

    return call


def data_of(page: str):
    """What is embedded in the page."""
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            self.is_data = dict(attrs).get("id") == "data"

        def handle_data(self, data):
            if getattr(self, "is_data", False):
                found.append(data)
                self.is_data = False

    Reader().feed(page)
    return json.loads(found[0])


def test_a_sentence_gives_a_page_a_picture_and_numbers(attend):
    (status, out, err), folder = attend()
    assert (status, err) == (0, "")
    names = ["attention.html", "attention.png", "alignment.png", "attention.json"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    small, large = (read_png(folder / name) for name in ("alignment.png", "attention.png"))
    assert small.shape[0] < large.shape[0] / 2
    assert (small[200:300, :300] != 1).any()
    plain = json.loads((folder / "attention.json").read_text())
    assert (plain["source"], plain["translated"]) == (TEXT, True)
    lines = out.splitlines()
    assert lines[:2] == [TEXT, f"→ {plain['target']}"]
    source, target = ([word["text"] for word in plain["words"][side]] for side in ("source", "target"))
    told = [tuple(re.split(r"\s+←\s+", line.strip())) for line in lines if "←" in line]
    assert told == [(target[j], source[i]) for i, j in plain["alignment"]]
    assert [line.split()[0] for line in lines[-4:]] == [str(folder / name) for name in names]


def test_the_page_holds_the_numbers_the_walks_and_the_search(attend):
    _, folder = attend()
    data = data_of((folder / "attention.html").read_text())
    assert data["explanation"] == json.loads((folder / "attention.json").read_text())
    assert [(walk["part"], walk["head"]) for walk in data["walks"]] == [
        (part, head) for part in ("encoder", "decoder", "cross") for head in range(4)
    ]
    for walk in data["walks"]:
        side = "source" if walk["part"] == "encoder" else "target_in"
        assert walk["rows"] == data["explanation"]["pieces"][side]
    assert data["beams"]["result"][0]["text"] == data["explanation"]["target"]


def test_a_given_translation_is_explained_without_a_search(attend):
    (status, out, _), folder = attend("--target", "El gato ve la leche.")
    data = data_of((folder / "attention.html").read_text())
    assert status == 0
    assert "→ El gato ve la leche." in out
    assert (data["explanation"]["translated"], data["beams"]) == (False, {})


def test_what_is_switched_off_is_shown_beside_what_the_model_does_with_it(attend):
    (status, out, err), folder = attend("--without", "source.2", "--without", "cross.1.head.2", "--average", "encoder")
    assert (status, err) == (0, "")
    plain = json.loads((folder / "attention.json").read_text())
    assert plain["interventions"] == {
        "without": ["source.2", "cross.1.head.2"],
        "average": ["encoder"],
        "temperature": 1.0,
    }
    assert all(row[1] == 0 for head in plain["by_word"]["cross"][0] for row in head)
    (_, usual, _), _ = attend()
    assert plain["unchanged"]["target"] == usual.splitlines()[1].removeprefix("→ ")
    scores = [line.split(" nats  ") for line in out.splitlines() if " nats  " in line]
    expected = [plain["unchanged"]["log_prob"], sum(plain["log_probs"])]
    assert [float(score) for score, _ in scores] == pytest.approx(expected, abs=0.01)
    assert [text.partition(": ")[2] for _, text in scores] == [plain["unchanged"]["target"], plain["target"]]


def test_the_softmax_is_more_even_at_a_higher_temperature(attend):
    def entropy(*more: object) -> float:
        _, folder = attend("--target", "El gato ve la leche.", *more)
        heads = json.loads((folder / "attention.json").read_text())["heads"]["cross"][0]
        return sum(head["entropy"] for head in heads)

    assert entropy("--softmax-temperature", 0.5) < entropy() < entropy("--softmax-temperature", 3)


def test_heads_are_ranked_in_a_list_a_picture_and_numbers(attend):
    (status, out, err), folder = attend("--target", "El gato ve la leche.", "--rank-heads")
    assert (status, err) == (0, "")
    ranking = json.loads((folder / "attention.json").read_text())["ranking"]
    assert len(ranking) == 3 * 4
    best = ranking[0]
    assert (
        f"  {best['loss']:+.3f}  {best['part']}.1.head.{best['head'] + 1}"
        == out.splitlines()[out.splitlines().index("Growth of the loss without each head (nats per token):") + 1]
    )
    assert (read_png(folder / "heads.png")[100:, :300] != 1).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--without", "encoder.9"), "encoder.9: this model has layers 1 to 1 there"),
        (("--without", "head"), "'head' names nothing to change: give encoder.2.head.3, decoder.1, cross, mask, "),
        (("--without", "source.6"), "source.6: the sentence has words 1 to 5"),
        (("--average", "positions"), "'positions' names nothing to change"),
        (("--softmax-temperature", 0), "the temperature 0 must be from 0.001 to 1000"),
    ],
)
def test_what_the_model_does_not_have_cannot_be_switched_off(attend, arguments, message):
    (status, out, err), folder = attend(*arguments)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"error: {message}")
    assert not folder.exists()


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        ((), " ", "error: the sentence is empty: give one with words"),
        (("--target", ""), TEXT, "error: the target is empty: give one with words"),
        ((), "leche " * 100, "error: the sentence has "),
    ],
)
def test_what_cannot_be_explained_is_told_in_one_line_and_nothing_is_written(attend, arguments, text, message):
    (status, out, err), folder = attend(*arguments, text=text)
    assert status == 1
    assert err.startswith(message)
    assert (out, folder.exists()) == ("", False)


@pytest.fixture
def recurrent(tokenizer: Tokenizer, tmp_path: Path):
    """An untrained recurrent model's bundle, with attention or without."""

    def call(attention: str) -> Path:
        sizes: dict[str, Any] = {"d_model": 16, "num_encoder_layers": 1, "num_decoder_layers": 1}
        config = ModelConfig(architecture="recurrent", attention=attention, **sizes)
        bundle = Bundle(
            build_model(config, tokenizer.vocab_size), Tokenizers.joint(tokenizer), BundleConfig(config, SearchConfig())
        )
        save_bundle(tmp_path / "model", bundle, card="untrained")
        return tmp_path / "model"

    return call


def test_a_recurrent_model_shows_the_one_attention_that_it_has(attend, recurrent):
    (status, _, err), folder = attend("--target", "El gato ve.", model=recurrent("additive"))
    assert (status, err) == (0, "")
    data = data_of((folder / "attention.html").read_text())
    plain = data["explanation"]
    assert (plain["architecture"], data["walks"]) == ("recurrent", [])
    assert (plain["attention"]["encoder"], plain["attention"]["decoder"]) == ([], [])
    (((*rows,),),) = plain["attention"]["cross"]
    assert [sum(row) for row in rows] == pytest.approx([1] * len(rows), abs=0.002)
    assert len(rows) == len(plain["pieces"]["target_out"])
    assert (folder / "attention.png").stat().st_size > 1000
    assert (folder / "alignment.png").stat().st_size > 1000


def test_a_model_without_attention_has_none_to_show(attend, recurrent):
    (status, _, err), folder = attend("--target", "El gato ve.", model=recurrent("none"))
    assert status == 1
    assert err.startswith("error: this model has no attention to show: train one with it (model.attention=additive)")
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_is_told(attend, tmp_path):
    (tmp_path / "deep").write_text("in the way")
    (status, _, err), folder = attend()
    assert status == 1
    assert err.startswith(f"error: cannot write to {folder}: ")


def test_a_file_in_the_folders_place_is_told_and_stays(attend, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "out").write_text("in the way")
    (status, _, err), folder = attend()
    assert status == 1
    assert err == f"error: --output {folder} is a file: name a folder\n"
    assert folder.read_text() == "in the way"
