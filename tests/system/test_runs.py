"""What a run leaves, and what is shown of it afterwards."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from launcher import Launcher
from small_run import BASE, fails_in_one_line, logged

from seq2seq.cli import app, main
from seq2seq.translate.translator import Translator
from tests.toy import write_corpus
from tests.wandb_files import offline_runs

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


LOCAL: Any = {"WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": ""}


def resumed(launcher: Launcher, workdir: Path, logger: str, send: int, *more: str) -> tuple[Path, Any, Any]:
    """Break a run off after update 11 and resume it: its folder, the ids of its logged run, its losses."""
    run = workdir / "runs/run"
    options: Any = {"cwd": workdir, "until": "update 11 ", "send": send, **LOCAL}
    broken = launcher.train(*BASE, "name=run", f"logger=csv,{logger}", *more, **options)
    assert broken.status == (-signal.SIGKILL if send == signal.SIGKILL else 1), broken.output
    ids = json.loads((run / "loggers.json").read_text())
    launcher.complete("resume=runs/run", cwd=workdir, **LOCAL)
    assert json.loads((run / "loggers.json").read_text()) == ids
    assert list(run.glob("events.*")) == []
    losses = {int(step): float(loss) for step, loss in logged(run)}
    assert set(losses) == set(range(1, 21))
    return run, ids, losses


def test_a_killed_run_goes_on_in_mlflow(launcher: Launcher, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("mlflow", reason="the extra mlflow is not installed").MlflowClient
    run, ids, losses = resumed(launcher, workdir, "mlflow", signal.SIGKILL)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    history = client((run / "mlruns").resolve().as_uri()).get_metric_history(ids["mlflow"], "loss")
    assert {metric.step: metric.value for metric in history} == pytest.approx(losses)


def test_a_stopped_run_goes_on_in_weights_and_biases(launcher: Launcher, workdir: Path) -> None:
    """Its own process writes what was logged every few seconds: after a kill the last seconds can be missing."""
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    run, ids, losses = resumed(launcher, workdir, "wandb", signal.SIGTERM, "logger.attention=true")
    runs, rows = offline_runs(run, len(losses))
    assert runs == [(ids["wandb"], "seq2seq", "run")] * 2
    assert {update: row["loss"] for update, row in rows.items()} == pytest.approx(losses)
    for key in ("val_loss", "attention"):
        assert {update for update, row in rows.items() if key in row} >= {8, 16, 20}
    assert len(list(run.glob("wandb/offline-run-*/files/media/images/attention_*.png"))) == 3


def test_a_group_of_loggers_cannot_be_changed_on_resume(launcher: Launcher, trained: Path) -> None:
    """runs/run of `trained` logs to a table and to TensorBoard."""
    changed = launcher.train("resume=runs/run", "logger=csv", cwd=trained)
    fails_in_one_line(changed, r"logger= cannot be changed on resume: give single values")
    (events,) = (trained / "runs/run").glob("events.*")
    more = ("resume=runs/run", "logger.tensorboard=false", "trainer.max_steps=4")
    launcher.complete(*more, cwd=trained)
    assert list((trained / "runs/run").glob("events.*")) == [events]
