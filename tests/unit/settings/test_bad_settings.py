"""Wrong settings end train.py with one line; the tests call train.py in this process."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from saved_runs import make_run

from tests.thin import thin
from tests.toy import FILES, TINY, write_corpus

REPOSITORY = Path(__file__).parents[3]


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


OF_SETTINGS = [
    ("tokenizer.vocab_size=3000000000", "tokenizer.vocab_size=3000000000 must be at most 2147483647"),
    ("tokenizer.user_symbols=['</s>']", "tokenizer.user_symbols has </s>, which every tokenizer has anyway"),
    ("tokenizer.user_symbols=['▁x']", "tokenizer.user_symbols has '▁x': a symbol is one word"),
    ("data.train=[{a: b}]", "data.train=[{'a': 'b'}] is no list of words"),
    ("seed=" + "9" * 5000, "4300 digits"),
    ("model=" + "x" * 5000, "xxx: File name too long"),
]
OF_A_RUN = [
    ("data.train=[nothing.tsv]", "nothing.tsv"),
    ("tokenizer.vocab_size=5000", "tokenizer.vocab_size=5000 is larger"),
    ("data.cache='~nobody-here/c'", "~nobody-here/c: the home of this user is not known here"),
    ("name=finished", "is a run already: choose another name="),
    ("trainer.accelerator=gpu", "trainer.accelerator=gpu"),
    ("training.max_tokens=16", "training.max_tokens=16 is less than one sentence pair"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "message"), thin([*OF_SETTINGS, *OF_A_RUN], [OF_SETTINGS[4], OF_A_RUN[0]]), ids=lambda text: text[:40]
)
def test_bad_settings_get_one_line(end_of_training: Callable[..., str], override: str, message: str) -> None:
    if "gpu" in message and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    error = end_of_training(override)
    assert error.startswith("error: ")
    assert message in error
    assert "\n" not in error
    assert len(error) < 2000
