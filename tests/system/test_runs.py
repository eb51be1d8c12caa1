"""What a run leaves, and what is shown of it afterwards."""

import json
import shutil
from pathlib import Path

import pytest
from launcher import Launcher
from small_run import BASE

from seq2seq.cli import app, main
from seq2seq.translate.translator import Translator
from tests.toy import write_corpus

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def finished(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of twelve updates that has kept its checkpoints of updates 6 and 12."""
    workdir = write_corpus(tmp_path_factory.mktemp("finished"))
    steps = ("trainer.max_steps=12", "trainer.validate_every=6", "trainer.checkpoint_every=6", "trainer.keep_last=9")
    result = launcher.complete(*BASE, *steps, "name=finished", "analyse=true", cwd=workdir)
    assert "what is wrong with the test translations: runs/finished/analysis/analysis.html" in result.output
    return workdir / "runs/finished"


def test_a_run_leaves_everything_in_one_folder(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert {"config.yaml", "checkpoints", "metrics.csv", "curves.png", "results.json", "model", "analysis"} <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    files = {path.name for path in (finished / "model").iterdir()}
    assert files == {"model.safetensors", "config.json", "tokenizer.model", "README.md"}
    results = json.loads((finished / "results.json").read_text())
    assert results["updates"] == 12
    assert results["scores"]["test"]["bleu"]["signature"].startswith("nrefs:1|case:mixed")
    analysis = json.loads((finished / "analysis/analysis.json").read_text(encoding="utf-8"))
    assert analysis["bleu"] == pytest.approx(results["scores"]["test"]["bleu"]["value"], abs=0.01)
    assert {"length", "rarity"} <= set(analysis["groups"])
    assert "inattention" in [fault["name"] for fault in analysis["faults"]]
    assert (finished.parent / "latest").resolve() == finished
    card = (finished / "model/README.md").read_text()
    assert card.startswith("---\nlanguage: [en, es]\n")
    assert "| test | 10 |" in card
    assert 'seq2seq translate --model FOLDER "The ball is blue."\n' in card


def test_attention_is_shown_over_the_checkpoints_that_a_run_keeps(finished, tmp_path, monkeypatch, capsys):
    def attend(run: str, *more: str) -> object:
        command = ["attend", "The cat sees the milk.", "--target", "El gato ve.", "--over", run, *more]
        monkeypatch.setattr("sys.argv", ["seq2seq", *command, "--output", str(tmp_path / "over")])
        with pytest.raises(SystemExit) as ended:
            main(app)
        return ended.value.code

    monkeypatch.chdir(finished.parents[1])
    assert not attend("runs/finished")
    lines = [line for line in capsys.readouterr().out.splitlines() if " nats  " in line]
    assert [line.split()[0] for line in lines] == ["6", "12"]
    (translation,) = Translator.load(finished, "cpu").translate(["The cat sees the milk."])
    assert lines[1].partition(" nats  ")[2] == translation  # by the weights of this checkpoint, which are the last ones
    assert {path.name for path in (tmp_path / "over").iterdir()} == {"over.html", "over.gif"}
    assert attend("runs/none") == "error: --over runs/none is no folder: give runs/NAME or runs/NAME/model"
    message = "error: --over shows a run's checkpoints as they are: leave out --model and what "
    assert str(attend("runs/finished", "--without", "cross")).startswith(message)
    shutil.copytree(finished, few := finished.parent / "few")
    for path in sorted((few / "checkpoints").iterdir())[:-1]:
        path.unlink()
    message = "error: --over runs/few: the run has kept 1 checkpoint, and at least 2 are "
    assert str(attend("runs/few")).startswith(message)
