"""The files of Marian models in Hugging Face's layout: tokenizers and weights; no code in a file is executed.

Our ids are Marian's in another order. The subwords of padding, unknown and end have our ids `PAD`, `UNK` and `EOS`. If
translations start with a subword of their own, that subword has id 2. The other subwords keep Marian's order; one of
them has id 2 if translations start with padding.

Our network and Marian's differ in their position vectors: ours alternate sine and cosine from channel to channel;
Marian's hold all sines and then all cosines. The conversion therefore reorders the residual stream's channels in every
weight that reads or writes that stream. Channels within an attention head or a feed-forward network keep their order.
An imported tokenizer's ids have another order in Hugging Face's files, so the conversion reorders the rows of the
embeddings.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from seq2seq.errors import UserError, shorten
from seq2seq.model.positions import sinusoidal
from seq2seq.model.transformer import Transformer
from seq2seq.settings.bundle import CONFIG, parse_json, read_bounded
from seq2seq.storage.pickled_weights import DamagedError, read_pickled
from seq2seq.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from seq2seq.text.vocabulary import Tokenizers

SOURCE, TARGET = "source.spm", "target.spm"
VOCAB, TARGET_VOCAB = "vocab.json", "target_vocab.json"  # the second exists if each side has its own vocabulary
SETTINGS, GENERATION = "tokenizer_config.json", "generation_config.json"
FILES = (SOURCE, TARGET, VOCAB, TARGET_VOCAB, SETTINGS, GENERATION)
MAX_POSITIONS = 512  # tokens per side: the rows of Marian's table of positions
_MAX_SETTINGS, _MAX_VOCABULARY, _MAX_MODEL = 1_000_000, 30_000_000, 100_000_000  # bytes of files
_SURROGATES = re.compile("[\ud800-\udfff]")
WEIGHTS, PICKLED = "model.safetensors", "pytorch_model.bin"
BIAS = "final_logits_bias"
_EMBEDDING, _SOURCE_EMBEDDING = "embedding.weight", "encoder_embedding.weight"
_SHARED, _OUTPUT = "model.shared.weight", "lm_head.weight"
_ENCODER, _DECODER = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
_LAYER_NAMES = {  # parts of the names of a layer's weights: ours, Marian's
    "encoder_layers.": "model.encoder.layers.",
    "decoder_layers.": "model.decoder.layers.",
    "self_attention.": "self_attn.",
    "cross_attention.": "encoder_attn.",
    "self_residual.norm.": "self_attn_layer_norm.",
    "cross_residual.norm.": "encoder_attn_layer_norm.",
    "feed_forward.up.": "fc1.",
    "feed_forward.down.": "fc2.",
    "feed_forward_residual.norm.": "final_layer_norm.",
}
_READS_STREAM = re.compile(r"\.([qkv]_proj|up)\.(weight|bias)$")  # linear maps whose input is the residual stream
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class Special(NamedTuple):
    """The special subwords of a vocabulary, which are not text."""

    pad: str = "<pad>"
    unk: str = "<unk>"
    eos: str = "</s>"


def read_tokenizers(folder: Path, generation: Mapping[str, Any], *, is_shared: bool) -> Tokenizers:
    """Read the tokenizers of both sides; generation holds the values of generation_config.json."""
    settings = read_json(folder / SETTINGS) if (folder / SETTINGS).exists() else {}
    special = Special(*(_text_of(settings.get(f"{key}_token"), value) for key, value in Special()._asdict().items()))
    if len(set(special)) < len(special):
        raise UserError(shorten(f"{folder / SETTINGS} is damaged: padding, unknown and end mark are {special!r}"))
    has_two = not is_shared and (folder / TARGET_VOCAB).exists()
    ids = [_read_ids(folder / name, special) for name in (VOCAB, TARGET_VOCAB if has_two else VOCAB)]
    start = _start(generation, ids[1], special, folder / GENERATION)
    source, target = (
        Tokenizer(_read(folder / name, _MAX_MODEL), str(folder / name), _in_our_order(of_side, special, first))
        for name, of_side, first in zip((SOURCE, TARGET), ids, (start if is_shared else None, start), strict=True)
    )
    forbidden = _forbidden(generation, folder / GENERATION)
    if ids[1][special.eos] in forbidden:
        raise UserError(f"{folder / GENERATION} forbids the end mark: no translation would end")
    unproducible = tuple(
        token for token, number in enumerate(target.original_ids) if token == PAD or number in forbidden
    )
    renormalises = generation.get("renormalize_logits") is True
    return Tokenizers(source, target, is_shared, PAD if start is None else BOS, unproducible, renormalises)


def write_tokenizers(folder: Path, tokenizers: Tokenizers, src_lang: str, tgt_lang: str) -> None:
    """Write the files of a MarianTokenizer; an imported tokenizer gets back the ids that it was imported with."""
    sides = (tokenizers.source, tokenizers.target)
    subwords = tokenizers.target.tokens((PAD, UNK, tokenizers.start, EOS))
    special = zip(("pad_token", "unk_token", "bos_token", "eos_token"), subwords, strict=True)
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": src_lang,
        "target_lang": tgt_lang,
        "separate_vocabs": not tokenizers.is_shared,
        "model_max_length": MAX_POSITIONS,
        "clean_up_tokenization_spaces": False,
        **dict(special),
    }
    _write_json(folder / SETTINGS, settings)
    for name, side in zip((SOURCE, TARGET), sides, strict=True):
        (folder / name).write_bytes(side.model_bytes)
    for name, side in zip((VOCAB,) if tokenizers.is_shared else (VOCAB, TARGET_VOCAB), sides, strict=False):
        numbered = sorted(zip(side.original_ids, side.tokens(range(side.vocab_size)), strict=True))
        _write_json(folder / name, {subword: number for number, subword in numbered})


def read_json(path: Path, max_bytes: int = _MAX_SETTINGS) -> dict[str, Any]:
    """Read a JSON object."""
    values = parse_json(_read(path, max_bytes), path)
    if not isinstance(values, dict):
        raise UserError(f"{path} is damaged: it is no object")
    return values


def _read(path: Path, max_bytes: int) -> bytes:
    try:
        return read_bounded(path, max_bytes)
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing: give a folder as transformers' save_pretrained leaves it") from error


def _write_json(path: Path, values: Mapping[str, object]) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _text_of(subword: Any, default: str) -> str:
    """Return a special subword of tokenizer_config.json, a string or an object with the string; else the default."""
    text = subword.get("content") if isinstance(subword, dict) else subword
    return text if isinstance(text, str) else default


def _read_ids(path: Path, special: Special) -> dict[str, int]:
    """Return the id of each subword of a side."""
    ids = read_json(path, _MAX_VOCABULARY)
    if not all(type(number) is int for number in ids.values()) or sorted(ids.values()) != list(range(len(ids))):
        raise UserError(f"{path} is damaged: it does not number its {len(ids)} subwords from 0 on")
    if missing := [subword for subword in special if subword not in ids]:
        raise UserError(shorten(f"{path} lacks {', '.join(missing)}, which {SETTINGS} names"))
    if len(ids) == len(special):
        raise UserError(f"{path} is damaged: all its subwords are special")
    if any(_SURROGATES.search(subword) for subword in ids):
        raise UserError(f"{path} is damaged: it has a subword that is no text")
    return ids


def _start(generation: Mapping[str, Any], ids: Mapping[str, int], special: Special, path: Path) -> int | None:
    """Return Marian's id of the subword that starts every translation and nothing else; None if it is padding."""
    start = generation.get("decoder_start_token_id")
    if type(start) is not int or not 0 <= start < len(ids):
        raise UserError(shorten(f"{path} has decoder_start_token_id={start!r}: it is no id of the vocabulary"))
    if start in (ids[special.unk], ids[special.eos]):
        raise UserError(f"{path} has decoder_start_token_id={start}, which is no padding and no own mark")
    return None if start == ids[special.pad] else start


