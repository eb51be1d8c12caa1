"""The tokenizers of a model: one for both sides, or one for each side; their files; their training."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain, starmap
from pathlib import Path
from typing import Any, cast

from seq2seq.errors import UserError
from seq2seq.settings.bundle import parse_json, read_bounded
from seq2seq.settings.data import TokenizerConfig, expand_user
from seq2seq.settings.rules import AUTO
from seq2seq.text.masks import Masked, Masker
from seq2seq.text.tokenizer import (
    BOS,
    EOS,
    PAD,
    SPECIAL_IDS,
    UNPRODUCIBLE_IDS,
    Tokenizer,
    VocabularySizeError,
    resolve_auto,
    train_tokenizer,
)

FILE = "tokenizer.model"  # of one tokenizer for both sides
SOURCE, TARGET = "source.model", "target.model"  # of a tokenizer for each side
SUBWORDS = "subwords.json"  # beside them: the lists of imported tokenizers, and what a search needs to know
FILES = frozenset({FILE, SOURCE, TARGET, SUBWORDS})
_MAX_BYTES = 100_000_000  # of a file; a vocabulary of 32,000 ids takes half a million

Sizes = tuple[int, int | None]  # number of target ids, and of source ids; None if both sides have the same ids


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of a model.

    Attributes:
        source: tokenizer of the texts to translate.
        target: tokenizer of the translations.
        is_shared: whether an id is the same subword on both sides, which then share an embedding.
        start: the decoder's start id.
        unproducible: ids that no translation contains.
        renormalises: whether the probabilities of the other ids are divided by their sum.
    """

    source: Tokenizer
    target: Tokenizer
    is_shared: bool = False
    start: int = BOS
    unproducible: tuple[int, ...] = UNPRODUCIBLE_IDS
    renormalises: bool = False

    @classmethod
    def joint(cls, tokenizer: Tokenizer) -> "Tokenizers":
        """Return one tokenizer as that of both sides."""
        return cls(tokenizer, tokenizer, is_shared=True)

    @property
    def is_joint(self) -> bool:
        """Whether one tokenizer serves both sides; each side of an imported model has its own."""
        return self.source is self.target

    @property
    def sizes(self) -> Sizes:
        """Number of target ids, and of source ids; None if both sides have the same ids."""
        return self.target.vocab_size, None if self.is_shared else self.source.vocab_size

    @property
    def files(self) -> dict[str, bytes]:
        """Contents of the files, by name, from which `load_tokenizers` makes these tokenizers."""
        if self.is_joint:
            return {FILE: self.source.model_bytes}
        files = {SOURCE: self.source.model_bytes, TARGET: self.target.model_bytes}
        if self.source.imported is not None:
            values = {
                "source": self.source.imported,
                "target": None if self.is_shared else self.target.imported,
                "start": self.start,
                "unproducible": self.unproducible,
                "renormalises": self.renormalises,
            }
            files[SUBWORDS] = (json.dumps(values, indent=1, ensure_ascii=False) + "\n").encode()
        return files

    @cached_property
    def masker(self) -> Masker | None:
        """Masks strings that stay the same, and words that a side's vocabulary cannot spell; None: without masks."""
        most = min(len(self.source.mask_ids), len(self.target.mask_ids))
        characters = self.source.characters & self.target.characters
        return Masker(most, characters, self.source.user_symbols) if most else None

    @cached_property
    def _spelling_masker(self) -> Masker:
        return Masker(0, symbols=self.source.user_symbols, is_spelt=True)

    def find_strings(self, text: str) -> Masked:
        """Return a text with symbols in place of the strings that its translation keeps, for any model."""
        return (self.masker or self._spelling_masker).mask(text)

    def mask(self, text: str) -> Masked:
        """Return a text with its strings masked; without masks, the text as it is."""
        return Masked(text) if self.masker is None else self.masker.mask(text)

    def encode_given(
        self, sources: Sequence[str], translations: Sequence[str]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Split sources, masked, and given translations, with the same symbols, into ids."""
        masked = list(map(self.mask, sources))
        applied = [each.apply(translation) for each, translation in zip(masked, translations, strict=True)]
        return self.source.encode([each.text for each in masked]), self.target.encode(applied)

    def encode_pairs(self, src: Sequence[str], tgt: Sequence[str]) -> tuple[list[list[int]], list[list[int]]]:
        """Mask normalised pairs and split their sides into ids."""
        if self.masker is not None:
            pairs = list(map(self.masker.mask_pair, src, tgt))
            src, tgt = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        return self.source.encode_normalised(src), self.target.encode_normalised(tgt)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the files, one after the other."""
        return hashlib.sha256(b"".join(self.files.values())).hexdigest()


def load_tokenizers(path: Path) -> Tokenizers:
    """Read a `tokenizer.model`, or the tokenizers in a folder: a bundle, an export, or prepared text."""
    if not path.is_dir():
        return Tokenizers.joint(Tokenizer(_read(path), str(path)))
    names = tokenizer_files(path)
    if names == [FILE]:
        return load_tokenizers(path / FILE)
    values = _read_subwords(path / SUBWORDS) if SUBWORDS in names else {}
    source = Tokenizer(_read(path / SOURCE), str(path / SOURCE), values.get("source"))
    target = Tokenizer(_read(path / TARGET), str(path / TARGET), values.get("target") or values.get("source"))
    if not values:
        return Tokenizers(source, target)
    return Tokenizers(
        source, target, values["target"] is None, values["start"], tuple(values["unproducible"]), values["renormalises"]
    )


def _read(path: Path) -> bytes:
    try:
        return read_bounded(path, _MAX_BYTES)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): a tokenizer is expected there") from error


