"""A sweep that is started again runs what is missing, resumes what was interrupted, and keeps the rest."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from seq2seq.errors import UserError
from seq2seq.settings.config import Config, to_plain
from seq2seq.settings.data import DataConfig
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.rules import AUTO
from seq2seq.settings.trainer import TrainerConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.training.early_checks import find_existing
from seq2seq.training.run_files import best_value


@pytest.fixture
def config() -> Config:
    return Config(name="baseline-1", series="lab", resume="auto", model=ModelConfig(d_model=64, num_heads=4))


def make_run(config: Config, runs: Path, *, results: bool, checkpoint: bool = True) -> Path:
    folder = runs / str(config.name)
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(to_plain(config)))
    (folder / "metrics.csv").write_text("step,val_loss,val_bleu\n2,,\n4,3.5,20.25\n6,3.0,18.5\n")
    if checkpoint:
        (folder / "checkpoints" / "step=0000006.ckpt").touch()
    if results:
        (folder / "results.json").write_text("{}")
    return folder


def test_a_name_that_is_no_run_yet_is_run(config: Config, tmp_path: Path) -> None:
    assert not find_existing(config, tmp_path)
    assert config.resume is None


def test_a_complete_run_is_kept_and_says_so(config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = make_run(config, tmp_path, results=True)
    with caplog.at_level(logging.INFO):
        assert find_existing(config, tmp_path)
    assert caplog.messages == [f"{folder} is complete: kept, not run again"]
    assert [best_value(folder, monitor) for monitor in ("bleu", "loss")] == [20.25, 3.0]


def test_an_interrupted_run_is_resumed_with_the_rules_numbers_that_it_has(config: Config, tmp_path: Path) -> None:
    then = replace(config, training=TrainingConfig(max_tokens=777), model=replace(config.model, dropout=0.3))
    folder = make_run(then, tmp_path, results=False)
    config.training.max_tokens = config.model.dropout = AUTO
    assert not find_existing(config, tmp_path)
    assert config.resume == str(folder)
    assert (config.training.max_tokens, config.model.dropout) == (777, 0.3)
    assert config.training.learning_rate == AUTO  # `auto` in the run, too


def test_a_run_without_a_checkpoint_says_what_to_do(config: Config, tmp_path: Path) -> None:
    make_run(config, tmp_path, results=False, checkpoint=False)
    with pytest.raises(UserError, match=r"baseline-1 ended before its first checkpoint: delete it"):
        find_existing(config, tmp_path)


@pytest.mark.parametrize("results", [True, False])
def test_a_run_with_other_settings_is_neither_kept_nor_gone_on_with(
    config: Config, tmp_path: Path, results: bool
) -> None:
    make_run(config, tmp_path, results=results)
    other = replace(config, model=ModelConfig(d_model=64, num_heads=8))
    with pytest.raises(UserError, match=r"baseline-1 is a run with model.num_heads=4, not 8: choose another name="):
        find_existing(other, tmp_path)
    elsewhere = replace(config, data=DataConfig(root="elsewhere"), trainer=TrainerConfig(progress_bar=False))
    assert find_existing(elsewhere, tmp_path) == results


def test_runs_are_kept_by_name_only() -> None:
    with pytest.raises(UserError, match=r"resume=auto finds a run by its name: give name="):
        Config(resume="auto")
    with pytest.raises(UserError, match=r"series='\.\./x' cannot be a folder's name"):
        Config(series="../x")
