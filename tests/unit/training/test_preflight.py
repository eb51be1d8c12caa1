"""Runs that cannot begin are refused before PyTorch is imported and before any text is read."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from saved_runs import make_run

from seq2seq.settings.config import Config
from seq2seq.settings.training import LoggerConfig, TrainerConfig
from seq2seq.training.preflight import is_done, refuse_early
from tests.refusing import refuses


def resumed(folder: Path, max_steps: int) -> Config:
    return Config(resume=str(folder), trainer=TrainerConfig(max_steps=max_steps))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Config(logger=LoggerConfig(wandb=True)), r"^logger=wandb needs the package wandb: .* -e '.*\[wandb\]'$"),
        (Config(logger=LoggerConfig(mlflow=True)), r"^logger=mlflow needs the package mlflow: .* -e '.*\[mlflow\]'$"),
    ],
)
def test_loggers_need_their_packages(config: Config, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    refuses(message, refuse_early, config)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    refuse_early(config)


@pytest.mark.parametrize("limit", [{"max_time": "00:01:00:00"}, {"max_epochs": 2}, {}])
def test_a_complete_run_is_done_and_the_log_says_how_to_extend_it(tmp_path, limit, caplog):
    folder = make_run(tmp_path / "done", results=6)
    config = resumed(folder, 6)
    config.trainer = TrainerConfig(max_steps=6, **limit)
    with caplog.at_level("INFO"):
        assert is_done(config, folder)
    assert re.search(
        rf"resume=\S+done trainer.max_steps=12{''.join(f' trainer.{key}=null' for key in limit)} training.patience=0`$",
        caplog.text,
    )
    assert not is_done(resumed(folder, 7), folder)


def test_refusing_imports_neither_pytorch_nor_lightning() -> None:
    """They take seconds; so this runs in an interpreter of its own, which has not imported them for other tests."""
    code = "import sys, seq2seq.cli, seq2seq.training.run_state; print({'torch', 'lightning'} & sys.modules.keys())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
