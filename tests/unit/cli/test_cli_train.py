"""The command line of training: what it shows without training."""

import sys

import pytest
import yaml

from seq2seq import cli
from seq2seq.cli import train as cli_train

pytestmark = pytest.mark.usefixtures("process_state")


def test_the_settings_of_a_run_are_shown_as_it_would_have_them(capsys: pytest.CaptureFixture[str]) -> None:
    cli_train.main(["experiment=distillation", "model=small", "--cfg", "job", "trainer.max_time=1:00:00:00"])
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["model"]["d_model"], shown["trainer"]["max_time"]) == (256, "1:00:00:00")


def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^error: .*d_modell"):
        cli_train.main(["model.d_modell=3", "--cfg", "job"])


def test_seq2seq_train_is_the_same_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["seq2seq", "train", "--cfg", "job", "model=base", "seed=4"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code in (0, None)
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["seed"], shown["model"]["d_model"], shown["tokenizer"]["vocab_size"]) == (4, 512, 2000)
    monkeypatch.setattr(sys, "argv", ["seq2seq", "train", "--help"])
    with pytest.raises(SystemExit):
        cli.main()
    assert "trainer.max_epochs=null" in capsys.readouterr().out
