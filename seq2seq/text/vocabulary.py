"""The tokenizers of a model: one for both sides, one for each, or those of an imported Marian model."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from seq2seq.errors import UserError
from seq2seq.settings.bundle import read_bounded
from seq2seq.settings.data import TokenizerConfig
from seq2seq.settings.rules import AUTO
from seq2seq.text import marian
from seq2seq.text.marian import MarianVocabulary, read_marian
from seq2seq.text.tokenizer import BOS, FILE, UNPRODUCIBLE_IDS, Sizes, Tokenizer, VocabularySizeError, train_tokenizer

SOURCE, TARGET = "source.model", "target.model"
_LAYOUTS = ((FILE,), (SOURCE, TARGET), marian.FILES)  # the files of each kind; any of the first three identifies it
_MOST_BYTES = 100_000_000  # of a file; a vocabulary of 32,000 ids takes half a million

Side = Tokenizer | MarianVocabulary


@dataclass(frozen=True)
class TokenizerPair:
    """The tokenizers of source and target, if they differ.

    Attributes:
        source: tokenizer of the texts to translate.
        target: tokenizer of the translations.
        files: contents of the files, by name, from which `make_tokenizers` makes this pair.
        is_shared: whether an id is the same piece on both sides, which then share an embedding.
        start: the decoder's start id.
        unproducible: ids that no translation contains.
        renormalises: whether the probabilities of the other ids are divided by their sum.
    """

    source: Side
    target: Side
    files: Mapping[str, bytes]
    is_shared: bool = False
    start: int = BOS
    unproducible: tuple[int, ...] = UNPRODUCIBLE_IDS
    renormalises: bool = False

    @property
    def sizes(self) -> Sizes:
        """Number of target ids, and of source ids; None if both sides have the same ids."""
        return self.target.vocab_size, None if self.is_shared else self.source.vocab_size

    @property
    def digest(self) -> str:
        """SHA-256 of the files."""
        found = hashlib.sha256()
        for name in sorted(self.files):
            found.update(f"{name} {hashlib.sha256(self.files[name]).hexdigest()}\n".encode())
        return found.hexdigest()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only the files, from which another process makes the tokenizers again."""
        return make_tokenizers, (dict(self.files),)


Tokenizers = Tokenizer | TokenizerPair


def make_tokenizers(files: Mapping[str, bytes], place: str = ".") -> Tokenizers:
    """Make tokenizers from the contents of a folder's files; errors call the folder `place`.

    Raises:
        UserError: a file is missing or damaged, or its special ids are not `SPECIAL_IDS`.
    """
    if FILE in files:
        return Tokenizer(files[FILE], f"{place}/{FILE}")
    if SOURCE in files and TARGET in files:
        return TokenizerPair(*(Tokenizer(files[name], f"{place}/{name}") for name in (SOURCE, TARGET)), files=files)
    if marian.SOURCE in files:
        found = read_marian(files, place)
        return TokenizerPair(
            found.source,
            found.target,
            files,
            is_shared=found.is_shared,
            start=found.start,
            unproducible=found.unproducible,
            renormalises=found.renormalises,
        )
    raise UserError(f"{place} has no tokenizer: {FILE} is missing")


def load_tokenizers(path: Path) -> Tokenizers:
    """Read a `tokenizer.model`, or the tokenizers in a folder: a bundle, an export, or prepared text.

    Raises:
        UserError: a file is missing, unreadable or damaged, or its special ids are not `SPECIAL_IDS`.
    """
    return make_tokenizers(read_files(path), str(path)) if path.is_dir() else Tokenizer.load(path)


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the contents of the files of a folder's tokenizers, by name.

    Raises:
        UserError: a file cannot be read, or is too large.
    """
    found = {}
    for name in tokenizer_files(folder):
        path = folder / name
        try:
            found[name] = read_bounded(path, _MOST_BYTES)
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error.strerror}): a tokenizer is expected there") from error
    return found


def tokenizer_files(folder: Path) -> list[str]:
    """Return the names of the files of a folder's tokenizers."""
    layout = next((names for names in _LAYOUTS if any((folder / name).exists() for name in names[:3])), _LAYOUTS[0])
    return [name for name in layout if name in layout[:2] or (folder / name).exists()]


def write_files(folder: Path, tokenizers: Tokenizers) -> None:
    """Write the files that `load_tokenizers` reads."""
    for name, content in tokenizers.files.items():
        (folder / name).write_bytes(content)


def learn_tokenizers(
    pairs: Callable[[], Iterable[tuple[str, str]]], config: TokenizerConfig, automatic_size: int
) -> Tokenizers:
    """Load the tokenizers that config.model names, or train one on both sides of the pairs or one on each side.

    `pairs` is called for each tokenizer. automatic_size is the size of a vocabulary whose configured size is `auto`.

    Raises:
        UserError: `load_tokenizers` or `train_tokenizer` raised it, or a loaded tokenizer lacks config.user_symbols.
    """
    if config.model is not None:
        found = load_tokenizers(Path(config.model))
        if missing := [symbol for symbol in config.user_symbols if symbol not in found.source.user_symbols]:
            raise UserError(
                f"{config.model} has no tokenizer.user_symbols={missing}: leave them out, or train one with them"
            )
        return found
    if config.joint:
        return _train(lambda: (side for pair in pairs() for side in pair), config, automatic_size)
    source = _train(lambda: (src for src, _ in pairs()), config, automatic_size)
    target = _train(lambda: (tgt for _, tgt in pairs()), config, automatic_size)
    return TokenizerPair(source, target, {SOURCE: source.model_bytes, TARGET: target.model_bytes})


def _train(texts: Callable[[], Iterable[str]], config: TokenizerConfig, automatic_size: int) -> Tokenizer:
    """Train a tokenizer; replace an `auto` size that the texts do not allow by the nearest size that they allow."""
    if config.vocab_size != AUTO:
        return train_tokenizer(texts(), config)
    try:
        return train_tokenizer(texts(), replace(config, vocab_size=automatic_size))
    except VocabularySizeError as error:
        return train_tokenizer(texts(), replace(config, vocab_size=error.nearest))


def describe_tokenizers(config: TokenizerConfig) -> dict[str, Any]:
    """Return, as plain values, everything besides the texts that decides the result of `learn_tokenizers`.

    Raises:
        UserError: the files of config.model cannot be read, or are no tokenizers of this program.
    """
    if config.model is not None:
        return {"model": load_tokenizers(Path(config.model)).digest}
    return {key: value for key, value in asdict(config).items() if key != "joint" or not config.joint}
