"""The training program in this process, with training itself replaced: refusals, Ctrl-C, the end of a sweep."""

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra
from saved_runs import make_run

from seq2seq.cli.train import main, run_name
from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.training import run as training


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process_state: None) -> Callable[..., str]:
    """Run train.py; what it told at its end ("" if it was successful)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        GlobalHydra.instance().clear()
        monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
        try:
            main(arguments)
        except SystemExit as error:
            return str(error.code)
        return ""

    return run


@pytest.fixture
def preparing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was prepared."""
    calls: list[str] = []

    def prepare_text(*given: object) -> None:
        calls.append("prepared")
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "prepare_text", prepare_text)
    return calls


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (("trainer=gpu",), "trainer.accelerator=gpu but there is no CUDA device"),
        (("training.lora_rank=4",), "training.lora_rank needs the package peft"),
        (("resume=runs/half", "trainer.max_steps=5"), "the run has 6 updates already, trainer.max_steps=5 is not more"),
    ],
)
def test_what_cannot_begin_is_refused_before_text_is_prepared(
    call: Callable[..., str],
    preparing: list[str],
    monkeypatch: pytest.MonkeyPatch,
    overrides: tuple[str, ...],
    told: str,
) -> None:
    make_run(Path("runs/half"), updates=(4, 6))
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "peft" else find(name, *more))
    monkeypatch.setattr("seq2seq.training.early_checks.has_gpu_driver", lambda: False)
    assert told in call(*overrides)
    assert not preparing


def test_ctrl_c_while_text_is_prepared_says_that_nothing_was_saved(
    call: Callable[..., str], preparing: list[str]
) -> None:
    told = call("name=early")
    assert preparing
    assert not os.path.lexists("runs/early")
    assert not os.path.lexists("runs/latest")
    assert told == ("error: interrupted before the first update: nothing was saved; start again with the same command")


def test_a_run_that_its_text_refuses_leaves_no_folder(
    call: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> None:
        raise UserError("no such text")

    for name in ("before", "newer"):
        make_run(Path("runs") / name, results=6)
    Path("runs/latest").symlink_to("before")
    monkeypatch.setattr(training, "train", refuse)
    assert call("name=refused") == "error: no such text"
    assert sorted(path.name for path in Path("runs").iterdir()) == ["before", "latest", "newer"]
    assert Path("runs/latest").readlink() == Path("before")


def test_the_settings_that_hydra_shows_are_those_that_train(call: Callable[..., str], capsys: Any) -> None:
    for words in (("--cfg", "job"), ("--cfg=job",), ("-c", "job")):
        assert call("experiment=distillation", *words, "model=small") == ""
        assert yaml.safe_load(capsys.readouterr().out)["model"]["d_model"] == 256
    assert call("--cfg", "job", "--package", "trainer") == ""
    assert yaml.safe_load(capsys.readouterr().out)["max_steps"] == 3000
    assert call("--hydra-help") == "0"
    assert "hydra/launcher" in capsys.readouterr().out
    Path("mine=1/experiment").mkdir(parents=True)
    Path("mine=1/experiment/own.yaml").write_text("# @package _global_\ndefaults:\n  - override /model: tiny\n")
    assert call("--config-dir", "mine=1", "experiment=own", "model=base", "--cfg", "job") == ""
    assert yaml.safe_load(capsys.readouterr().out)["model"]["d_model"] == 512
    assert call("--config-dir=mine=1", "experiment=glob(./o*)", "--cfg", "job") == ""
    assert yaml.safe_load(capsys.readouterr().out)["model"]["d_model"] == 128
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["data=files", "data.train=[a.tsv]", "model=base", "model/style=modern"], "mine-base-modern"),
        (["name=x", "training.learning_rate=1e-3", "seed=2", "trainer.log_every=3"], "mine-learning_rate_0.001-seed_2"),
        (["tokenizer.user_symbols=['<bt>']"], "mine-user_symbols_bt"),
        ([f"tokenizer.model='{'0' * 200}'", "model=tiny"], "mine-tiny"),
    ],
)
def test_a_runs_name_consists_of_its_text_and_its_choices(overrides: list[str], name: str) -> None:
    assert run_name("mine", overrides, {"model": "base", "model/style": "modern", "data": "files"}) == name
    assert "=" not in name


def test_ctrl_c_with_a_checkpoint_says_how_to_go_on(call: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(config: Config, folder: Path, checkpoint: Path | None, named: object) -> None:
        (folder / "checkpoints" / "step=0000003.ckpt").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train", interrupted)
    told = call("name=late")
    assert told == "error: interrupted; `python train.py resume=runs/late` goes on from its last checkpoint"


def test_ctrl_c_before_there_is_a_run_says_that_nothing_was_saved(
    call: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("seq2seq.training.run_folder.prepare_folder", interrupted)
    assert "nothing was saved; start again" in call("name=early")


def test_a_sweep_ends_with_a_table_and_the_best_run(
    call: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pretend(config: Config, folder: Path, checkpoint: Path | None, named: object) -> float:
        (folder / "checkpoints").rmdir()
        made = make_run(folder, config, results=6)
        bleu = {1: 20.0, 2: 30.0, 3: 10.0}[config.seed]
        (made / "metrics.csv").write_text(f"step,val_loss,val_bleu\n6,2.5,{bleu}\n")
        return bleu

    monkeypatch.setattr(training, "train", pretend)
    make_run(Path("runs/before"), results=6)
    assert call("--multirun", "seed=1,2,3", "name='s-${seed}'") == ""
    told = capsys.readouterr().err
    rows = [line.split() for line in told.splitlines() if "seed=" in line]
    assert [(row[1], row[3], row[5]) for row in rows] == [
        ("s-2", "seed=2", "30.0"), ("s-1", "seed=1", "20.0"), ("s-3", "seed=3", "10.0")
    ]  # fmt: skip
    assert "before" not in told
    assert Path("runs/best").readlink() == Path("s-2")
    assert "runs/best → s-2" in told


def test_a_run_that_fails_does_not_end_its_sweep(
    call: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def second_fails(config: Config, folder: Path, checkpoint: Path | None, named: object) -> float:
        if config.seed == 2:
            raise UserError("the loss is not a number")
        (folder / "checkpoints").rmdir()
        make_run(folder, config, results=6)
        return 1.0

    monkeypatch.setattr(training, "train", second_fails)
    assert call("--multirun", "seed=1,2,3,4", "name='s-${seed}'") == "error: the loss is not a number"
    told = capsys.readouterr().err
    assert "s-2 (nothing saved)" in told
    assert [Path(f"runs/s-{seed}/results.json").exists() for seed in (1, 2, 3, 4)] == [True, False, True, True]


def test_ctrl_c_ends_a_sweep_and_shows_its_runs(
    call: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def second_fails(config: Config, folder: Path, checkpoint: Path | None, named: object) -> float:
        if config.seed == 2:
            raise KeyboardInterrupt
        (folder / "checkpoints").rmdir()
        make_run(folder, config, results=6)
        return 1.0

    monkeypatch.setattr(training, "train", second_fails)
    assert "nothing was saved" in call("--multirun", "seed=1,2,3", "name='s-${seed}'")
    told = capsys.readouterr().err
    assert "s-2 (nothing saved)" in told
    assert Path("runs/best").readlink() == Path("s-1")
