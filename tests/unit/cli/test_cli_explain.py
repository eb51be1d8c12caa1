"""`seq2seq attend`, as a user calls it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.pyplot import imread as read_png
from saved_runs import write_recurrent_bundle

from tests.unit.conftest import GOLDEN

pytestmark = pytest.mark.slow

TEXT = "The cat sees the milk."


@pytest.fixture
def attend(seq2seq, tmp_path):
    def call(*more: object, text: str = TEXT, model: Path = GOLDEN):
        folder = tmp_path / "deep" / "out"
        return seq2seq("attend", text, "--model", model, "--device", "cpu", "--output", folder, *more), folder

    return call


def data_of(folder: Path) -> Any:
    """Return what is embedded in the page."""
    page = (folder / "attention.html").read_text()
    return json.loads(re.search(r'<script[^>]*id="?data"?[^>]*>(.*?)</script>', page, re.S)[1])  # type: ignore[index]


def test_a_sentence_gives_a_page_a_picture_and_numbers(attend):
    (status, out, err), folder = attend()
    assert (status, err) == (0, "")
    names = ["attention.html", "attention.png", "alignment.png", "attention.json"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert all(read_png(folder / name).std() > 0 for name in ("alignment.png", "attention.png"))  # drawn
    plain = json.loads((folder / "attention.json").read_text())
    assert (plain["source"], plain["translated"]) == (TEXT, True)
    lines = out.splitlines()
    assert lines[:2] == [TEXT, f"→ {plain['target']}"]
    source, target = ([word["text"] for word in plain["words"][side]] for side in ("source", "target"))
    pairs = [tuple(re.split(r"\s+←\s+", line.strip())) for line in lines if "←" in line]
    assert pairs == [(target[j], source[i]) for i, j in plain["alignment"]]
    assert [line.split()[0] for line in lines[-4:]] == [str(folder / name) for name in names]
    data = data_of(folder)  # the numbers, the walks and the search
    assert data["explanation"] == plain
    assert [(walk["part"], walk["head"]) for walk in data["walks"]] == [
        (part, head) for part in ("encoder", "decoder", "cross") for head in range(4)
    ]
    assert data["beams"]["result"][0]["text"] == plain["target"]


def test_a_given_translation_is_explained_without_a_search(attend):
    (status, out, _), folder = attend("--target", "El gato ve la leche.")
    data = data_of(folder)
    assert status == 0
    assert "→ El gato ve la leche." in out
    assert (data["explanation"]["translated"], data["beams"]) == (False, {})


def test_what_is_switched_off_is_shown_beside_what_the_model_does_with_it(attend):
    words = "--without source.2 --without cross.1.head.2 --average encoder --softmax-temperature 2"
    (status, out, err), folder = attend(*words.split())
    assert (status, err) == (0, "")
    plain = json.loads((folder / "attention.json").read_text())
    changes = {"without": ["source.2", "cross.1.head.2"], "average": ["encoder"], "temperature": 2.0}
    assert plain["interventions"] == changes
    assert all(row[1] == 0 for head in plain["by_word"]["cross"][0] for row in head)
    (_, usual, _), _ = attend()
    assert plain["unchanged"]["target"] == usual.splitlines()[1].removeprefix("→ ")
    scores = [line.split(" nats  ") for line in out.splitlines() if " nats  " in line]
    expected = [plain["unchanged"]["log_prob"], sum(plain["log_probs"])]
    assert [float(score) for score, _ in scores] == pytest.approx(expected, abs=0.01)
    assert [text.partition(": ")[2] for _, text in scores] == [plain["unchanged"]["target"], plain["target"]]


def test_heads_are_ranked_in_a_list_and_numbers(attend):
    (status, out, err), folder = attend("--target", "El gato ve la leche.", "--rank-heads")
    assert (status, err) == (0, "")
    ranking = json.loads((folder / "attention.json").read_text())["ranking"]
    assert len(ranking) == 3 * 4
    best = ranking[0]
    _, _, ranks = out.partition("Growth of the loss without each head (nats per token):\n")
    assert ranks.startswith(f"  {best['loss']:+.3f}  {best['part']}.1.head.{best['head'] + 1}\n")


@pytest.mark.parametrize(
    ("options", "text", "message"),
    [
        (("--without", "encoder.9"), TEXT, "encoder.9: this model has layers 1 to 1 there"),
        (("--softmax-temperature", 0), TEXT, "the temperature 0 must be from 0.001 to 1000"),
        ((), " ", "the sentence is empty: give one with words"),
    ],
)
def test_what_cannot_be_explained_is_one_line_and_nothing_is_written(attend, options, text, message):
    (status, out, err), folder = attend(*options, text=text)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"error: {message}")
    assert not folder.exists()


def test_a_model_without_attention_has_none_to_show(attend, tokenizer, tmp_path):
    (status, _, err), folder = attend(
        "--target", "El gato ve.", model=write_recurrent_bundle(tmp_path / "model", tokenizer, "none")
    )
    assert status == 1
    assert err.startswith("error: this model has no attention to show: train one with it (model.attention=additive)")
    assert not folder.exists()
