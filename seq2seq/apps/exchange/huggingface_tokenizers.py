"""Read and write tokenizers in the layout of Hugging Face's Marian models: SentencePiece models and lists of subwords.

Our ids are Marian's in another order. The subwords of padding, unknown and end have our ids `PAD`, `UNK` and `EOS`. If
translations start with a subword of their own, that subword has id 2. The other subwords keep Marian's order; one of
them has id 2 if translations start with padding.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seq2seq.errors import UserError, shorten
from seq2seq.settings.bundle import parse_json, read_bounded
from seq2seq.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from seq2seq.text.vocabulary import Tokenizers

SOURCE, TARGET = "source.spm", "target.spm"
VOCAB, TARGET_VOCAB = "vocab.json", "target_vocab.json"  # the second exists if each side has its own vocabulary
SETTINGS, GENERATION = "tokenizer_config.json", "generation_config.json"
FILES = (SOURCE, TARGET, VOCAB, TARGET_VOCAB, SETTINGS, GENERATION)
MAX_POSITIONS = 512  # tokens per side: the rows of Marian's table of positions
_MAX_SETTINGS, _MAX_VOCABULARY, _MAX_MODEL = 1_000_000, 30_000_000, 100_000_000  # bytes of files
_SURROGATES = re.compile("[\ud800-\udfff]")


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
    if outside := sorted(number for number in forbidden if not 0 <= number < len(ids[1])):
        raise UserError(shorten(f"{folder / GENERATION} forbids {outside}, which the vocabulary does not have"))
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
    if not all(type(number) is int for number in ids.values()):
        raise UserError(f"{path} is damaged: it does not give every subword a number")
    if sorted(ids.values()) != list(range(len(ids))):
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
    if not (isinstance(words, list) and isinstance(tokens, list)):
        raise UserError(f"{path} is damaged: bad_words_ids or suppress_tokens is no list")
    for word in words:
        if not (isinstance(word, list) and len(word) == 1):
            message = shorten(f"{path} has bad_words_ids of several subwords, such as {word!r:.40}")
            raise UserError(f"{message}: only single ones are known")
    forbidden = [*(word[0] for word in words), *tokens]
    if not all(type(number) is int for number in forbidden):
        raise UserError(f"{path} is damaged: bad_words_ids or suppress_tokens has what is no id")
    return set(forbidden)
