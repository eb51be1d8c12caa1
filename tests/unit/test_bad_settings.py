"""Wrong settings end train.py with one line; the tests call train.py in this process."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from saved_runs import make_run

from tests.toy import FILES, TINY, write_corpus

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def end_of_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process_state: None) -> Callable[..., str]:
    """Return a function that runs train.py on the toy corpus, beside a run named `finished`, and returns its error."""
    write_corpus(tmp_path)
    make_run(tmp_path / "runs" / "finished")
    monkeypatch.chdir(tmp_path)

    def call(*overrides: str) -> str:
        monkeypatch.setattr(sys, "argv", ["train.py", *FILES, *TINY, "training.max_tokens=256", *overrides])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(REPOSITORY / "train.py"), run_name="__main__")
        return str(ended.value.code)

    return call


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("data.train=[nothing.tsv]",), "nothing.tsv"),
        (("tokenizer.vocab_size=5000",), "tokenizer.vocab_size=5000 is larger"),
        (("tokenizer.vocab_size=3000000000",), "tokenizer.vocab_size=3000000000 must be at most 2147483647"),
        (("tokenizer.user_symbols=['</s>']",), "tokenizer.user_symbols has </s>, which every tokenizer has anyway"),
        (("tokenizer.user_symbols=['<a>','<a>']",), "tokenizer.user_symbols has <a> twice"),
        (("tokenizer.user_symbols=['▁x']",), "tokenizer.user_symbols has '▁x': a symbol is one word"),
        (("tokenizer.character_coverage=0.5",), "tokenizer.character_coverage=0.5 not in [0.98, 1]"),
        (("data.cache='~nobody-here/c'",), "~nobody-here/c: the home of this user is not known here"),
        (("data.train=[{a: b}]",), "data.train=[{'a': 'b'}] is no list of words"),
        (("model.d_modell=3",), "d_modell"),
        (("training.learning_rate=fast",), "training.learning_rate=fast"),
        (("seed=" + "9" * 5000,), "4300 digits"),
        (("model=" + "x" * 5000,), "xxx: File name too long"),
        (("name=finished",), "is a run already: choose another name="),
        (("resume=runs/none",), "resume=runs/none: there is no run"),
        (("trainer.accelerator=gpu",), "trainer.accelerator=gpu"),
        (("training.max_tokens=16", "name=long"), "training.max_tokens=16 is less than one sentence pair"),
    ],
)
def test_bad_settings_get_one_line(
    end_of_training: Callable[..., str], overrides: tuple[str, ...], message: str
) -> None:
    if "gpu" in message and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    told = end_of_training(*overrides)
    assert told.startswith("error: ")
    assert message in told
    assert "\n" not in told
    assert len(told) < 2000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# @package _global_\nseed: [1", "own.yaml"),
        ("# @package a b c\nseed: 1", "Too many components"),
        ("# @package _global_\nseed: " + "9" * 5000, "4300 digits"),
    ],
)
def test_a_broken_preset_gets_one_line(
    end_of_training: Callable[..., str], tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "own" / "experiment").mkdir(parents=True)
    (tmp_path / "own" / "experiment" / "own.yaml").write_text(text)
    told = end_of_training("experiment=own", "--config-dir", str(tmp_path / "own"))
    assert told.startswith("error: ")
    assert message in told
    assert "\n" not in told
