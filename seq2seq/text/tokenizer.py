"""Text to subword ids and back: SentencePiece with fixed special ids."""

import hashlib
import io
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import sentencepiece

from seq2seq.errors import UserError
from seq2seq.settings.data import TokenizerConfig
from seq2seq.text.normalise import normalise
from seq2seq.text.segmenting import Sampler

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIAL_IDS = (PAD, UNK, BOS, EOS)
UNPRODUCIBLE_IDS = (PAD, UNK, BOS)  # no translation contains them

FILE = "tokenizer.model"
Sizes = tuple[int, int | None]  # number of target ids, and of source ids; None if both sides have the same ids
_NUM_THREADS = 4  # fixed: the sums of unigram training, and so the model's bytes, depend on this number
_SEED = 1  # of the sample of sentences
_MAX_BYTES = 1 << 20  # of one sentence; longer ones are left out of the tokenizer's training
_MAX_MODEL = 100_000_000  # bytes of a tokenizer's file; a vocabulary of 32,000 ids takes half a million
_QUIET = 2  # log errors only


class Tokenizer:
    """Turns normalised text into ids and ids into text; `decode(encode(x)) == normalise(x)` with byte fallback.

    One tokenizer can serve both sides; a `seq2seq.text.vocabulary.TokenizerPair` has one tokenizer for each side.
    """

    is_shared = True
    start = BOS
    unproducible = UNPRODUCIBLE_IDS
    renormalises = False

    def __init__(self, model: bytes, name: str = "tokenizer.model") -> None:
        """Load a SentencePiece model; errors use the name.

        Raises:
            UserError: the bytes are no SentencePiece model, or its special ids are not `SPECIAL_IDS`.
        """
        self.model_bytes = model
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
            self._processor.id_to_piece(list(range(self.vocab_size)))
        except (RuntimeError, UnicodeDecodeError) as error:  # the second: a piece that is no UTF-8
            raise UserError(f"{name} is damaged or no SentencePiece model ({len(model)} bytes)") from error
        found = {
            "pad_id": (self._processor.pad_id(), PAD),
            "unk_id": (self._processor.unk_id(), UNK),
            "bos_id": (self._processor.bos_id(), BOS),
            "eos_id": (self._processor.eos_id(), EOS),
        }
        for key, (value, expected) in found.items():
            if value != expected:
                raise UserError(
                    f"{name} has {key}={value}, expected {expected}: "
                    f"retrain it with train.py or pass --{key}={expected} to spm_train"
                )

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[bytes]]:
        """Pickle only the model's bytes, from which another process makes the tokenizer again."""
        return Tokenizer, (self.model_bytes,)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Read a `tokenizer.model`.

        Raises:
            UserError: the file is missing, unreadable, damaged, or its special ids are not `SPECIAL_IDS`.
        """
        try:
            if (size := path.stat().st_size) > _MAX_MODEL:
                raise UserError(f"{path} has {size:,} bytes: it is no tokenizer")
            return cls(path.read_bytes(), str(path))
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error.strerror}): a tokenizer is expected there") from error

    @property
    def source(self) -> "Tokenizer":
        """The tokenizer of sources: this one."""
        return self

    @property
    def target(self) -> "Tokenizer":
        """The tokenizer of targets: this one."""
        return self

    @property
    def sizes(self) -> Sizes:
        """Number of target ids, and None, because the source has the same ids."""
        return self.vocab_size, None

    @property
    def files(self) -> dict[str, bytes]:
        """The contents of the tokenizer's file, by the file's name."""
        return {FILE: self.model_bytes}

    @property
    def digest(self) -> str:
        """SHA-256 of the model."""
        return hashlib.sha256(self.model_bytes).hexdigest()

    @property
    def vocab_size(self) -> int:
        """Number of ids, special ids included."""
        return self._processor.get_piece_size()

    @property
    def byte_ids(self) -> list[int]:
        """Ids of the bytes, which spell characters that no other piece has."""
        return [one for one in range(self.vocab_size) if self._processor.is_byte(one)]

    @cached_property
    def user_symbols(self) -> dict[str, int]:
        """Ids of the strings that are one piece in any context, such as tags of sources."""
        ids = range(len(SPECIAL_IDS), self.vocab_size)
        if all(self._processor.get_score(i) or self._processor.is_byte(i) for i in ids):
            return {}  # user symbols have the score 0, but so does the first merge of byte-pair encoding
        pieces = self._description.pieces
        return {piece.piece: i for i, piece in enumerate(pieces) if piece.type == piece.USER_DEFINED}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Normalise and split texts into ids, without BOS and EOS; an empty text has no ids."""
        return [self._processor.encode(normalise(text)) for text in texts]  # one call for all starts threads

    def encode_normalised(self, texts: Sequence[str]) -> list[list[int]]:
        """Split normalised texts into ids."""
        return self._processor.encode(list(texts))

    def sample(self, texts: Sequence[str], *, alpha: float, nbest: int, seed: int) -> list[list[int]]:
        """Split normalised texts at random, the same way for the same texts and seed in every thread and process.

        With a unigram vocabulary, a segmentation is drawn in proportion to P(x)^alpha from the nbest likeliest ones, or
        with nbest=-1 from all (Kudo 2018, §3.2). With a BPE vocabulary, each merge is skipped with probability alpha
        (Provilkov et al. 2020). User symbols are never split.
        """
        return self._sampler(alpha, nbest).sample(texts, seed)

    def _sampler(self, alpha: float, nbest: int) -> Sampler:
        key = (alpha, nbest)
        if key not in self._samplers:
            self._samplers[key] = Sampler(
                self._processor, self.user_symbols, is_bpe=self._is_bpe, alpha=alpha, nbest=nbest
            )
        return self._samplers[key]

    @cached_property
    def _samplers(self) -> dict[tuple[float, int], Sampler]:
        return {}

    @cached_property
    def _is_bpe(self) -> bool:
        spec = self._description.trainer_spec
        return spec.model_type == spec.BPE

    @cached_property
    def _description(self) -> Any:
        format_of_models: Any = import_module("sentencepiece.sentencepiece_model_pb2")  # made at run time: no types
        return format_of_models.ModelProto.FromString(self.model_bytes)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Join ids into texts of one line each, without special ids.

        Raises:
            IndexError: an id is not in the vocabulary.
        """
        texts = [self._processor.decode([int(i) for i in row if i not in SPECIAL_IDS]) for row in ids]
        return [normalise(text) for text in texts]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the pieces of ids, special pieces included.

        Raises:
            IndexError: an id is not in the vocabulary.
        """
        return [self._processor.id_to_piece(int(i)) for i in ids]

    def ids(self, tokens: Sequence[str]) -> list[int]:
        """Return the ids of pieces; a string that is no piece of the vocabulary becomes UNK."""
        return [self._processor.piece_to_id(token) for token in tokens]


