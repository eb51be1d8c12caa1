"""Read a folder with a Marian model in Hugging Face's layout as a bundle with the same scores."""

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seq2seq.bundle import Bundle
from seq2seq.errors import UserError, in_short
from seq2seq.exchange.huggingface import weights_of
from seq2seq.exchange.huggingface_tokenizers import GENERATION, SETTINGS, read_json, read_tokenizers
from seq2seq.exchange.huggingface_weights import (
    BIAS,
    read_weights,
    require_fixed_positions,
    require_same,
    require_tied,
)
from seq2seq.extras import needing
from seq2seq.model.build import build_without_values
from seq2seq.settings.bundle import ARCHITECTURE, CONFIG, BundleConfig, read_bounded
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig, change_search
from seq2seq.text.tokenizer import EOS, PAD
from seq2seq.text.vocabulary import Tokenizers

with needing("huggingface"):
    from huggingface_hub.errors import StrictDataclassError
    from transformers import GenerationConfig, MarianConfig

MOST_BYTES = 1_000_000  # largest size of config.json and of README.md
log = logging.getLogger(__name__)
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
_REQUIRED = {  # required values: transformers' Marian or this project has no code for others
    "is_encoder_decoder": True,
    "tie_word_embeddings": True,
    "static_position_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "add_bias_logits": False,
    "quantization_config": None,
}
_USED = (  # settings of config.json that are read; transformers' defaults replace missing ones
    "d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads",
    "encoder_ffn_dim", "decoder_ffn_dim", "dropout", "attention_dropout", "activation_dropout", "activation_function",
    "scale_embedding", "pad_token_id", "eos_token_id", "decoder_start_token_id", "share_encoder_decoder_embeddings",
)  # fmt: skip
_SEARCH = {"num_beams": "beam", "length_penalty": "length_penalty", "no_repeat_ngram_size": "no_repeat_ngram"}
_READ = (
    "decoder_start_token_id",
    "bad_words_ids",
    "suppress_tokens",
    "renormalize_logits",
    "eos_token_id",
    "forced_bos_token_id",
    *_SEARCH,
)
_HARMLESS = (  # settings of a search that change no translation, or that our search sets in another way
    "transformers_version", "_from_model_config", "pad_token_id", "bos_token_id", "forced_eos_token_id", "max_length",
    "use_cache", "early_stopping", "num_return_sequences", "return_dict_in_generate", "output_attentions",
    "output_hidden_states", "output_scores", "output_logits",
)  # fmt: skip
_FACTORS = (  # settings of a search that change nothing at 1
    "temperature", "top_p", "typical_p", "repetition_penalty", "encoder_repetition_penalty", "num_beam_groups",
    "guidance_scale",
)  # fmt: skip


