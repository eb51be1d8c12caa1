"""Before PyTorch is imported, each run is refused, or begins, goes on or is complete, as its folder says."""

import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.rules import AUTO
from seq2seq.settings.training import LoggerConfig, TrainerConfig, TrainingConfig
from seq2seq.storage.atomic import lock, unlock
from seq2seq.training.run_files import LOCK, read_run
from seq2seq.training.run_folder import _taken, prepare_folder
from seq2seq.training.run_state import find_existing, is_done, refuse_early
from tests.refusing import refuses
from tests.unit import saved_runs


@pytest.fixture
def config() -> Config:
    return Config(
        name="baseline-1",
        series="lab",
        resume="auto",
        model=ModelConfig(d_model=64, num_heads=4),
        trainer=TrainerConfig(max_steps=6),
    )


RESULTS = {"updates": 6, "training_seconds": 60.0, "parameters": 9, "scores": {}}


def make_run(config: Config, runs: Path, *, results: bool, checkpoint: bool = True) -> Path:
    updates = (6,) if checkpoint else ()
    return saved_runs.make_run(runs / str(config.name), config, updates=updates, results=6 if results else None)


def test_an_interrupted_run_is_resumed_with_the_rules_numbers_that_it_has(config: Config, tmp_path: Path) -> None:
    then = replace(config, training=TrainingConfig(max_tokens=777), model=replace(config.model, dropout=0.3))
    folder = make_run(then, tmp_path, results=False)
    config.training.max_tokens = config.model.dropout = AUTO
    assert not find_existing(config, tmp_path)
    assert config.resume == str(folder)
    assert (config.training.max_tokens, config.model.dropout) == (777, 0.3)
    assert config.training.learning_rate == AUTO  # `auto` in the run, too


DECIDED = {  # the state of a run with a checkpoint after 6 updates, by its results, its new settings and its files
    "its results": ({}, {}, None, "complete"),
    "results that are empty": ("", {}, None, "stopped"),
    "results of an earlier end": ({"updates": 4}, {}, None, "stopped"),
    "more updates": ({}, {"max_steps": 12}, None, "stopped"),
    "more epochs": ({}, {"max_steps": AUTO, "max_epochs": 9}, None, "stopped"),
    "a time that is up": ({}, {"max_steps": 12, "max_time": "00:00:01:00"}, None, "complete"),
    "more time": ({}, {"max_steps": 12, "max_time": "00:00:02:00"}, None, "stopped"),
    "no patience left": ({"out_of_patience": True, "training": {"patience": 5}}, {"max_steps": 12}, None, "complete"),
    "more patience": ({"out_of_patience": True, "training": {"patience": 2}}, {"max_steps": 12}, None, "stopped"),
    "only its best checkpoint": (None, {}, "best-step=0000006-val_bleu=18.50.ckpt", "stopped"),
    "an empty newer checkpoint": ({}, {}, ("step=0000099.ckpt", Path.touch), "complete"),
    "a folder of a newer checkpoint's name": ({}, {}, ("step=0000099.ckpt", Path.mkdir), "complete"),
    "a newer dead link": ({}, {}, ("step=0000099.ckpt", lambda path: path.symlink_to("none")), "complete"),
    "a newer link to itself": ({}, {}, ("step=0000099.ckpt", lambda path: path.symlink_to(path.name)), "complete"),
    "only a draft of a checkpoint": (None, {}, "saving.tmp", "nothing saved"),
}


@pytest.mark.parametrize("case", DECIDED)
def test_one_function_decides_the_state_for_lists_and_for_resuming(config: Config, tmp_path: Path, case: str) -> None:
    results, trainer, name, state = DECIDED[case]
    config.training.patience = 5
    config.trainer = replace(config.trainer, **trainer)  # type: ignore[arg-type]
    folder = make_run(config, tmp_path, results=False)
    if isinstance(results, dict):
        (folder / "results.json").write_text(json.dumps(RESULTS | results))
    elif results is not None:
        (folder / "results.json").write_text(results)
    if isinstance(name, tuple):
        name[1](folder / "checkpoints" / name[0])
    elif name is not None:
        (folder / "checkpoints/step=0000006.ckpt").rename(folder / "checkpoints" / name)
    assert read_run(folder, "x").state == state
    for resume in (AUTO, str(folder)):
        now = replace(config, resume=resume)
        assert find_existing(now, tmp_path) == (state == "complete")
        assert state == "complete" or now.resume == (None if state == "nothing saved" else str(folder))


