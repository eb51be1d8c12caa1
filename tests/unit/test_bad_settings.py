"""Wrong settings end train.py with one line. All of these runs are calls in this process."""

import logging
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from saved_runs import make_run

from tests.toy import FILES, TINY, write_corpus

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def end_of_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Call train.py on the toy corpus, in a folder that has a run named `finished`; return its last words."""
    write_corpus(tmp_path)
    make_run(tmp_path / "runs" / "finished")
    monkeypatch.chdir(tmp_path)
    for name, value in (("SEQ2SEQ_HOME", str(REPOSITORY)), ("HYDRA_FULL_ERROR", "1"), ("OMP_WAIT_POLICY", "PASSIVE")):
        monkeypatch.setenv(name, value)  # train.py sets them for its process
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def call(*overrides: str) -> str:
        monkeypatch.setattr(sys, "argv", ["train.py", *FILES, *TINY, "training.max_tokens=256", *overrides])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(REPOSITORY / "train.py"), run_name="__main__")
        return str(ended.value.code)

    yield call
    root.handlers[:] = handlers
    root.setLevel(level)
    GlobalHydra.instance().clear()
    HydraConfig.instance().cfg = None


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("data.train=[nothing.tsv]",), "nothing.tsv"),
        (("tokenizer.vocab_size=5000",), "tokenizer.vocab_size=5000 is larger"),
        (("model.d_modell=3",), "d_modell"),
        (("training.learning_rate=fast",), "training.learning_rate=fast"),
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
