"""Training that starts from a finished model: its sizes and vocabulary.

Knows no data and no updates.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from seq2seq.bundle import load_bundle
from seq2seq.errors import UserError
from seq2seq.files import find_model
from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.bundle import CONFIG, read_config
from seq2seq.settings.config import Config
from seq2seq.settings.model import ModelConfig
from seq2seq.text.vocabulary import FILE, Sizes

log = logging.getLogger(__name__)
NO_SIZES = ("dropout", "attention_dropout", "ffn_dropout")  # settings that the weights do not depend on
_NEW_VOCABULARY = tuple(
    f"tokenizer.{key}="
    for key in ("type", "joint", "vocab_size", "byte_fallback", "character_coverage", "input_sentence_size", "model")
)


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
    """Return the model to train: random weights or those of config.init.

    A resumed run's weights come from its checkpoint, so config.init is not read again.
    """
    model = build_model(config.model, *sizes)
    if config.init is not None and not resumed:
        model.load_state_dict(load_bundle(Path(config.init)).model.state_dict())
    return model


def mean_weights(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each weight, computed in float64, so that the mean of equal weights equals them exactly."""
    return {
        name: torch.stack([state[name].double() for state in states]).mean(0).to(first.dtype)
        for name, first in states[0].items()
    }
