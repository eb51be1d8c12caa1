"""Import a Marian model in Hugging Face's layout, such as the OPUS-MT models, as a bundle with the same scores."""

import json
import logging
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from seq2seq.bundle import Bundle, example, save_bundle
from seq2seq.errors import UserError, in_short
from seq2seq.exchange.export import require_new
from seq2seq.exchange.huggingface import channel_order, order_of, pairings, reordered, weights_of
from seq2seq.extras import needing
from seq2seq.model.build import build_without_values
from seq2seq.model.positions import sinusoidal
from seq2seq.settings.bundle import ARCHITECTURE, CARD, CONFIG, BundleConfig, is_hub_name, read_bounded
from seq2seq.settings.data import cache_root
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig, change_search
from seq2seq.text import marian
from seq2seq.text.cache import cached_folder, digest_files
from seq2seq.text.tokenizer import EOS, PAD
from seq2seq.text.vocabulary import TokenizerPair, Tokenizers, make_tokenizers, read_files

with needing("huggingface"):
    import huggingface_hub
    from huggingface_hub.errors import StrictDataclassError
    from transformers import MarianConfig

log = logging.getLogger(__name__)
_WEIGHTS, _PICKLED = "model.safetensors", "pytorch_model.bin"
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
_REQUIRED = {  # what transformers' Marian has no code for, or we have not
    "is_encoder_decoder": True,
    "tie_word_embeddings": True,
    "static_position_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "add_bias_logits": False,
    "quantization_config": None,
}
_USED = (  # of config.json; transformers' defaults stand for what is missing
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
_HARMLESS = (  # settings of a search that change no translation, or that ours has in another way
    "transformers_version", "_from_model_config", "pad_token_id", "bos_token_id", "forced_eos_token_id", "max_length",
    "use_cache", "early_stopping", "num_return_sequences", "return_dict_in_generate", "output_attentions",
    "output_hidden_states", "output_scores", "output_logits",
)  # fmt: skip
_MOST_POSITIONS = 100_000  # rows of a table of positions
_MOST_BYTES = 1_000_000  # of config.json and README.md
_FORMAT = 1  # of cached imports: raised when the same files make another bundle
_TIED = (
    "model.shared.weight",
    "lm_head.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
)
_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
_BIAS = "final_logits_bias"


def import_huggingface(source: str, folder: Path, revision: str | None = None) -> Bundle:
    """Write a bundle of a Marian model; the folder is whole or absent.

    Args:
        source: a folder as `save_pretrained` leaves it, or a name on the Hugging Face hub.
        folder: the bundle's, new or empty.
        revision: branch, tag or commit on the hub; None: the newest.

    Raises:
        UserError: the source cannot be had, is damaged, or is a model that cannot be expressed here (the message names
            the setting); or the folder is taken or cannot be written.
    """
    require_new(folder)
    origin = fetch(source, revision)
    bundle = read_huggingface(origin)
    save_bundle(folder, bundle, _card(source, revision, origin, bundle))
    return bundle


def cached_import(source: str, cache: str) -> Path:
    """Return the bundle of a Marian model in the cache, made if it is missing (SEQ2SEQ_CACHE overrides `cache`).

    Raises:
        UserError: as `import_huggingface`.
    """
    origin = fetch(source)
    names = (CONFIG, *marian.FILES, _WEIGHTS, _PICKLED)
    digests = [*digest_files(path for name in names if (path := origin / name).is_file()), str(_FORMAT)]
    name = re.sub(r"[^\w.-]", "_", origin.resolve().name if Path(source).is_dir() else source)
    key = "-".join((name, *(digest[:8] for digest in digests)))
    return cached_folder(cache_root(cache), key, lambda draft: _import_into(draft, source, origin))


def _import_into(draft: Path, source: str, origin: Path) -> None:
    bundle = read_huggingface(origin)
    save_bundle(draft, bundle, _card(source, None, origin, bundle))


def fetch(source: str, revision: str | None = None) -> Path:
    """Return the folder of a model's files, fetched from the Hugging Face hub unless it is a folder here.

    Raises:
        UserError: there is no such folder, and the hub does not give such a model.
    """
    if Path(source).is_dir():
        if revision is not None:
            raise UserError(f"{source} is a folder, which has no revision {revision}: leave out --revision")
        return Path(source)
    if not is_hub_name(source):
        raise UserError(
            f"{source} is no folder, and no name on the Hugging Face hub, such as Helsinki-NLP/opus-mt-en-es"
        )
    wanted = [CONFIG, CARD, *marian.FILES, _WEIGHTS]
    try:
        found = Path(huggingface_hub.snapshot_download(source, revision=revision, allow_patterns=wanted))
        if not (found / _WEIGHTS).exists():
            found = Path(
                huggingface_hub.snapshot_download(source, revision=revision, allow_patterns=[*wanted, _PICKLED])
            )
    except Exception as error:  # of the hub's client, of the library that it fetches with, or of the disk
        raise UserError(
            f"{source} is no folder here, and the Hugging Face hub does not give it ({in_short(error)}): where the hub "
            f"cannot be reached, run `hf download {source} --local-dir FOLDER` elsewhere and give FOLDER"
        ) from error
    return found


def read_huggingface(folder: Path) -> Bundle:
    """Read a Marian model from a folder as `save_pretrained` leaves it; nothing in it is executed.

    Raises:
        UserError: a file is missing or damaged, or the model cannot be expressed here.
    """
    values = _read_config(folder)
    try:
        theirs = MarianConfig.from_dict({key: values[key] for key in _USED if key in values})
    except (StrictDataclassError, AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{folder / CONFIG} is damaged: {in_short(error)}") from error
    tokenizer = _read_tokenizers(folder, values, theirs)
    config, state = _model_config(folder, values, theirs), _read_weights(folder)
    if (layers := config.num_encoder_layers + config.num_decoder_layers) > len(state):
        raise UserError(f"{folder}: {len(state)} weights are no {layers} layers, which {CONFIG} wants")
    _require_fixed_positions(folder, state, config.d_model)
    _require_tied(folder, state, is_shared=tokenizer.is_shared)
    config.output_bias = _BIAS in state and bool(state[_BIAS].any())
    model = build_without_values(config, *tokenizer.sizes)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    _require_same(folder, state, config, tokenizer, shapes)
    model.load_state_dict(weights_of(state, config, tokenizer), assign=True)
    bundle = BundleConfig(config, _search(folder, tokenizer), *_languages(folder, tokenizer))
    return Bundle(model.eval(), tokenizer, bundle)


def _languages(folder: Path, tokenizer: TokenizerPair) -> tuple[str, str]:
    """Return the languages that tokenizer_config.json names; it may name none, then they are en and es.

    Raises:
        UserError: one is no name of a language.
    """
    named = json.loads(tokenizer.files.get(marian.SETTINGS, b"{}"))
    found = [named.get(f"{side}_lang") or default for side, default in (("source", "en"), ("target", "es"))]
    for one in found:
        if not (isinstance(one, str) and re.fullmatch(r"[\w+-]{1,40}", one)):
            raise UserError(in_short(f"{folder / marian.SETTINGS} names a language {one!r}: it is damaged"))
    return found[0], found[1]


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        content = read_bounded(path, _MOST_BYTES)
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
        UserError: one cannot be expressed here.
    """
    for key, needed in _REQUIRED.items():
        if values.get(key, needed) != needed:
            raise UserError(f"{folder / CONFIG} has {key}={values[key]!r:.40}: only {key}={needed} can be imported")
    for ours, key, other in (
        ("num_heads", "encoder_attention_heads", "decoder_attention_heads"),
        ("d_ff", "encoder_ffn_dim", "decoder_ffn_dim"),
    ):
        if getattr(theirs, key) != getattr(theirs, other):
            told = f"{key}={getattr(theirs, key)} and {other}={getattr(theirs, other)}"
            raise UserError(f"{folder / CONFIG} has {told}: both sides have one model.{ours} here")
    if theirs.activation_function not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise UserError(f"{folder / CONFIG} has activation_function={theirs.activation_function}: known are {known}")
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


def _read_tokenizers(folder: Path, values: Mapping[str, Any], theirs: MarianConfig) -> TokenizerPair:
    """Read the vocabularies; settings of searches that lie in config.json, of older models, get a file of their own.

    Raises:
        UserError: a file is missing or damaged, or does not belong to config.json.
    """
    files = read_files(folder)
    if marian.SOURCE not in files:
        raise UserError(
            f"{folder / marian.SOURCE} is missing: give a folder as transformers' save_pretrained leaves it"
        )
    if marian.GENERATION not in files:
        found = {key: values[key] for key in _READ if key in values}
        found = {"decoder_start_token_id": theirs.decoder_start_token_id, **found}
        files[marian.GENERATION] = (json.dumps(found, indent=2) + "\n").encode()
    if theirs.share_encoder_decoder_embeddings:
        files.pop(marian.TARGET_VOCAB, None)
    elif marian.TARGET_VOCAB not in files and marian.VOCAB in files:
        files[marian.TARGET_VOCAB] = files[marian.VOCAB]
    tokenizer = make_tokenizers(files, str(folder))
    assert isinstance(tokenizer, TokenizerPair)
    order = order_of(tokenizer.target)
    for key, ours in (("pad_token_id", PAD), ("eos_token_id", EOS)):
        if getattr(theirs, key) != order[ours]:
            told = f"{key}={getattr(theirs, key)}, but the vocabulary says {order[ours]}"
            raise UserError(f"{folder / CONFIG} has {told}: the files belong to different models")
    return tokenizer


def _search(folder: Path, tokenizer: TokenizerPair) -> SearchConfig:
    """Return the search that generation_config.json asks for; without a beam there, ours.

    Raises:
        UserError: it asks for what cannot be searched.
    """
    path, generation = folder / marian.GENERATION, json.loads(tokenizer.files[marian.GENERATION])
    if (forced := generation.get("forced_bos_token_id")) is not None:
        raise UserError(in_short(f"{path} has forced_bos_token_id={forced!r}: only models without it can be imported"))
    eos = order_of(tokenizer.target)[EOS]
    if generation.get("eos_token_id", eos) not in (None, eos, [eos]):
        raise UserError(in_short(f"{path} has eos_token_id={generation['eos_token_id']!r}, the vocabulary {eos}"))
    others = {key: value for key, value in generation.items() if key not in (*_READ, *_HARMLESS)}
    lost = [
        f"{key}={value!r}" for key, value in others.items() if value is True or value not in (None, 0, 1, [], {}, "")
    ]
    if lost:
        log.warning("%s: not taken over: %s", path.name, in_short(", ".join(lost)))
    try:
        return change_search(SearchConfig(), {ours: generation.get(key) for key, ours in _SEARCH.items()})
    except UserError as error:
        raise UserError(f"{path} asks for a search that is not known here: {in_short(error)}") from error


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """Read weights without executing anything.

    Raises:
        UserError: they are missing, damaged, or more than weights.
    """
    path = next((folder / name for name in (_WEIGHTS, _PICKLED) if (folder / name).is_file()), None)
    if path is None:
        parts = next(iter(sorted(folder.glob("*.index.json"))), None)
        told = (
            f"weights in several files ({parts.name}) are not read: save them in one" if parts else "it has no weights"
        )
        raise UserError(f"{folder}: {told} ({_WEIGHTS} or {_PICKLED})")
    try:
        found = load_file(path) if path.name == _WEIGHTS else torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "global" in str(error).lower():  # a function or class, which a pickle would call
            raise UserError(f"{path} holds more than weights: it is not read, since that would run its code") from error
        raise UserError(f"{path} is damaged ({in_short(error)}): copy it again") from error
    except (SafetensorError, OSError, RuntimeError, EOFError, ValueError, LookupError, AssertionError) as error:
        raise UserError(f"{path} is damaged ({in_short(error)}): copy it again") from error
    if not isinstance(found, dict) or not all(_is_weight(*one, path.stat().st_size) for one in found.items()):
        raise UserError(f"{path} holds no weights by name: give the model's own, as save_pretrained leaves it")
    return dict(found)


def _is_weight(name: object, weight: object, most_bytes: int) -> bool:
    """Return whether it is a name and a plain tensor of real numbers, with as many as the file can hold."""
    if not (isinstance(name, str) and isinstance(weight, Tensor)):
        return False
    is_plain = weight.layout == torch.strided and weight.device.type == "cpu" and weight.is_floating_point()
    return is_plain and weight.nelement() * weight.element_size() <= most_bytes


def _require_fixed_positions(folder: Path, state: dict[str, Tensor], d_model: int) -> None:
    """Take the tables of positions out of the weights, if they are there.

    Raises:
        UserError: they are learned ones.
    """
    for name in _POSITIONS:
        table = state.pop(name, None)
        if table is None:
            continue
        is_table = table.ndim == 2 and table.shape[1] == d_model and len(table) <= _MOST_POSITIONS
        expected = sinusoidal(0, len(table), d_model, table.device) if is_table else None
        if expected is None or not torch.allclose(
            table.float(), reordered(expected, 1, channel_order(d_model)), atol=1e-3
        ):
            raise UserError(f"{folder}: {name} is no table of sines: learned positions cannot be imported")


def _require_tied(folder: Path, state: dict[str, Tensor], *, is_shared: bool) -> None:
    """Take embeddings that are there under several names for one, under the name that `pairings` has.

    Raises:
        UserError: they differ.
    """
    groups = [_TIED] if is_shared else [(_TIED[3], _TIED[1]), (_TIED[2],)]
    for names in groups:
        found = [name for name in names if name in state]
        for other in found[1:]:
            if not torch.equal(state[found[0]], state[other]):
                raise UserError(f"{folder}: {other} differs from {found[0]}: only tied embeddings can be imported")
        if found:
            state.setdefault(names[0], state[found[0]])
        for other in names[1:]:
            state.pop(other, None)


def _require_same(
    folder: Path,
    state: Mapping[str, Tensor],
    config: ModelConfig,
    tokenizer: Tokenizers,
    shapes: Mapping[str, tuple[int, ...]],
) -> None:
    """Refuse weights of another network or of another vocabulary.

    Raises:
        UserError: a weight is missing, unknown, or of another shape.
    """
    known = {_BIAS}
    for pair in pairings(config, is_shared=tokenizer.is_shared):
        known.add(pair.marian)
        found = tuple(state[pair.marian].shape) if pair.marian in state else "missing"
        if pair.ids and found != "missing" and len(found) == 2 and found[0] != shapes[pair.ours][0]:
            told = f"{pair.marian} has {found[0]:,} rows, and the vocabulary {shapes[pair.ours][0]:,} pieces"
            raise UserError(f"{folder}: {told}: they belong to different models")
        if found != shapes[pair.ours]:
            raise UserError(f"{folder}: {pair.marian} is {found}, and {CONFIG} wants {shapes[pair.ours]}")
    if unknown := sorted(state.keys() - known):
        raise UserError(f"{folder}: {unknown[0]:.100} is a weight that no Marian model has")
    if _BIAS in state and tuple(state[_BIAS].shape) != (1, tokenizer.sizes[0]):
        told = f"{_BIAS} is {tuple(state[_BIAS].shape)}, and the vocabulary has {tokenizer.sizes[0]:,} pieces"
        raise UserError(f"{folder}: {told}: they belong to different models")


def _card(source: str, revision: str | None, origin: Path, bundle: Bundle) -> str:
    """Write the bundle's model card; the licence is what the source's card says."""
    text = read_bounded(origin / CARD, _MOST_BYTES).decode(errors="replace") if (origin / CARD).is_file() else ""
    head = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    licence = re.search(r"^license:\s+(?:- )?([\w.-]+)$", head[1], re.MULTILINE) if head else None
    config, model, name = bundle.config, bundle.config.model, source.rstrip("/").rpartition("/")[2]
    size = sum(parameter.numel() for parameter in bundle.model.parameters())
    lines = [
        "---",
        f"language: [{config.src_lang}, {config.tgt_lang}]",
        *([f"license: {licence[1]}"] if licence else []),
        "pipeline_tag: translation",
        "library_name: seq2seq",
        "tags: [translation, transformer]",
        "---",
        "",
        f"# {name}: {config.src_lang}→{config.tgt_lang} translation",
        "",
        f"A Transformer of {size:,} parameters, imported from `{name}`{f', revision {revision}' if revision else ''}, "
        "which is in Hugging Face's layout. Licence, training text and scores are those of the source.",
        "",
        "```",
        f'seq2seq translate --model FOLDER "{example(config.src_lang)}"',
        "```",
        "",
        "## Network",
        "",
        f"{model.num_encoder_layers} + {model.num_decoder_layers} layers of width {model.d_model}, "
        f"{model.num_heads} heads, {model.activation}.",
        "",
    ]
    return "\n".join(lines)
