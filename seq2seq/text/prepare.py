"""Preparation of text by the data settings, and the cache key: a hash of everything that decides the files."""

import dataclasses
import hashlib
import json
import logging
import os
import unicodedata
from pathlib import Path
from typing import Any

import sentencepiece

from seq2seq.settings.data import DataConfig, TokenizerConfig, cache_root
from seq2seq.text.cache import cached_folder, digest_once
from seq2seq.text.corpus import Corpus, open_splits
from seq2seq.text.dataset import PreparedData, load_prepared
from seq2seq.text.epochs import check_weights
from seq2seq.text.filters import identifier_version
from seq2seq.text.lines import explain_os_error
from seq2seq.text.pipeline import Pipeline
from seq2seq.text.vocabulary import describe_tokenizers
from seq2seq.workers import Processes, Workers

logger = logging.getLogger(__name__)
_FORMAT = 5  # version of the cache's format: raise it whenever the same inputs give different files or pieces
# Settings that decide only where text is and how many processes prepare it.
_PLACES = ("cache", "root", "hub", "hub_splits", "train", "validation", "test", "num_proc")
_ORDER = ("weights", "temperature", "block")  # settings that decide only in what order text comes


def prepare(data: DataConfig, tokenizer: TokenizerConfig, workers: Workers | None = None) -> PreparedData:
    """Read, clean, check for overlap, learn the vocabulary, tokenise; or load the result from the cache.

    Training pairs must pass the checks of `filters`. Validation pairs are normalised, and dropped only if a side is
    empty. Test pairs stay as written. A split that is not given is drawn from the cleaned training pairs; so are the
    sets of data.held_out_from.

    `workers` do the work, or data.num_proc processes if `workers` is None; the result does not depend on the number of
    workers. A killed preparation resumes from its last piece.

    Raises:
        UserError: a corpus is missing, empty or malformed, data.weights names none, no pair is left, the vocabulary
            does not fit the text, or the cache cannot be written.
        UnfinishedError: a worker process died.
    """
    return load_prepared(prepare_folder(data, tokenizer, workers))


def prepare_folder(data: DataConfig, tokenizer: TokenizerConfig, workers: Workers | None = None) -> Path:
    """Prepare text as `prepare` does; return its folder in the cache."""
    splits = open_splits(data)
    check_weights([corpus.name for corpus in splits["train"]], data.weights)

    def build(folder: Path) -> None:
        with workers or Processes(data.num_proc) as opened:
            Pipeline(folder, data, splits, opened).run(tokenizer)

    folder = cached_folder(cache_root(data.cache), _cache_key(data, tokenizer, splits), build)
    logger.info("prepared text: %s", folder)
    return folder


def _cache_key(data: DataConfig, tokenizer: TokenizerConfig, splits: dict[str, list[Corpus]]) -> str:
    """Hash everything that the prepared files depend on."""
    inputs = {
        split: [(corpus.name, corpus.stem, _digest(corpus)) for corpus in corpora] for split, corpora in splits.items()
    }
    settings = {key: value for key, value in deciding_settings(data).items() if key not in _ORDER}
    versions = [_FORMAT, sentencepiece.__version__, unicodedata.unidata_version]
    versions += [identifier_version()] if data.language_filter else []
    versions += ["validation by set"] if len(splits["validation"]) > 1 else []  # older versions made one set
    symbols = tokenizer.user_symbols  # that a loaded tokenizer must have
    everything = [inputs, settings, describe_tokenizers(tokenizer), symbols, versions]
    return hashlib.blake2b(json.dumps(everything, sort_keys=True).encode(), digest_size=10).hexdigest()


def deciding_settings(data: DataConfig) -> dict[str, Any]:
    """Return the settings that decide the training text and its order, not its place or the number of processes."""
    settings = {key: value for key, value in dataclasses.asdict(data).items() if key not in _PLACES}
    if not data.held_out_from:  # so that the result is as it was before this setting existed
        del settings["held_out_from"]
    if not data.language_filter:  # then its settings decide nothing
        settings = {key: value for key, value in settings.items() if not key.startswith("language_")}
    return settings


def _digest(corpus: Corpus) -> list[str]:
    digests: list[str] = []
    for path in corpus.paths:
        try:
            digests.append(digest_once(path))
        except OSError as error:
            raise explain_os_error(path, error) from error
    return digests


def corpus_digests(data: DataConfig) -> dict[str, str]:
    """Return a hash of the contents of each file that a run reads, in order, by split and file name.

    Raises:
        UserError: a corpus is missing.
    """
    digests: dict[str, str] = {}
    for split, corpora in open_splits(data).items():
        for corpus in corpora:
            for name, digest in zip(_told(corpus), _digest(corpus), strict=True):
                key = f"data.{split}: {name}"
                while key in digests:
                    key += ", again"
                digests[key] = digest
    return digests


def _told(corpus: Corpus) -> list[str]:
    """Return names of a corpus's files that do not depend on data.root."""
    if len(corpus.paths) == 1:
        return [corpus.name]
    common = os.path.commonpath([path.absolute().parent for path in corpus.paths])
    return [f"{corpus.name} ({path.absolute().relative_to(common)})" for path in corpus.paths]