def _read_subwords(path: Path) -> dict[str, Any]:
    values = parse_json(_read(path), path)
    if not _is_imported(values):
        raise UserError(f"{path} is damaged: it does not list the subwords of an imported model, or their ids")
    return values


def _is_imported(values: Any) -> bool:
    """Return whether a file's values are those that `Tokenizers.files` writes."""
    if not isinstance(values, dict) or values.keys() != {"source", "target", "start", "unproducible", "renormalises"}:
        return False
    if not _is_vocabulary(values["source"]) or not (values["target"] is None or _is_vocabulary(values["target"])):
        return False
    fields = cast(dict[str, Any], values)
    ids, size = fields["unproducible"], len(fields["target"] or fields["source"])
    tokens = cast(list[object], ids) if isinstance(ids, list) else [None]
    are_ids = all(type(token) is int and 0 <= token < size for token in tokens)
    is_start = type(fields["start"]) is int and fields["start"] in (PAD, BOS)
    return are_ids and EOS not in tokens and is_start and isinstance(fields["renormalises"], bool)


def _is_vocabulary(subwords: Any) -> bool:
    """Return whether an object numbers subwords, in any order, from 0 on."""
    if not isinstance(subwords, dict):
        return False
    ids = cast(dict[str, object], subwords)
    numbers = [number for number in ids.values() if type(number) is int]
    has_surrogates = any("\ud800" <= character <= "\udfff" for subword in ids for character in subword)
    is_numbered = len(numbers) == len(ids) >= len(SPECIAL_IDS) and sorted(numbers) == list(range(len(ids)))
    return is_numbered and not has_surrogates


def tokenizer_files(folder: Path) -> list[str]:
    """Return the names of the files of a folder's tokenizers."""
    if (folder / FILE).exists() or not any((folder / name).exists() for name in (SOURCE, TARGET)):
        return [FILE]
    return [SOURCE, TARGET, *([SUBWORDS] if (folder / SUBWORDS).exists() else [])]


def write_files(folder: Path, tokenizers: Tokenizers) -> None:
    """Write the files that `load_tokenizers` reads."""
    for name, content in tokenizers.files.items():
        (folder / name).write_bytes(content)


def learn_tokenizers(
    pairs: Callable[[], Iterable[tuple[str, str]]], config: TokenizerConfig, automatic_size: int
) -> Tokenizers:
    """Load the tokenizers that config.model names, or train one on both sides of the pairs or one on each side.

    `pairs` is called for each tokenizer. automatic_size is the size of a vocabulary whose configured size is `auto`.
    """
    if config.model is not None:
        tokenizers = load_tokenizers(expand_user(config.model))
        if missing := [symbol for symbol in config.user_symbols if symbol not in tokenizers.source.user_symbols]:
            raise UserError(
                f"{config.model} has no tokenizer.user_symbols={missing}: leave them out, or train one with them"
            )
        return tokenizers
    is_auto = config.vocab_size == AUTO
    config = resolve_auto(replace(config, vocab_size=automatic_size)) if is_auto else config
    most = resolve_auto(config).masks
    masker = Masker(most, symbols=config.user_symbols) if most else None

    def masked() -> Iterator[tuple[str, str]]:
        return iter(pairs()) if masker is None else starmap(masker.mask_pair, pairs())

    if config.joint:
        return Tokenizers.joint(_train(lambda: chain.from_iterable(masked()), config, is_auto=is_auto))
    source = _train(lambda: (src for src, _ in masked()), config, is_auto=is_auto)
    target = _train(lambda: (tgt for _, tgt in masked()), config, is_auto=is_auto)
    return Tokenizers(source, target)


def _train(texts: Callable[[], Iterable[str]], config: TokenizerConfig, *, is_auto: bool) -> Tokenizer:
    """Train a tokenizer; replace an automatic size that the texts do not allow by the nearest size that they allow."""
    try:
        return train_tokenizer(texts(), config)
    except VocabularySizeError as error:
        if not is_auto:
            raise
        return train_tokenizer(texts(), replace(config, vocab_size=error.nearest))


def describe_tokenizers(config: TokenizerConfig) -> dict[str, Any]:
    """Return, as plain values, everything besides the texts that decides the result of `learn_tokenizers`."""
    if config.model is not None:
        return {"model": load_tokenizers(expand_user(config.model)).digest}
    return {key: value for key, value in asdict(config).items() if key != "joint" or not config.joint}