def _in_our_order(ids: Mapping[str, int], special: Special, start: int | None) -> dict[str, int]:
    """Return a side's subwords in the order of our ids, each with Marian's id; Marian's id `start` becomes id 2."""
    subwords = sorted(ids, key=ids.__getitem__)
    first = [ids[special.pad], ids[special.unk], start, ids[special.eos]]
    others = (number for number in range(len(subwords)) if number not in first)
    order = [next(others) if number is None else number for number in first] + list(others)
    return {subwords[number]: number for number in order}


def _forbidden(generation: Mapping[str, Any], path: Path) -> set[int]:
    """Return Marian's ids that no translation contains."""
    words, tokens = generation.get("bad_words_ids") or [], generation.get("suppress_tokens") or []
    try:
        forbidden: set[Any] = {*(number for (number,) in words), *tokens}
    except (TypeError, ValueError):  # a value is no list, or several subwords are forbidden together
        forbidden = {None}
    if not all(type(number) is int for number in forbidden):
        message = shorten(f"{path} has bad_words_ids={words!r:.40} and suppress_tokens={tokens!r:.40}")
        raise UserError(f"{message}: only ids of single subwords are known")
    return forbidden


class Pairing(NamedTuple):
    """A weight's two names, its axis along the residual stream, and the side whose ids number its rows."""

    ours: str
    marian: str
    axis: int | None
    side: Literal["source", "target"] | None = None


