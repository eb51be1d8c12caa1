import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seq2seq.bundle import load_bundle
from seq2seq.errors import UserError
from seq2seq.model.transformer import Transformer
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.batching import Batch
from seq2seq.training.finetune import (
    add_adapters,
    count_trained,
    freeze,
    make_model,
    mean_weights,
    merge_adapters,
    remove_adapters,
    start_from_bundle,
)
from seq2seq.training.module import TranslationModule

V = 23
SIZES = {"d_model": 12, "num_heads": 3, "d_ff": 20, "num_encoder_layers": 2, "num_decoder_layers": 2}
LORA = {"lora_rank": 2, "lora_alpha": 6.0, "lora_targets": ["q_proj", "v_proj", "up"]}


def transformer(**changes: object) -> Transformer:
    torch.manual_seed(3)
    return Transformer(ModelConfig(**{**SIZES, "dropout": 0.0, **changes}), V)  # type: ignore[arg-type]


def settings(**changes: object) -> TrainingConfig:
    return TrainingConfig(**{"max_tokens": 64, "learning_rate": 7e-4, "warmup_steps": 0, **changes})  # type: ignore[arg-type]


def updated(model: Transformer, config: TrainingConfig, updates: int = 3) -> Transformer:
    """Train in place with what the module's optimizer holds."""
    module = TranslationModule(model, config)
    optimizer = module.configure_optimizers()
    torch.manual_seed(4)
    tgt = torch.randint(4, V, (4, 5))
    batch = Batch(torch.randint(4, V, (4, 6)), tgt, tgt.roll(-1, 1))
    for step in range(updates):
        module.training_step(batch, step).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def state(model: Transformer) -> dict[str, Tensor]:
    return {name: weights.clone() for name, weights in model.state_dict().items()}


@pytest.mark.parametrize(
    ("names", "frozen"),
    [
        (["embedding", "decoder.1"], ["embedding.", "decoder_layers.1."]),
        (["encoder", "decoder"], ["encoder_layers.", "decoder_layers.", "encoder_norm.", "decoder_norm."]),
    ],
)
def test_frozen_parts_stay_to_the_last_bit_and_all_others_change(names: list[str], frozen: list[str]) -> None:
    model = transformer(norm="rmsnorm", norm_position="pre", bias=False)
    before = state(model)
    freeze(model, names)
    after = state(updated(model, settings(weight_decay=0.1)))
    for name, weights in after.items():
        assert torch.equal(weights, before[name]) == name.startswith(tuple(frozen)), name


def test_a_frozen_layer_is_not_the_layer_whose_number_begins_alike() -> None:
    model = transformer(num_decoder_layers=11)
    freeze(model, ["decoder.1"])
    trained = {name.split(".")[1] for name, p in model.named_parameters() if p.requires_grad and "decoder_l" in name}
    assert trained == {"0", *map(str, range(2, 11))}


def test_a_source_embedding_of_its_own_belongs_to_the_embedding_and_not_to_the_encoder() -> None:
    for name, frozen in (("encoder", False), ("embedding", True)):
        model = Transformer(ModelConfig(**SIZES), V, 17)  # type: ignore[arg-type]
        freeze(model, [name])
        assert model.encoder_embedding is not None
        assert model.encoder_embedding.weight.requires_grad != frozen


def test_parts_that_cannot_be_frozen_are_refused() -> None:
    with pytest.raises(UserError, match=r"freeze has decoder.2, .*: choose from embedding, encoder, encoder.0, enc"):
        freeze(transformer(), ["encoder", "decoder.2"])
    with pytest.raises(UserError, match=r"leaves nothing to train: freeze less"):
        freeze(transformer(), ["encoder", "decoder", "embedding"])


@pytest.mark.usefixtures("peft")
def test_adapters_begin_without_effect_and_only_they_are_trained() -> None:
    plain, adapted, config = transformer(), transformer(), settings(**LORA)
    add_adapters(adapted, config)
    ids = torch.randint(4, V, (2, 5))
    assert_close(adapted(ids, ids), plain(ids, ids))
    total = sum(weights.numel() for weights in plain.parameters())
    attention, up = 6 * 2 * 2 * (12 + 12), 4 * 2 * (12 + 20)  # matrices × rank × (in + out); 6 attentions, 4 networks
    assert count_trained(adapted) == attention + up < total / 3
    groups = TranslationModule(adapted, config).configure_optimizers().param_groups
    assert sum(weights.numel() for group in groups for weights in group["params"]) == attention + up
    before = state(adapted)
    after = state(updated(adapted, config))
    changed = {name for name, weights in after.items() if not torch.equal(weights, before[name])}
    assert all("lora_" in name for name in changed)
    assert {name for name in after if "lora_B" in name} < changed  # A's gradient is next to nothing while B is


@pytest.mark.usefixtures("peft")
def test_merged_weights_give_the_adapted_models_outputs() -> None:
    adapted, config = transformer(), settings(**LORA)
    add_adapters(adapted, config)
    for name, weights in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weights, std=0.3)
    ids = torch.randint(4, V, (2, 5))
    expected, trained = adapted(ids, ids).detach(), state(adapted)
    assert not torch.allclose(expected, transformer()(ids, ids))
    remove_adapters(adapted)
    assert_close(adapted(ids, ids), transformer()(ids, ids))
    assert adapted.state_dict().keys() == transformer().state_dict().keys()
    adapted.load_state_dict(merge_adapters(trained, config))
    assert_close(adapted(ids, ids), expected)
    assert count_trained(adapted) == sum(weights.numel() for weights in transformer().parameters())


@pytest.mark.usefixtures("peft")
def test_adapters_may_be_frozen_with_their_part() -> None:
    model = transformer()
    add_adapters(model, settings(**LORA))
    freeze(model, ["encoder"])
    trained = [name for name, weights in model.named_parameters() if weights.requires_grad]
    assert trained
    assert all(name.startswith("decoder") and "lora_" in name for name in trained)


def test_wrong_targets_are_refused_with_the_right_ones() -> None:
    with pytest.raises(UserError, match=r"lora_targets has query, .* choose from \['down', 'k_proj', 'out_proj'"):
        add_adapters(transformer(), settings(lora_rank=2, lora_targets=["query"]))
    with pytest.raises(UserError, match=r"lora_targets is empty"):
        add_adapters(transformer(), settings(lora_rank=2, lora_targets=[]))


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
    with pytest.raises(UserError, match=r"lora_rank=4 adapts a finished model: name one with init=runs/NAME"):
        make_model(Config(training=settings(lora_rank=4)), (V, None), resumed=False)