def read_huggingface(folder: Path) -> Bundle:
    """Read a Marian model from a folder that `save_pretrained` wrote, without executing any code in it.

    Raises:
        UserError: a file is missing or damaged, or this project does not support the model.
    """
    values = _read_config(folder)
    try:
        theirs = MarianConfig.from_dict({key: values[key] for key in _USED if key in values})
    except (StrictDataclassError, AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{folder / CONFIG} is damaged: {in_short(error)}") from error
    generation = _read_generation(folder, values, theirs)
    tokenizer = read_tokenizers(folder, generation, is_shared=theirs.share_encoder_decoder_embeddings)
    _require_same_ids(folder, theirs, tokenizer)
    config, state = _model_config(folder, values, theirs), read_weights(folder)
    if (layers := config.num_encoder_layers + config.num_decoder_layers) > len(state):
        raise UserError(f"{folder}: {len(state)} weights are no {layers} layers, which {CONFIG} wants")
    require_fixed_positions(folder, state, config.d_model)
    require_tied(folder, state, is_shared=tokenizer.is_shared)
    config.output_bias = BIAS in state and bool(state[BIAS].any())
    model = build_without_values(config, *tokenizer.sizes)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    require_same(folder, state, config, tokenizer, shapes)
    model.load_state_dict(weights_of(state, config, tokenizer), assign=True)
    bundle = BundleConfig(config, _search(folder / GENERATION, generation, tokenizer), *_languages(folder))
    return Bundle(model.eval(), tokenizer, bundle)


def _languages(folder: Path) -> tuple[str, str]:
    """Return the source and target languages that tokenizer_config.json names, by default en and es.

    Raises:
        UserError: a value is not the name of a language.
    """
    settings = read_json(folder / SETTINGS) if (folder / SETTINGS).exists() else {}
    languages = [settings.get(f"{side}_lang") or default for side, default in (("source", "en"), ("target", "es"))]
    for language in languages:
        if not (isinstance(language, str) and re.fullmatch(r"[\w+-]{1,40}", language)):
            raise UserError(in_short(f"{folder / SETTINGS} names a language {language!r}: it is damaged"))
    return languages[0], languages[1]


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        content = read_bounded(path, MOST_BYTES)
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing: give a folder as transformers' save_pretrained leaves it") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: it is no JSON") from error
    if isinstance(values, dict) and str(values.get("architecture")).startswith(ARCHITECTURE):
        raise UserError(f"{folder} is a model of this program: use it as it is")
    kind = values.get("model_type") if isinstance(values, dict) else None
    if kind != "marian":
        raise UserError(f"{path} has model_type={kind!r:.40}: only marian models, such as OPUS-MT's, can be imported")
    return values


def _model_config(folder: Path, values: Mapping[str, Any], theirs: MarianConfig) -> ModelConfig:
    """Return the network's settings.

    Raises:
        UserError: this project does not support a setting.
    """
    for key, needed in _REQUIRED.items():
        if values.get(key, needed) != needed:
            raise UserError(f"{folder / CONFIG} has {key}={values[key]!r:.40}: only {key}={needed} can be imported")
    for ours, key, other in (
        ("num_heads", "encoder_attention_heads", "decoder_attention_heads"),
        ("d_ff", "encoder_ffn_dim", "decoder_ffn_dim"),
    ):
        if getattr(theirs, key) != getattr(theirs, other):
            message = f"{key}={getattr(theirs, key)} and {other}={getattr(theirs, other)}"
            raise UserError(f"{folder / CONFIG} has {message}: both sides have one model.{ours} here")
    if theirs.activation_function not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        function = in_short(theirs.activation_function)
        raise UserError(f"{folder / CONFIG} has activation_function={function}: known are {known}")
    try:
        return ModelConfig(
            d_model=theirs.d_model,
            num_heads=theirs.encoder_attention_heads,
            d_ff=theirs.encoder_ffn_dim,
            num_encoder_layers=theirs.encoder_layers,
            num_decoder_layers=theirs.decoder_layers,
            dropout=float(theirs.dropout),
            attention_dropout=float(theirs.attention_dropout),
            ffn_dropout=float(theirs.activation_dropout),
            activation=_ACTIVATIONS[theirs.activation_function],
            scale_embedding=theirs.scale_embedding,
        )
    except UserError as error:
        raise UserError(f"{folder / CONFIG} describes no network that is known here: {error}") from error


def _read_generation(folder: Path, values: Mapping[str, Any], theirs: MarianConfig) -> dict[str, Any]:
    """Return the search settings of generation_config.json or, of an older model without that file, of config.json.

    Raises:
        UserError: the file is damaged.
    """
    if (folder / GENERATION).exists():
        return read_json(folder / GENERATION)
    known = {*_READ, *GenerationConfig().to_dict()} - {*_HARMLESS}
    settings = {key: values[key] for key in sorted(known & values.keys())}
    return {"decoder_start_token_id": theirs.decoder_start_token_id, **settings}


def _require_same_ids(folder: Path, theirs: MarianConfig, tokenizer: Tokenizers) -> None:
    """Check that config.json has the vocabulary's ids of padding and end.

    Raises:
        UserError: an id differs.
    """
    ids = tokenizer.target.original_ids
    for key, ours in (("pad_token_id", PAD), ("eos_token_id", EOS)):
        if getattr(theirs, key) != ids[ours]:
            message = f"{key}={getattr(theirs, key)}, but the vocabulary says {ids[ours]}"
            raise UserError(f"{folder / CONFIG} has {message}: the files belong to different models")


def _search(path: Path, generation: Mapping[str, Any], tokenizer: Tokenizers) -> SearchConfig:
    """Return the search settings of generation_config.json, with our defaults for missing ones; errors use the path.

    Raises:
        UserError: the file asks for a search that this project does not support.
    """
    if (forced := generation.get("forced_bos_token_id")) is not None:
        raise UserError(in_short(f"{path} has forced_bos_token_id={forced!r}: only models without it can be imported"))
    eos = tokenizer.target.original_ids[EOS]
    if generation.get("eos_token_id", eos) not in (None, eos, [eos]):
        raise UserError(in_short(f"{path} has eos_token_id={generation['eos_token_id']!r}, the vocabulary {eos}"))
    others = {key: value for key, value in generation.items() if key not in (*_READ, *_HARMLESS)}
    lost = [
        f"{key}={value!r}"
        for key, value in others.items()
        if value not in (None, False, 0, [], {}, "") and not (key in _FACTORS and value == 1 and value is not True)
    ]
    if lost:
        log.warning("%s: not taken over: %s", path.name, in_short(", ".join(lost)))
    try:
        return change_search(SearchConfig(), {ours: generation.get(key) for key, ours in _SEARCH.items()})
    except UserError as error:
        raise UserError(f"{path} asks for a search that is not known here: {in_short(error)}") from error
