"""The training program with training itself replaced: settings that it shows, refusals, Ctrl-C, sweeps."""

import errno
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hydra.core.global_hydra import GlobalHydra
from saved_runs import make_run

from seq2seq import cli
from seq2seq.apps.train import run_name
from seq2seq.cli.train import main
from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.training import run as training

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process_state: None) -> Callable[..., str]:
    """Run train.py; return its last message, "" after success."""
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


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def train_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that replaces training: each run gets the BLEU of its seed, or raises the seed's error."""

    def replace(results: dict[int, float | BaseException]) -> None:
        def train(config: Config, folder: Path, *_: object) -> float:
            result = results[config.seed]
            if isinstance(result, BaseException):
                raise result
            (folder / "checkpoints").rmdir()
            make_run(folder, config, results=6)
            (folder / "metrics.csv").write_text(f"step,val_loss,val_bleu\n6,2.5,{result}\n")
            return result

        monkeypatch.setattr(training, "train", train)

    return replace


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("trainer=gpu",), "trainer.accelerator=gpu but there is no CUDA device"),
        (("logger=wandb",), "logger=wandb needs the package wandb"),
        (("resume=runs/half", "trainer.max_steps=5"), "the run has 6 updates already, trainer.max_steps=5 is not more"),
        (("training.lr=1",), "there is no setting training.lr: did you mean training.learning_rate?"),
    ],
)
def test_what_cannot_begin_is_refused_before_text_is_prepared(call, monkeypatch, overrides, message):
    folder = make_run(Path("runs/half"), updates=(6, 99))  # one of them whole
    torch.save({"run": {"corpora": {}, "settings": {}}}, folder / "checkpoints/step=0000006.ckpt")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "wandb" else find(name, *more))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(training, "prepare_folder", lambda *_: pytest.fail("text was prepared"))
    error = call(*overrides)
    assert error.startswith("error: ")
    assert message in error
    assert "\n" not in error
    assert len(error) < 2000


@pytest.mark.parametrize(
    "during", ["seq2seq.training.run.prepare_folder", "seq2seq.training.run_folder.prepare_folder"]
)
def test_ctrl_c_before_the_first_update_says_that_nothing_was_saved(call, monkeypatch, during):
    monkeypatch.setattr(during, interrupt)
    message = "error: interrupted before the first update: nothing was saved; start again with the same command"
    assert call("name=early") == message
    assert not os.path.lexists("runs/early")
    assert not os.path.lexists("runs/latest")


def test_a_resumed_run_that_saved_nothing_keeps_its_settings_when_it_is_refused(call, monkeypatch):
    make_run(Path("moved/early"), updates=())
    settings = Path("moved/early/config.yaml")
    monkeypatch.setattr("seq2seq.training.run.prepare_folder", interrupt)
    assert "nothing was saved" in call("resume=moved/early", "trainer.max_steps=7")
    assert yaml.safe_load(settings.read_text())["trainer"]["max_steps"] == 7
    assert call("resume=moved/late") == "error: resume=moved/late: there is no run (no moved/late/config.yaml)"
    assert not Path("moved/late").exists()


def test_a_run_that_its_text_refuses_leaves_no_folder(call, train_with):
    for name in ("before", "newer"):
        make_run(Path("runs") / name, results=6)
    Path("runs/latest").symlink_to("before")
    train_with({1: UserError("no such text"), 2: OSError(errno.ENOSPC, "No space left on device")})
    assert call("name=refused") == "error: no such text"
    assert "nothing was saved: make room or give permission, then start again" in call("name=full", "seed=2")
    assert sorted(path.name for path in Path("runs").iterdir()) == ["before", "latest", "newer"]
    assert Path("runs/latest").readlink() == Path("before")


def test_the_settings_that_hydra_shows_are_those_that_train(call: Callable[..., str], capsys: Any) -> None:
    assert call("experiment=distillation", "--cfg=job", "model=small", "trainer.max_time=1:00:00:00") == ""
    settings = yaml.safe_load(capsys.readouterr().out)
    assert (settings["model"]["d_model"], settings["trainer"]["max_time"]) == (256, "1:00:00:00")
    assert call("--cfg", "job", "--package", "trainer") == ""
    assert yaml.safe_load(capsys.readouterr().out)["max_steps"] == 2000
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


@pytest.mark.parametrize(
    ("error", "message", "finished"),
    [
        (UserError("the loss is not a number"), "error: the loss is not a number", ["s-1", "s-3"]),
        (KeyboardInterrupt(), "nothing was saved", ["s-1"]),
    ],
)
def test_a_failed_run_does_not_end_its_sweep_but_ctrl_c_does(call, train_with, error, message, finished):
    train_with({1: 30.0, 2: error, 3: 20.0})
    assert message in call("--multirun", "seed=1,2,3", "name='s-${seed}'")
    assert sorted(path.parent.name for path in Path("runs").glob("s-*/results.json")) == finished
    assert not Path("runs/s-2").exists()


def test_seq2seq_train_is_the_same_program(monkeypatch: pytest.MonkeyPatch, process_state: None, capsys: Any) -> None:
    shown = {"--cfg job model=base seed=4": ["\nseed: 4\n", " d_model: 512\n"], "--help": ["trainer.max_epochs=null"]}
    for words, texts in shown.items():
        monkeypatch.setattr(sys, "argv", ["seq2seq", "train", *words.split()])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code in (0, None)
        output = capsys.readouterr().out
        assert [text for text in texts if text not in output] == []


@pytest.mark.parametrize("variables", [{}, {"PYTORCH_CUDA_ALLOC_CONF": "backend:native"}])
def test_a_gpus_allocator_extends_its_segments_unless_the_user_set_it_up(variables: dict[str, str]) -> None:
    """PyTorch reads the settings as CUDA starts, so they must be there before it is imported."""
    code = "import os, sys; import seq2seq.cli.train; assert 'torch' not in sys.modules\n"
    code += "print({name: value for name, value in os.environ.items() if name.endswith('_ALLOC_CONF')})"
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_ALLOC_CONF")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment | variables, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.stdout.strip() == str(variables or {"PYTORCH_ALLOC_CONF": "expandable_segments:True"})