class VocabularySizeError(UserError):
    """The vocabulary is larger than the texts can fill or smaller than they need; nearest is a size that fits."""

    def __init__(self, message: str, nearest: int) -> None:
        super().__init__(message)
        self.nearest = nearest


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Learn a subword vocabulary of config.vocab_size ids; the same texts always give the same bytes.

    Raises:
        UserError: there is no text, or the vocabulary is larger than the texts can fill or smaller than they need.
    """
    model = io.BytesIO()
    failures: list[Exception] = []  # errors of reading texts; SentencePiece would turn each into a RuntimeError
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_feed(texts, config.input_sentence_size, failures),
            model_writer=model,
            model_type=config.type,
            vocab_size=config.vocab_size,
            byte_fallback=config.byte_fallback,
            character_coverage=config.character_coverage,
            shuffle_input_sentence=False,  # SentencePiece's own sampling differs from process to process
            max_sentence_length=_MAX_BYTES,
            normalization_rule_name="identity",
            user_defined_symbols=config.user_symbols,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            num_threads=_NUM_THREADS,
            minloglevel=_QUIET,
        )
    except RuntimeError as error:
        if failures:
            raise failures[0] from None
        raise _explain(str(error), config) from error
    return Tokenizer(model.getvalue())


def _feed(texts: Iterable[str], size: int, failures: list[Exception]) -> Iterator[str]:
    """Yield a sample of the texts to learn from; add an error of reading texts to failures."""
    try:
        yield from _sample((text for text in map(normalise, texts) if text), size)
    except Exception as error:
        failures.append(error)
        raise


def _sample(texts: Iterable[str], size: int) -> list[str]:
    """Draw `size` texts, each with the same probability; all texts if there are fewer."""
    rng, sample = random.Random(_SEED), []
    for i, text in enumerate(texts):
        if i < size:
            sample.append(text)
        elif (place := int(rng.random() * (i + 1))) < size:
            sample[place] = text
    return sample


def _explain(message: str, config: TokenizerConfig) -> UserError:
    """Return an error of SentencePiece's trainer with a message that names our settings."""
    size = f"tokenizer.vocab_size={config.vocab_size}"
    if match := re.search(r"value <= (\d+)", message):
        told = f"{size} is larger than the training text can fill: set it to at most {match[1]}"
        return VocabularySizeError(told, int(match[1]))
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        told = (
            f"{size} does not even hold the single characters: set it to at least {match[1]} "
            f"or lower tokenizer.character_coverage={config.character_coverage}"
        )
        return VocabularySizeError(told, int(match[1]))
    if "sentences_.empty()" in message:
        return UserError("there is no text to train a tokenizer on: see data.train")
    return UserError(f"SentencePiece cannot train a tokenizer: {message}")
