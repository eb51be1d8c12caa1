"""Training that starts from a finished model: its weights, sizes and vocabulary."""

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path

from seq2seq.errors import UserError
from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.bundle import CONFIG, read_config
from seq2seq.settings.config import Config
from seq2seq.settings.model import DROPOUTS
from seq2seq.storage.output import find_model
from seq2seq.text.vocabulary import FILE, Sizes
from seq2seq.translate.bundle import load_bundle

log = logging.getLogger(__name__)
_NEW_VOCABULARY = {
    *("tokenizer", "tokenizer.type", "tokenizer.joint", "tokenizer.vocab_size", "tokenizer.byte_fallback"),
    *("tokenizer.character_coverage", "tokenizer.input_sentence_size", "tokenizer.model"),
}


def start_from_bundle(config: Config, overrides: Sequence[str]) -> Config:
    """Return config with the model settings and the tokenizer of the bundle that config.init names.

    overrides are the command line's `key=value`; they may change dropout. Settings from other places, such as files,
    are replaced silently.
    """
    assert config.init is not None
    folder = find_model(Path(config.init), option="init=").resolve()
    values, bundle = read_config(folder / CONFIG)
    named = {override.lstrip("+").partition("=")[0]: override.lstrip("+") for override in overrides}
    dropouts = {name: getattr(config.model, name) for name in DROPOUTS if f"model.{name}" in named}
    model = dataclasses.replace(bundle.model, **dropouts)
    for key, override in named.items():
        if key in _NEW_VOCABULARY:
            raise UserError(f"init={config.init} brings its own tokenizer: leave out {override}")
        for name, theirs in vars(model).items():
            ours = getattr(config.model, name)
            is_named = key == f"model.{name}" or (key in ("model", "model/style") and name not in DROPOUTS)
            if is_named and ours != theirs:
                raise UserError(
                    f"{override} gives {name}={ours}, but init={config.init} has {name}={theirs}: leave out {override}"
                )
    ours, theirs = (f"{languages.src_lang}→{languages.tgt_lang}" for languages in (config.data, bundle))
    if ours != theirs:
        log.warning(
            "init=%s translates %s, but this run trains %s: give data.src_lang=%s data.tgt_lang=%s to keep it",
            *(config.init, theirs, ours, bundle.src_lang, bundle.tgt_lang),
        )
    tokenizer = str(folder / FILE if (folder / FILE).exists() else folder)
    ready_made = dataclasses.replace(config.tokenizer, model=tokenizer, vocab_size=values["vocab_size"])
    return dataclasses.replace(config, init=str(folder), model=model, tokenizer=ready_made)


def make_model(config: Config, sizes: Sizes, *, resumed: bool) -> EncoderDecoder:
    """Return the model to train: random weights or, if they do not come from a checkpoint, those of config.init."""
    model = build_model(config.model, *sizes)
    if config.init is not None and not resumed:
        model.load_state_dict(load_bundle(Path(config.init)).model.state_dict())
    return model