def pairings(names: Collection[str]) -> list[Pairing]:
    """Return the pairings of the weights of a Transformer of the published style; names are our names of them."""
    embeddings = {
        _EMBEDDING: Pairing(_EMBEDDING, _DECODER if _SOURCE_EMBEDDING in names else _SHARED, 1, "target"),
        _SOURCE_EMBEDDING: Pairing(_SOURCE_EMBEDDING, _ENCODER, 1, "source"),
        "output_bias": Pairing("output_bias", BIAS, None, "target"),
    }
    return [embeddings.get(name) or _pair_in_layer(name) for name in names]


def _pair_in_layer(name: str) -> Pairing:
    marian = name
    for ours, theirs in _LAYER_NAMES.items():
        marian = marian.replace(ours, theirs)
    if _READS_STREAM.search(name):
        return Pairing(name, marian, 1 if name.endswith(".weight") else None)
    return Pairing(name, marian, 0)  # a linear map that adds to the stream, or a norm of the stream


def to_marian_weights(model: Transformer, tokenizer: Tokenizers | None) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and values of Marian's weights, on the CPU, made from a model's.

    With an imported tokenizer, the rows follow the ids that it was imported with.
    """
    weights, channels, ids = model.state_dict(), _channel_order(model.config.d_model), _id_orders(tokenizer)
    for pair in pairings(weights):
        order = ids.get(pair.side)
        ordered = _reordered(weights[pair.ours].cpu(), 0, None if order is None else order.argsort())
        yield pair.marian, _reordered(ordered, pair.axis, channels)


def from_marian_weights(
    state: Mapping[str, Tensor], model: Transformer, tokenizer: Tokenizers | None = None
) -> dict[str, Tensor]:
    """Return the weights of a model, on the CPU in float32, made from Marian's.

    With an imported tokenizer, the rows of `state` follow the ids that it was imported with.
    """
    weights, channels = model.state_dict(), _channel_order(model.config.d_model).argsort()
    ids = _id_orders(tokenizer)
    for pair in pairings(weights):
        stored = state[pair.marian].detach().cpu().float().view_as(weights[pair.ours])  # Marian's output bias is a row
        weights[pair.ours] = _reordered(_reordered(stored, 0, ids.get(pair.side)), pair.axis, channels)
    return weights


def _channel_order(d_model: int) -> Tensor:
    """Return, for each channel of Marian's residual stream, the number of our channel: even numbers, then odd."""
    return torch.cat((torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)))


def _id_orders(tokenizer: Tokenizers | None) -> dict[str | None, Tensor]:
    """Return, by side, the ids of Hugging Face's files in the order of our ids."""
    if tokenizer is None:
        return {}
    return {side: torch.tensor(getattr(tokenizer, side).original_ids) for side in ("source", "target")}


