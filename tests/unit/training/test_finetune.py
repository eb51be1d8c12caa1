import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig
from seq2seq.settings.model import ModelConfig
from seq2seq.training.averaging import mean_weights
from seq2seq.training.finetune import make_model, start_from_bundle
from seq2seq.translate.bundle import load_bundle


def test_a_mean_of_equal_weights_is_the_same_to_the_last_bit() -> None:
    weights = {"a": torch.randn(1000)}
    for count in (3, 5, 7):
        assert torch.equal(mean_weights([weights] * count)["a"], weights["a"])
    assert_close(mean_weights([{"a": torch.zeros(2)}, {"a": torch.ones(2)}]), {"a": torch.full((2,), 0.5)})


def test_the_bundle_decides_sizes_and_vocabulary(bundle_folder: Path) -> None:
    bundle = load_bundle(bundle_folder)
    config = Config(init=str(bundle_folder.parent))
    started = start_from_bundle(config, ["training.max_tokens=99"])
    assert started.model == bundle.config.model
    assert started.tokenizer.model == str(bundle_folder / "tokenizer.model")
    assert started.init == str(bundle_folder)
    model = make_model(started, bundle.tokenizer.sizes, resumed=False)
    assert_close(dict(model.state_dict()), dict(bundle.model.state_dict()))
    resumed = make_model(started, bundle.tokenizer.sizes, resumed=True)
    assert not torch.equal(resumed.embedding.weight, model.embedding.weight)


def test_dropout_may_differ_from_the_bundles_and_agreeing_settings_are_no_contradiction(bundle_folder: Path) -> None:
    model = load_bundle(bundle_folder).config.model
    config = Config(init=str(bundle_folder), model=ModelConfig(dropout=0.4, ffn_dropout=0.2))
    assert start_from_bundle(config, ["model.dropout=0.4"]).model == replace(model, dropout=0.4)
    config = Config(init=str(bundle_folder), model=model)
    assert start_from_bundle(config, ["model.d_model=24", "model=mine"]).model == model


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.d_model=64", r"d_model=64 gives d_model=64, but init=.* has d_model=24: leave out model.d_model=64"),
        ("model/style=modern", r"model/style=modern gives d_model=64"),
        ("tokenizer.vocab_size=99", r"brings its own tokenizer: leave out tokenizer.vocab_size=99"),
        ("tokenizer=bpe", r"brings its own tokenizer: leave out tokenizer=bpe"),
    ],
)
def test_what_contradicts_the_bundle_is_refused_by_name(bundle_folder: Path, override: str, message: str) -> None:
    config = Config(init=str(bundle_folder), model=ModelConfig(d_model=64))
    with pytest.raises(UserError, match=message):
        start_from_bundle(config, [override])


def test_a_bundle_of_another_direction_is_warned_of(bundle_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = load_bundle(bundle_folder).config.model
    start_from_bundle(Config(init=str(bundle_folder), model=model), [])
    assert caplog.messages == []
    reverse = DataConfig(src_lang="es", tgt_lang="en")
    start_from_bundle(Config(init=str(bundle_folder), model=model, data=reverse), [])
    message = "translates en→es, but this run trains es→en: give data.src_lang=en data.tgt_lang=es to keep it"
    assert caplog.messages == [f"init={bundle_folder} {message}"]


def test_starting_from_nothing_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"init=.*none is no folder: give runs/NAME or runs/NAME/model"):
        start_from_bundle(Config(init=str(tmp_path / "none")), [])
    with pytest.raises(UserError, match=rf"^{re.escape(str(tmp_path))} is not a whole model: config.json is missing$"):
        start_from_bundle(Config(init=str(tmp_path)), [])