@pytest.mark.parametrize("settings", ["", "model: [", None, "seed: 2\n"])
@pytest.mark.parametrize("resume", [AUTO, None])
def test_a_run_that_saved_nothing_begins_anew_with_any_settings(config, tmp_path, settings, resume):
    folder = make_run(config, tmp_path, results=False, checkpoint=False)
    left = ["checkpoints/saving.tmp", "metrics.csv", "events.out.tfevents.1", "lock", "notes"]
    for name in left:
        (folder / name).touch()
    (folder / ".results.json.seq2seq").mkdir()
    (folder / ".results.json.seq2seq/new").touch()
    if settings is not None:
        (folder / "config.yaml").write_text(settings)
    other = replace(config, seed=3, resume=resume)
    assert resume is None or not find_existing(other, tmp_path)
    _, begun, checkpoint = prepare_folder(other, tmp_path)
    unlock(folder / LOCK)
    assert (begun, checkpoint) == (folder, None)
    assert yaml.safe_load((folder / "config.yaml").read_text())["seed"] == 3
    assert {path.name for path in folder.rglob("*")} == {"checkpoints", "lock", "notes", "config.yaml"}


def test_what_killed_processes_left_goes_at_any_depth_but_no_work_to_go_on_with(config: Config, tmp_path: Path) -> None:
    folder = make_run(config, tmp_path, results=False, checkpoint=False)
    places = (".", "checkpoints", "translations", "analysis", "analysis/deep")
    left = [folder / place / name for place in places for name in (".x.seq2seq", ".seq2seq")]
    kept = [folder / place for place in ("model/.x.seq2seq/new", "analysis/.y.seq2seq/partial", "analysis/x.seq2seq/a")]
    written = folder / "translations/.z.seq2seq"
    for path in (*(path / "new" for path in left), *kept):
        path.parent.mkdir(parents=True)
        path.touch()
    lock(written / "lock", "", "")
    with _taken(folder):
        unlock(folder / LOCK)
    assert [path for path in (*left, written, *kept) if path.exists()] == [written, *kept]
    unlock(written / "lock")


def test_a_run_that_was_killed_before_its_settings_had_their_name_begins_anew(config: Config, tmp_path: Path) -> None:
    folder = make_run(config, tmp_path, results=False, checkpoint=False)
    (folder / ".config.yaml.seq2seq").mkdir()
    (folder / "config.yaml").rename(folder / ".config.yaml.seq2seq/new")
    prepare_folder(replace(config, resume=None), tmp_path)
    unlock(folder / LOCK)
    assert {path.name for path in folder.iterdir()} == {"checkpoints", "lock", "config.yaml"}


@pytest.mark.parametrize("name", ["model", "results.json", "checkpoints/damaged-step=0000006.ckpt"])
def test_a_run_that_has_lost_only_its_checkpoints_is_not_begun_anew(config: Config, tmp_path: Path, name: str) -> None:
    folder = make_run(config, tmp_path, results=False, checkpoint=False)
    (folder / name).touch()
    assert not find_existing(config, tmp_path)
    refuses(r"no checkpoint in .*nothing to go on from: begin another run by name=", prepare_folder, config, tmp_path)
    unlock(folder / LOCK)
    refuses(r"is a run already: choose another name=", prepare_folder, replace(config, resume=None), tmp_path)


def test_a_folder_that_is_no_run_is_not_taken(config: Config, tmp_path: Path) -> None:
    """Such as the folder of a series, whose runs would no longer be listed."""
    make_run(config, tmp_path / "lab", results=True)
    with pytest.raises(UserError, match=r"lab is a run already: choose another name="):
        prepare_folder(replace(config, name="lab", resume=None), tmp_path)


@pytest.mark.parametrize("results", [True, False])
def test_a_run_with_other_settings_is_neither_kept_nor_gone_on_with(config, tmp_path, results):
    make_run(config, tmp_path, results=results)
    other = replace(config, model=ModelConfig(d_model=64, num_heads=8))
    refuses(r"baseline-1 is a run with model.num_heads=4, not 8: choose another name=", find_existing, other, tmp_path)
    elsewhere = replace(config, data=DataConfig(root="elsewhere"), trainer=TrainerConfig(progress_bar=False))
    assert find_existing(elsewhere, tmp_path) == results


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_loggers_need_their_packages(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(logger=LoggerConfig(wandb=name == "wandb", mlflow=name == "mlflow"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    refuses(rf"^logger={name} needs the package {name}: .* -e '.*\[{name}\]'$", refuse_early, config)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    refuse_early(config)


@pytest.mark.parametrize("limit", [{"max_time": "00:01:00:00"}, {"max_epochs": 2}, {}])
def test_a_complete_run_is_done_and_the_log_says_how_to_extend_it(tmp_path, limit, caplog):
    folder = saved_runs.make_run(tmp_path / "done", results=6)
    config = Config(resume=str(folder), trainer=TrainerConfig(max_steps=6, **limit))
    with caplog.at_level("INFO"):
        assert is_done(config, folder)
    assert re.search(
        rf"resume=\S+done trainer.max_steps=12{''.join(f' trainer.{key}=null' for key in limit)} training.patience=0`$",
        caplog.text,
    )
    config.trainer = TrainerConfig(max_steps=7)
    assert not is_done(config, folder)


def test_refusing_imports_neither_pytorch_nor_lightning() -> None:
    """They take seconds; so this runs in an interpreter of its own, which has not imported them for other tests."""
    code = "import sys, seq2seq.cli, seq2seq.training.run_state; print({'torch', 'lightning'} & sys.modules.keys())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
