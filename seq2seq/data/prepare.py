"""Preparation of text by the data settings, and the cache key: a hash of everything that decides the files."""

import dataclasses
import hashlib
import json
import logging
import os
import unicodedata
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import sentencepiece

from seq2seq.data.clean import identifier_version
from seq2seq.data.corpus import Corpus, is_outside, open_splits
from seq2seq.data.dataset import PreparedData, load_prepared
from seq2seq.data.epochs import weighted_shares
from seq2seq.data.pipeline import Pipeline, Splits, find_splits
from seq2seq.data.processes import Processes
from seq2seq.errors import UserError
from seq2seq.progress import bar
from seq2seq.settings.data import DataConfig, TokenizerConfig, cache_root
from seq2seq.storage.cache import cached_folder, digest_once, is_complete
from seq2seq.storage.lines import explain_os_error
from seq2seq.text.vocabulary import describe_tokenizers

logger = logging.getLogger(__name__)
_FORMAT = 4  # version of the cache's format: raise it whenever the same inputs give different files
# Settings that decide only where text is and how many processes prepare it.
_PLACES = ("cache", "root", "hub", "hub_splits", "train", "validation", "test", "num_proc")
# Settings that decide only in what order text comes, or that name corpora: the held-out corpora count by their numbers.
_NOT_IN_KEY = ("weights", "temperature", "block", "held_out_from")


def prepare(data: DataConfig, tokenizer: TokenizerConfig) -> PreparedData:
    """Read, clean, check for overlap, learn the vocabulary, tokenise; or load the result from the cache.

    Training pairs must pass the checks of `clean`. Validation pairs are normalised, and dropped only if a side is
    empty. Test pairs stay as written. A split that is not given is drawn from the cleaned training pairs; so are the
    sets of data.held_out_from.

    data.num_proc processes do the work; the result does not depend on their number.
    """
    return open_prepared(data, prepare_folder(data, tokenizer))


def open_prepared(data: DataConfig, folder: Path) -> PreparedData:
    """Open the folder that `prepare_folder` returned; its files are not checked."""
    return load_prepared(folder, [corpus.name for corpus in open_splits(data)["train"]])


def prepare_folder(data: DataConfig, tokenizer: TokenizerConfig) -> Path:
    """Prepare text as `prepare` does, or check the result in the cache; return the folder."""
    splits = find_splits(data)
    names = [corpus.name for corpus in splits.train]
    weighted_shares(names, [1] * len(names), data.weights)  # refuses wrong weights before the sizes are known

    def build(folder: Path) -> None:
        with Processes(data.num_proc if data.num_proc > 1 else 0) as workers:
            Pipeline(folder, data, splits, workers).run(tokenizer)
        for name, digest in _digest_inputs(splits, tokenizer).items():
            if digest != digests[name]:
                raise UserError(f"{name} changed while it was read: run the same command again")

    with bar("preparing text"):
        digests = _digest_inputs(splits, tokenizer)
        folder = cached_folder(cache_root(data.cache), _cache_key(data, tokenizer, splits, digests), build)
    logger.info("prepared text: %s", folder)
    return folder


def find_prepared(data: DataConfig, tokenizer: TokenizerConfig) -> Path | None:
    """Return the folder that `prepare_folder` would return; None: the text is not prepared, or damaged."""
    splits = find_splits(data)
    folder = cache_root(data.cache) / _cache_key(data, tokenizer, splits, _digest_inputs(splits, tokenizer))
    return folder if is_complete(folder) else None


def _digest_inputs(splits: Splits, tokenizer: TokenizerConfig) -> dict[str, Any]:
    """Return a hash of each file that preparation reads, by its path, and a description of the tokenizers."""
    paths = (path for corpus in splits.corpora for path in corpus.paths)
    return {str(path): _digest(path) for path in paths} | {_tokenizer_name(tokenizer): describe_tokenizers(tokenizer)}


def _tokenizer_name(tokenizer: TokenizerConfig) -> str:
    return f"tokenizer.model={tokenizer.model}"


def _cache_key(data: DataConfig, tokenizer: TokenizerConfig, splits: Splits, digests: Mapping[str, Any]) -> str:
    """Hash everything that decides the prepared files; it does not matter where the corpora are.

    The last two endings of a file's name count, since they decide how the file is read.
    """
    corpora = [
        [(corpus.part, [(path.suffixes[-2:], digests[str(path)]) for path in corpus.paths]) for corpus in of_split]
        for of_split in (splits.train, splits.validation, splits.test)
    ]
    sources = [draw.corpus for draw in splits.draws if draw.corpus is not None]
    held_out = [sources, splits.validation_names, splits.test_names]
    settings = {key: value for key, value in deciding_settings(data).items() if key not in _NOT_IN_KEY}
    versions = [_FORMAT, sentencepiece.__version__, unicodedata.unidata_version]
    versions += [identifier_version(data)] if data.language_filter else []
    symbols = tokenizer.user_symbols  # that a loaded tokenizer must have
    everything = [corpora, held_out, settings, digests[_tokenizer_name(tokenizer)], symbols, versions]
    return hashlib.blake2b(json.dumps(everything, sort_keys=True).encode(), digest_size=10).hexdigest()


def deciding_settings(data: DataConfig) -> dict[str, Any]:
    """Return the settings that decide the training text and its order, not its place or the number of processes."""
    return {key: value for key, value in dataclasses.asdict(data).items() if key not in _PLACES}


def _digest(path: Path) -> str:
    try:
        return digest_once(path)
    except OSError as error:
        raise explain_os_error(path, error) from error


def corpus_digests(data: DataConfig) -> dict[str, str]:
    """Return a hash of the contents of each file that a run reads, in order, by split and file name."""
    digests: dict[str, str] = {}
    for split, corpora in open_splits(data).items():
        for corpus in corpora:
            for name, path in zip(_file_names(corpus), corpus.paths, strict=True):
                key = f"data.{split}: {name}"
                while key in digests:
                    key += ", again"
                digests[key] = _digest(path)
    return digests


def _file_names(corpus: Corpus) -> list[str]:
    """Return names of a corpus's files that do not depend on where data.root is, nor on the folder of other files."""
    sides = map(PurePath, corpus.name.split("+"))
    name = "+".join(path.name for path in corpus.paths) if any(map(is_outside, sides)) else corpus.name
    if len(corpus.paths) == 1:
        return [name]
    common = os.path.commonpath([path.absolute().parent for path in corpus.paths])
    return [f"{name} ({path.absolute().relative_to(common)})" for path in corpus.paths]