def _reordered(weights: Tensor, axis: int | None, order: Tensor | None) -> Tensor:
    """Return the weights with one axis in another order; if axis or order is None, return them unchanged."""
    return weights if axis is None or order is None else weights.index_select(axis, order)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read weights without executing any code in their file."""
    path = next((folder / name for name in (WEIGHTS, PICKLED) if (folder / name).is_file()), None)
    if path is None:
        message = "it has no weights"
        if names := sorted(path.name for path in folder.glob("*.index.json")):
            message = f"weights in several files ({shorten(names[0])}) are not read: save them in one"
        raise UserError(f"{folder}: {message} ({WEIGHTS} or {PICKLED})")
    try:
        weights = load_file(path) if path.name == WEIGHTS else read_pickled(path, "cpu")
    except UserError:
        raise
    except (DamagedError, SafetensorError, OSError, RuntimeError, ValueError, LookupError) as error:
        raise UserError(f"{path} is damaged ({shorten(error)}): copy it again") from error
    size = path.stat().st_size
    if not isinstance(weights, dict) or not all(_is_weight(*item, size) for item in weights.items()):
        raise UserError(f"{path} holds no weights by name: give the model's own, as save_pretrained leaves it")
    return dict(weights)


def _is_weight(name: object, weight: object, max_bytes: int) -> bool:
    """Return whether the item is a name and a plain tensor of real numbers that is no larger than the file."""
    if not (isinstance(name, str) and isinstance(weight, Tensor)):
        return False
    is_plain = weight.layout == torch.strided and weight.device.type == "cpu" and weight.dtype in _FLOATS
    return is_plain and weight.nelement() * weight.element_size() <= max_bytes


def drop_fixed_positions(folder: Path, state: dict[str, Tensor], d_model: int) -> None:
    """Remove the tables of sinusoidal positions from the weights, if present."""
    for name in _POSITIONS:
        if (table := state.pop(name, None)) is None:
            continue
        is_table = table.shape[1:] == (d_model,)
        sines = sinusoidal(0, len(table), d_model, table.device)[:, _channel_order(d_model)] if is_table else None
        if sines is None or not torch.allclose(table.float(), sines, atol=1e-3):
            raise UserError(f"{folder}: {name} is no table of sines: learned positions cannot be imported")


def drop_tied_copies(folder: Path, state: dict[str, Tensor], *, is_shared: bool) -> None:
    """Keep one copy of an embedding that is stored under several names, under the name that `pairings` uses."""
    groups = [(_SHARED, _OUTPUT, _ENCODER, _DECODER)] if is_shared else [(_DECODER, _OUTPUT), (_ENCODER,)]
    for names in groups:
        stored = [name for name in names if name in state]
        for copy in stored[1:]:
            if not torch.equal(state[stored[0]], state[copy]):
                raise UserError(f"{folder}: {copy} differs from {stored[0]}: only tied embeddings can be imported")
            del state[copy]
        if stored:
            state[names[0]] = state.pop(stored[0])


def require_weights(folder: Path, state: Mapping[str, Tensor], model: Transformer) -> None:
    """Check that Marian's weights belong to our network, and so to its vocabulary, and that their values are finite."""
    values = model.state_dict()
    expected = {pair.marian: tuple(values[pair.ours].shape) for pair in pairings(values)}
    expected[BIAS] = (1, model.vocab_size)
    for name, shape in expected.items():
        if name not in state and name != BIAS:
            raise UserError(f"{folder}: {name} is missing, and {CONFIG} wants {shape}")
        if name in state and tuple(state[name].shape) != shape:
            message = f"{name} is {tuple(state[name].shape)}, and {CONFIG} and the vocabulary want {shape}"
            raise UserError(f"{folder}: {message}: the files belong to different models")
    if unknown := sorted(state.keys() - expected.keys()):
        raise UserError(f"{folder}: {shorten(unknown[0])} is a weight that no Marian model has")
    for name, weight in state.items():
        if not all(extreme.isfinite() for extreme in weight.aminmax()):
            raise UserError(f"{folder}: {name} has values that are no finite numbers: the model is damaged")
