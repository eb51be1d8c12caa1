"""Training that starts from a finished model: its sizes and vocabulary, frozen parts, low-rank adapters.

Knows no data and no updates.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from seq2seq.bundle import load_bundle
from seq2seq.errors import UserError
from seq2seq.extras import needing
from seq2seq.files import find_model
from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.bundle import CONFIG, read_config
from seq2seq.settings.config import Config
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.vocabulary import FILE, Sizes

log = logging.getLogger(__name__)
NO_SIZES = ("dropout", "attention_dropout", "ffn_dropout")  # settings that the weights do not depend on
_NEW_VOCABULARY = tuple(
    f"tokenizer.{key}="
    for key in ("type", "joint", "vocab_size", "byte_fallback", "character_coverage", "input_sentence_size", "model")
)
_ADAPTER = "default"  # PEFT's name of the only adapter


def start_from_bundle(config: Config, overrides: Sequence[str]) -> Config:
    """Return config with the model settings and the tokenizer of the bundle that config.init names.

    overrides are the command line's `key=value`; they may change dropout. Settings from other places, such as files,
    are replaced silently.

    Raises:
        UserError: the bundle does not exist, or an override contradicts it.
    """
    assert config.init is not None
    folder = find_model(Path(config.init), option="init=").resolve()
    values, bundle = read_config(folder / CONFIG)
    overrides = [override.lstrip("+") for override in overrides]
    sizes = [field.name for field in dataclasses.fields(ModelConfig) if field.name not in NO_SIZES]
    for override in overrides:
        key = override.partition("=")[0]
        if key == "tokenizer" or override.startswith(_NEW_VOCABULARY):
            raise UserError(f"init={config.init} brings its own tokenizer: leave out {override}")
        for name in sizes if key in ("model", "model/style") else set(sizes) & {key.removeprefix("model.")}:
            ours, theirs = getattr(config.model, name), getattr(bundle.model, name)
            if ours != theirs:
                raise UserError(
                    f"{override} gives {name}={ours}, but init={config.init} has {name}={theirs}: leave out {override}"
                )
    ours, theirs = (f"{one.src_lang}→{one.tgt_lang}" for one in (config.data, bundle))
    if ours != theirs:
        log.warning(
            "init=%s translates %s, but this run trains %s: give data.src_lang=%s data.tgt_lang=%s to keep it",
            *(config.init, theirs, ours, bundle.src_lang, bundle.tgt_lang),
        )
    given = {override.partition("=")[0] for override in overrides}
    kept = {name: getattr(config.model, name) for name in NO_SIZES if f"model.{name}" in given}
    return dataclasses.replace(
        config,
        init=str(folder),
        model=dataclasses.replace(bundle.model, **kept),
        tokenizer=dataclasses.replace(
            config.tokenizer,
            model=str(folder / FILE if (folder / FILE).exists() else folder),
            vocab_size=values["vocab_size"],
        ),
    )


def make_model(config: Config, sizes: Sizes, *, resumed: bool) -> EncoderDecoder:
    """Return the model to train: random weights or those of config.init, with adapters and frozen parts.

    A resumed run's weights come from its checkpoint, so config.init is not read again.

    Raises:
        UserError: the bundle does not fit, a frozen part is unknown, nothing is left to train, or PEFT is missing.
    """
    model = build_model(config.model, *sizes)
    if config.init is not None and not resumed:
        model.load_state_dict(load_bundle(Path(config.init)).model.state_dict())
    if config.training.lora_rank:
        if config.init is None:
            raise UserError(
                f"training.lora_rank={config.training.lora_rank} adapts a finished model: name one with init=runs/NAME"
            )
        add_adapters(model, config.training)
    freeze(model, config.training.freeze)
    return model


def parts(model: EncoderDecoder) -> dict[str, tuple[str, ...]]:
    """Return the parts that can be frozen, each with the prefixes of its parameters' names."""
    found: dict[str, tuple[str, ...]] = {"embedding": ("embedding.", "encoder_embedding.")}
    encoder, decoder = ("encoder_layers.", "encoder_norm."), ("decoder_",)
    for side, prefixes, layers in (
        ("encoder", encoder, model.encoder_layers),
        ("decoder", decoder, model.decoder_layers),
    ):
        found[side] = prefixes
        found |= {f"{side}.{number}": (f"{side}_layers.{number}.",) for number in range(len(layers))}
    return found


def freeze(model: EncoderDecoder, names: Sequence[str]) -> None:
    """Exclude parts from training. The embedding is also the output projection; dropout in frozen parts stays on.

    Raises:
        UserError: the model has no part of this name, or nothing is left to train.
    """
    known = parts(model)
    for name in names:
        if name not in known:
            raise UserError(
                f"training.freeze has {name}, which is no part of the model: choose from {', '.join(known)}"
            )
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.startswith(known[name]):
                parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(f"training.freeze={list(names)} leaves nothing to train: freeze less")


def count_trained(model: nn.Module) -> int:
    """Return the number of parameters that training changes."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def add_adapters(model: EncoderDecoder, config: TrainingConfig) -> None:
    """Add LoRA (Hu et al. 2022) to linear layers, by PEFT: W x + α/r · B A x; only A and B are trained.

    B begins at zero, so that new adapters do not change what the model computes.

    Raises:
        UserError: PEFT is not installed, or a target is no linear layer's name.
    """
    linears = sorted({name.rpartition(".")[2] for name, one in model.named_modules() if isinstance(one, nn.Linear)})
    for target in config.lora_targets:
        if target not in linears:
            raise UserError(f"training.lora_targets has {target}, which is no linear layer: choose from {linears}")
    if not config.lora_targets:
        raise UserError(f"training.lora_targets is empty: choose from {linears}")
    with needing("peft", "training.lora_rank"):
        from peft import LoraConfig, inject_adapter_in_model
    settings = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,  # pyright: ignore[reportArgumentType] (a float works)
        lora_dropout=config.lora_dropout,
        target_modules=list(config.lora_targets),
    )
    inject_adapter_in_model(settings, model, _ADAPTER)


def merge_adapters(state: Mapping[str, Tensor], config: TrainingConfig) -> dict[str, Tensor]:
    """Return the weights of a model with its adapters merged: W + α/r · B A; weights without adapters do not change.

    Merge before taking a mean: the mean of the factors differs from the mean of the products.
    """
    merged = {}
    for name, weights in state.items():
        if ".lora_" in name:
            continue
        plain = name.replace(".base_layer.", ".")
        if plain != name and name.endswith(".weight"):
            of_layer = plain.removesuffix(".weight")
            down, up = (state[f"{of_layer}.lora_{side}.{_ADAPTER}.weight"] for side in "AB")
            weights = weights + config.lora_alpha / config.lora_rank * (up @ down)
        merged[plain] = weights
    return merged


def remove_adapters(model: EncoderDecoder) -> None:
    """Remove the adapters; the other weights stay."""
    for name, module in list(model.named_modules()):
        if isinstance(base := getattr(module, "base_layer", None), nn.Linear):
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, base)
    if hasattr(model, "peft_config"):
        del model.peft_config
    model.requires_grad_(True)


def mean_weights(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each weight, computed in float64, so that the mean of equal weights equals them exactly."""
    return {
        name: torch.stack([state[name].double() for state in states]).mean(0).to(first.dtype)
        for name, first in states[0].items()
    }
