"""A run that was broken off and resumed is one logged run, with every update, in Weights & Biases and in MLflow."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from launcher import Launcher
from small_run import BASE, fails_in_one_line, logged

from tests.wandb_files import offline_runs

pytestmark = pytest.mark.system
LOCAL: Any = {"WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": ""}


def resumed(launcher: Launcher, workdir: Path, logger: str, send: int) -> tuple[Path, dict[str, str], dict[int, float]]:
    """Break a run off after update 11 and resume it: its folder, the ids of its logged run, its losses."""
    run = workdir / "runs/run"
    options: Any = {"cwd": workdir, "until": "update 11 ", "send": send, **LOCAL}
    broken = launcher.train(*BASE, "name=run", f"logger=csv,{logger}", **options)
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
    run, ids, losses = resumed(launcher, workdir, "wandb", signal.SIGTERM)
    runs, rows = offline_runs(run, len(losses))
    assert runs == [(ids["wandb"], "seq2seq", "run")] * 2
    assert {update: row["loss"] for update, row in rows.items()} == pytest.approx(losses)
    assert {update for update, row in rows.items() if "val_loss" in row} >= {8, 16, 20}


def test_a_group_of_loggers_cannot_be_changed_on_resume(launcher: Launcher, trained: Path) -> None:
    """runs/run of `trained` logs to a table and to TensorBoard."""
    changed = launcher.train("resume=runs/run", "logger=csv", cwd=trained)
    fails_in_one_line(changed, r"logger= cannot be changed on resume: give single values")
    (events,) = (trained / "runs/run").glob("events.*")
    more = ("resume=runs/run", "logger.tensorboard=false", "trainer.max_steps=4")
    launcher.complete(*more, cwd=trained)
    assert list((trained / "runs/run").glob("events.*")) == [events]
