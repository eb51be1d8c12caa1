"""Whole runs that start from a finished model: frozen parts, adapters, resume, sides exchanged."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from seq2seq.bundle import load_bundle
from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.settings.loading import load_config
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.trainer import TrainerConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.training.finetune import start_from_bundle
from seq2seq.training.run import train
from seq2seq.training.run_folder import prepare_folder
from tests.toy import PAIRS, write_corpus

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore"),  # Lightning's, about loaders and folders
]
DROPOUT = 0.1


@pytest.fixture(scope="module", autouse=True)
def _environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQ2SEQ_RUN", "")  # a run sets it for the processes that it starts
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("finetuning"))


def config(place: Path, name: str, *, updates: int = 4, **training: object) -> Config:
    values = {"max_tokens": 256, "bleu_sentences": 2, "warmup_steps": 2, "learning_rate": 1e-2}
    values |= {"schedule": "inverse_sqrt", **training}
    return Config(
        name=name,
        data=DataConfig(
            root=str(place),
            train=["train.tsv"],
            validation=["validation.tsv"],
            test=["test.tsv"],
            remove_overlap=False,
            languages=["en", "es"],
        ),
        tokenizer=TokenizerConfig(vocab_size=300),
        model=ModelConfig(
            d_model=16, num_heads=2, d_ff=32, num_encoder_layers=1, num_decoder_layers=1, dropout=DROPOUT
        ),
        training=TrainingConfig(**values),  # type: ignore[arg-type]
        trainer=TrainerConfig(
            accelerator="cpu", precision="32-true", max_steps=updates, validate_every=4, checkpoint_every=2, log_every=1
        ),
    )


def run(place: Path, config: Config) -> Path:
    if config.init is not None:
        config = start_from_bundle(config, [])
    train(*prepare_folder(config, place / "runs"))
    assert config.name is not None
    return place / "runs" / config.name


def weights(folder: Path) -> dict[str, Tensor]:
    return load_bundle(folder / "model").model.state_dict()


@pytest.fixture(scope="module")
def base(place: Path) -> Path:
    return run(place, config(place, "base"))


def test_fine_tuning_starts_from_the_bundle_and_leaves_frozen_parts_alone(place: Path, base: Path) -> None:
    folder = run(place, replace(config(place, "frozen", freeze=["encoder", "embedding"]), init=str(base)))
    before, after = weights(base), weights(folder)
    for name, tensor in after.items():
        assert torch.equal(tensor, before[name]) == name.startswith(("encoder", "embedding")), name
    assert (folder / "model/tokenizer.model").read_bytes() == (base / "model/tokenizer.model").read_bytes()
    results = json.loads((folder / "results.json").read_text())
    assert results["trained_parameters"] < results["parameters"]
    assert "It began with the weights of `base/model`.\n4 updates" in (folder / "model/README.md").read_text()


def test_adapters_resume_exactly_and_end_in_a_plain_bundle(place: Path, base: Path) -> None:
    lora = {"lora_rank": 2, "lora_dropout": 0.2, "ema_decay": 0.9, "final_weights": "ema"}
    straight = run(place, replace(config(place, "straight", updates=6, **lora), init=str(base)))
    halved = run(place, replace(config(place, "halved", updates=4, **lora), init=str(base)))
    train(*prepare_folder(load_config(str(halved), ["trainer.max_steps=6"]), place / "runs"))
    whole, resumed, before = weights(straight), weights(halved), weights(base)
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.items())
    changed = {name for name, tensor in whole.items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name in before if name.endswith(("q_proj.weight", "v_proj.weight"))}
    assert json.loads((straight / "results.json").read_text())["trained_parameters"] == 3 * 2 * 2 * (16 + 16)
    with pytest.raises(UserError, match=r"written with another training.lora_rank, lora_alpha and lora_targets"):
        train(
            *prepare_folder(load_config(str(halved), ["trainer.max_steps=9", "training.lora_alpha=3"]), place / "runs")
        )
    with pytest.raises(UserError, match=r"init= cannot be changed on resume"):
        load_config(str(halved), [f"init={base}"])


def test_exchanged_languages_train_the_reverse_model(place: Path) -> None:
    reverse = config(place, "reverse", updates=2)
    reverse.data = replace(reverse.data, src_lang="es", tgt_lang="en")
    folder = run(place, reverse)
    described = json.loads((folder / "model/config.json").read_text())
    assert (described["src_lang"], described["tgt_lang"]) == ("es", "en")
    card = (folder / "model/README.md").read_text()
    source, reference = PAIRS[75][1], PAIRS[75][0]
    assert f"| {source} |" in card
    assert f"| {reference} |\n" in card
