"""Loggers write into the run's folder, and a resumed run goes on in the same logged run."""

import os
from pathlib import Path

import pytest

from seq2seq.errors import UserError
from seq2seq.settings.compose import compose, rewrite
from seq2seq.settings.config import Config
from seq2seq.settings.training import LoggerConfig
from seq2seq.training import trainer
from seq2seq.training.trainer import make_loggers
from tests.refusing import refuses


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """No mode and no server; what a test sets in the environment goes with it."""
    for name in ("WANDB_MODE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    for name in ("MLFLOW_DISABLE_TELEMETRY", "MLFLOW_ALLOW_FILE_STORE"):
        monkeypatch.setenv(name, "true")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    return tmp_path / "runs" / "mine"


def kinds(config: Config, folder: Path) -> list[str]:
    return [type(logger).__name__ for logger in make_loggers(config, folder)]


@pytest.mark.slow
def test_the_group_chooses_the_loggers_and_the_table_is_always_written(folder: Path):
    assert kinds(compose(["logger=csv"]), folder) == ["CSVLogger"]
    for overrides in ([], ["logger=tensorboard"], ["logger=csv,tensorboard"]):
        assert kinds(compose(overrides), folder) == ["CSVLogger", "TensorBoardLogger"]


def test_several_loggers_are_one_run_and_no_sweep():
    overrides = ["logger=csv,wandb", "logger=mlflow", "training.learning_rate=1e-3,2e-3"]
    assert rewrite(overrides) == ["logger=[csv,wandb]", "logger=mlflow", "training.learning_rate=1e-3,2e-3"]
    assert compose(["~logger"]).logger == LoggerConfig()
    both = compose(["logger=wandb,mlflow", "logger.project=mine"]).logger
    assert both == LoggerConfig(wandb=True, mlflow=True, project="mine")


def test_an_unknown_logger_is_refused():
    message = r"logger has no option 'tensorbord': choose from csv, mlflow, tensorboard, wandb$"
    refuses(message, compose, ["logger=csv,tensorbord"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_only_the_first_process_logs(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip(name, reason=f"the extra {name} is not installed")
    monkeypatch.setattr(trainer, "rank", lambda: 1)
    assert kinds(Config(logger=LoggerConfig(wandb=name == "wandb", mlflow=name == "mlflow")), folder) == ["CSVLogger"]
    assert list(folder.iterdir()) == []


def test_damaged_ids_are_one_line(folder: Path):
    (folder / "loggers.json").write_text('{"wandb": ')
    with pytest.raises(UserError, match=r"mine/loggers.json cannot be read: delete it, and the run is logged as a new"):
        make_loggers(Config(), folder)


def test_a_server_that_is_not_there_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(UserError, match=r"^logger=mlflow: http://127.0.0.1:9 cannot be used \(.*\)$"):
        make_loggers(Config(logger=LoggerConfig(mlflow=True)), folder)


def test_weights_and_biases_that_cannot_be_used_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch):
    wandb = pytest.importorskip("wandb", reason="the extra wandb is not installed")

    def refuse(**options: object) -> None:
        raise wandb.Error("no such server")  # a real server that is not there would be waited for

    monkeypatch.setattr(wandb, "init", refuse)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "")
    monkeypatch.delenv("WANDB_ERROR_REPORTING")  # the first line brings it back after the test
    message = r"^logger=wandb: Weights & Biases cannot be used \(.*\): run `wandb login`, or set .* WANDB_MODE=offline$"
    refuses(message, make_loggers, Config(logger=LoggerConfig(wandb=True)), folder)
    assert not (folder / "loggers.json").exists()
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"  # offline, nothing is sent
