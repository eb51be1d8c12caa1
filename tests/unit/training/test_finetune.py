import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
import yaml
from torch.testing import assert_close

from seq2seq.errors import UserError
from seq2seq.model.build import build_model
from seq2seq.settings.bundle import Calibration
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.training.averaging import average_bundles, average_checkpoints, checkpoints_by_update, mean_weights
from seq2seq.training.checkpoints import RECORD
from seq2seq.training.finetune import make_model, start_from_bundle
from seq2seq.training.module import TranslationModule
from seq2seq.translate.bundle import Bundle, load_bundle, save_bundle
from tests.refusing import refuses


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
    refuses(message, start_from_bundle, config, [override])


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


def variant(folder: Path, of: Path, seed: int, **changes: object) -> Path:
    """A bundle with other weights; changes are the model's settings."""
    bundle = load_bundle(of)
    config = replace(bundle.config, model=replace(bundle.config.model, **changes))  # type: ignore[arg-type]
    torch.manual_seed(seed)
    model = build_model(config.model, bundle.tokenizer.target.vocab_size)
    save_bundle(folder, Bundle(model, bundle.tokenizer, config), card="")
    return folder


@pytest.mark.slow
def test_a_mean_of_bundles_has_the_mean_of_each_weight_and_says_of_what(bundle_folder: Path, tmp_path: Path) -> None:
    others = [variant(tmp_path / "b", bundle_folder, 1, dropout=0.5), variant(tmp_path / "c", bundle_folder, 2)]
    like = load_bundle(bundle_folder)
    like.config.calibration = Calibration(1.0, 2.0, 3.0, 4.0)  # of these weights
    save_bundle(tmp_path / "a", like, card="")
    folders = [tmp_path / "a", *others, others[0]]  # one counts twice
    assert average_bundles(folders, tmp_path / "mean") == [str(folder) for folder in folders]
    states = [load_bundle(folder).model.state_dict() for folder in folders]
    mean = load_bundle(tmp_path / "mean")
    for name, weights in mean.model.state_dict().items():
        assert_close(weights, torch.stack([state[name] for state in states]).mean(0))
    assert mean.config == load_bundle(bundle_folder).config
    card = (tmp_path / "mean/README.md").read_text()
    assert card.startswith("---\nlanguage: [en, es]\n")
    assert "the mean of 4 models" in card
    assert all(f"- `{folder}`" in card for folder in folders)


@pytest.mark.slow
def test_only_like_models_have_a_mean(bundle_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    def refused(folder: Path, message: str) -> None:
        refuses(message, average_bundles, [bundle_folder, folder], tmp_path / "mean")
        assert not (tmp_path / "mean").exists()

    wide = variant(tmp_path / "wide", bundle_folder, 1, d_ff=48)
    refused(wide, r"wide has d_ff=48, but .* has 40: only models of the")
    bundle = load_bundle(bundle_folder)
    save_bundle(tmp_path / "back", replace(bundle, config=replace(bundle.config, src_lang="fr")), card="")
    refused(tmp_path / "back", r"back translates fr→es, but .* en→es: only like models")
    other = tokenizer.model_bytes + b"\xca\x3e\x01x"  # a field that SentencePiece does not know
    save_bundle(tmp_path / "words", replace(bundle, tokenizer=Tokenizers.joint(Tokenizer(other))), card="")
    refused(tmp_path / "words", r"words has another vocabulary than .*: a mean needs the same tokenizer")
    refuses(r"1 model: give --model at least twice", average_bundles, [bundle_folder], tmp_path / "mean")


@pytest.fixture
def run(bundle_folder: Path, tmp_path: Path) -> Path:
    """A run's folder with checkpoints of updates 2, 4 and 6."""
    folder, bundle, settings = tmp_path / "run", load_bundle(bundle_folder), TrainingConfig()
    (folder / "checkpoints").mkdir(parents=True)
    save_bundle(folder / "model", bundle, card="")
    (folder / "config.yaml").write_text(yaml.safe_dump(asdict(Config(training=settings))))
    for update, name in ((2, "best-step=0000002-val_bleu=1.00"), (4, "step=0000004"), (6, "step=0000006")):
        torch.manual_seed(update)
        model = build_model(bundle.config.model, bundle.tokenizer.target.vocab_size)
        module = TranslationModule(
            model, settings, vocabulary=json.loads((folder / "model/config.json").read_text())["tokenizer_sha256"][:16]
        )
        checkpoint = {"state_dict": module.state_dict(), RECORD: {"corpora": {}, "settings": {}}}
        module.on_save_checkpoint(checkpoint)
        torch.save(checkpoint, folder / f"checkpoints/{name}.ckpt")
    return folder


@pytest.mark.slow
def test_the_last_checkpoints_of_a_run_are_averaged(run: Path, tmp_path: Path) -> None:
    names = average_checkpoints(run, 2, tmp_path / "mean")
    assert [Path(name).stem for name in names] == ["step=0000004", "step=0000006"]
    states = [torch.load(name, weights_only=True)["state_dict"] for name in names]
    for name, weights in load_bundle(tmp_path / "mean").model.state_dict().items():
        assert_close(weights, (states[0][f"model.{name}"] + states[1][f"model.{name}"]) / 2)
    assert "step=0000006.ckpt" in (tmp_path / "mean/README.md").read_text()


@pytest.mark.slow
def test_damaged_and_equal_checkpoints_are_no_part_of_a_mean(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for name in ("best-step=0000002-val_bleu=1.00", "step=0000002", "step=0000004", "damaged-step=0000006"):
        (folder / f"{name}.ckpt").touch()
    assert checkpoints_by_update(tmp_path) == {2: folder / "step=0000002.ckpt", 4: folder / "step=0000004.ckpt"}


@pytest.mark.slow
def test_checkpoints_that_cannot_be_averaged_are_named(run: Path, tmp_path: Path) -> None:
    def refused(last: int, message: str, run: Path = run) -> None:
        refuses(message, average_checkpoints, run, last, tmp_path / "mean")

    refused(4, r"checkpoints has checkpoints of 3 updates, --last asks for 4: lower it, or .* trainer.keep_last=4")
    refused(1, r"--last 1 has no mean")
    refused(2, r"no model at .*nothing", tmp_path / "nothing")
    newest = run / "checkpoints/step=0000006.ckpt"
    good = torch.load(newest, weights_only=True)
    torch.save({**good, "state_dict": good["state_dict"] | {"model.lora_A": torch.zeros(2)}}, newest)
    refused(2, r"step=0000006.ckpt has other weights than .*run/model: only weights of the same layers have a mean")
    good["belongs_to"]["vocabulary"] = "another"
    torch.save(good, newest)
    refused(2, r"step=0000006.ckpt has another vocabulary than .*run/model: a mean needs")
    del good["belongs_to"]["architecture"]  # as checkpoints were before there was a choice
    good["belongs_to"]["d_ff"] = 48
    torch.save(good, newest)
    refused(2, r"step=0000006.ckpt has d_ff=48, but .*run/model has 40: only models of the same sizes")
    torch.save({RECORD: {"corpora": {}, "settings": {}}, "state_dict": {}}, newest)
    refused(2, r"step=0000006.ckpt holds no weights: restore it")
    newest.write_bytes(b"damaged")
    refused(2, r"step=0000006.ckpt is damaged \(.*\)")
