"""Whole runs that start from a finished model: frozen parts, adapters, resume, sides exchanged."""

import json
from pathlib import Path

import pytest
import torch
from launcher import Launcher
from small_run import RUN, fails_in_one_line
from torch import Tensor

from seq2seq.bundle import load_bundle
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
    result = launcher.train(*overrides, cwd=workdir)
    assert result.status == 0, result.output


def weights(folder: Path) -> dict[str, Tensor]:
    return load_bundle(folder / "model").model.state_dict()


def test_fine_tuning_starts_from_the_bundle_and_leaves_frozen_parts_alone(launcher: Launcher, workdir: Path) -> None:
    base, frozen = workdir / "runs/base", workdir / "runs/frozen"
    run(launcher, workdir, *SHORT, "name=frozen", "init=runs/base", "training.freeze=[encoder,embedding]")
    before, after = weights(base), weights(frozen)
    for name, tensor in after.items():
        assert torch.equal(tensor, before[name]) == name.startswith(("encoder", "embedding")), name
    assert (frozen / "model/tokenizer.model").read_bytes() == (base / "model/tokenizer.model").read_bytes()
    results = json.loads((frozen / "results.json").read_text())
    assert results["trained_parameters"] < results["parameters"]
    assert "It began with the weights of `base/model`.\n4 updates" in (frozen / "model/README.md").read_text()


def test_adapters_resume_exactly_and_end_in_a_plain_bundle(launcher: Launcher, workdir: Path) -> None:
    adapters = ("init=runs/base", "training.lora_rank=2", "training.lora_dropout=0.2")
    adapters += ("training.ema_decay=0.9", "training.final_weights=ema")
    run(launcher, workdir, *SHORT, *adapters, "name=straight", "trainer.max_steps=6")
    run(launcher, workdir, *SHORT, *adapters, "name=halved")
    run(launcher, workdir, "resume=runs/halved", "trainer.max_steps=6")
    before, straight, resumed = (weights(workdir / "runs" / name) for name in ("base", "straight", "halved"))
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in straight.items())
    changed = {name for name, tensor in straight.items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name in before if name.endswith(("q_proj.weight", "v_proj.weight"))}
    results = json.loads((workdir / "runs/straight/results.json").read_text())
    assert results["trained_parameters"] == 3 * 2 * 2 * (16 + 16)
    for override, message in (
        ("training.lora_alpha=3", "written with another training.lora_rank, lora_alpha and lora_targets"),
        ("init=runs/base", "init= cannot be changed on resume"),
    ):
        refused = launcher.train("resume=runs/halved", "trainer.max_steps=9", override, cwd=workdir)
        fails_in_one_line(refused, message)


def test_exchanged_languages_train_the_reverse_model(launcher: Launcher, workdir: Path) -> None:
    run(launcher, workdir, *SHORT, *NEW, "name=reverse", "data.src_lang=es", "data.tgt_lang=en")
    model = workdir / "runs/reverse/model"
    described = json.loads((model / "config.json").read_text())
    assert (described["src_lang"], described["tgt_lang"]) == ("es", "en")
    card = (model / "README.md").read_text()
    reference, source = PAIRS[75]
    assert f"| {source} |" in card
    assert f"| {reference} |\n" in card
