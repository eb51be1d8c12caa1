"""Whole runs that start from a finished model, resume, and exchange the sides."""

import json
from pathlib import Path

import pytest
import torch
from launcher import Launcher
from small_run import RUN, fails_in_one_line

from seq2seq.translate.bundle import load_bundle
from tests.toy import PAIRS, TINY, write_corpus

pytestmark = pytest.mark.system
SHORT = (
    *RUN, "training.learning_rate=1e-2", "training.schedule=inverse_sqrt", "training.ema_decay=0",
    "training.final_weights=last", "trainer.precision=32-true", "trainer.max_steps=4", "trainer.validate_every=4",
    "trainer.checkpoint_every=2",
)  # fmt: skip
NEW = ("model=tiny", *TINY)


@pytest.fixture(scope="module")
def workdir(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with the run `base`."""
    folder = write_corpus(tmp_path_factory.mktemp("finetuning"))
    run(launcher, folder, *SHORT, *NEW, "name=base")
    return folder


def run(launcher: Launcher, workdir: Path, *overrides: str) -> None:
    launcher.complete(*overrides, cwd=workdir)


def test_fine_tuning_starts_from_the_bundle_and_resumes_exactly(launcher: Launcher, workdir: Path) -> None:
    base, straight, halved = (workdir / "runs" / name for name in ("base", "straight", "halved"))
    tuning = ("init=runs/base", "training.ema_decay=0.9", "training.final_weights=ema")
    run(launcher, workdir, *SHORT, *tuning, "name=straight", "trainer.max_steps=6")
    run(launcher, workdir, *SHORT, *tuning, "name=halved")
    run(launcher, workdir, "resume=runs/halved", "trainer.max_steps=6")
    before, after, resumed = (load_bundle(run / "model").model.state_dict() for run in (base, straight, halved))
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in after.items())
    name = "embedding.weight"
    assert 0 < (after[name] - before[name]).abs().max() < 0.07  # six updates by AdamW at 1e-2
    assert (straight / "model/tokenizer.model").read_bytes() == (base / "model/tokenizer.model").read_bytes()
    assert "It began with the weights of `base/model`.\n6 updates" in (straight / "model/README.md").read_text()
    refused = launcher.train("resume=runs/halved", "trainer.max_steps=9", "init=runs/base", cwd=workdir)
    fails_in_one_line(refused, "init= cannot be changed on resume")


def test_exchanged_languages_train_the_reverse_model(launcher: Launcher, workdir: Path) -> None:
    run(launcher, workdir, *SHORT, *NEW, "name=reverse", "data.src_lang=es", "data.tgt_lang=en")
    model = workdir / "runs/reverse/model"
    described = json.loads((model / "config.json").read_text())
    assert (described["src_lang"], described["tgt_lang"]) == ("es", "en")
    card = (model / "README.md").read_text()
    assert "# reverse: es→en translation" in card
    assert 'seq2seq translate --model FOLDER "La bola es azul."\n' in card
    reference, source = PAIRS[75]
    assert f"| {source} |" in card
    assert f"| {reference} |\n" in card
