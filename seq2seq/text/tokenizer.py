"""Text to subword ids and back: SentencePiece with fixed special ids."""

import io
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from importlib import import_module
from itertools import count, takewhile
from typing import Any

import sentencepiece

from seq2seq.errors import UserError
from seq2seq.settings.data import TokenizerConfig
from seq2seq.settings.rules import AUTO
from seq2seq.text.masks import symbol
from seq2seq.text.normalise import CONTROLS, normalise, one_line, replace_surrogates
from seq2seq.text.subword_sampling import Sampler

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIAL_IDS = (PAD, UNK, BOS, EOS)
UNPRODUCIBLE_IDS = (PAD, UNK, BOS)  # no translation contains them

_LANGUAGE = re.compile(r"(>>.*?<<)?(.*)", re.DOTALL)  # the target language at the beginning of a text, and the rest
_NUM_THREADS = 4  # fixed: the sums of unigram training, and so the model's bytes, depend on this number
_SEED = 1  # of the sample of sentences
_LARGE = 4000  # subwords of the smallest vocabulary that has masks and these characters by default
_MASKS = 8
_CHARACTERS = (
    "".join(map(chr, range(0x21, 0x7F)))  # of a keyboard
    + "".join(chr(code) for code in range(0xA1, 0x180) if normalise(chr(code)) == chr(code) and chr(code) != "\xad")
    + "ȘșȚțẞ“”„‟‘’‚‛‹›–—―…•†‡‰′″‽€₹₽₿№™←↑→↓↔⇒⇐−√∞≈≠≤≥∂∑πΩ▪▸►●○★☆☐☑✓✔✗✘♥♦♪"
)  # fmt: skip
_MAX_BYTES = 1 << 20  # of one sentence; longer ones are left out of the tokenizer's training
_QUIET = 2  # log errors only


class Tokenizer:
    """Turns the texts of one side into ids and ids into text; see `seq2seq.text.vocabulary.Tokenizers` for both sides.

    A trained tokenizer has the subwords of its SentencePiece model and their ids. It normalises texts by `normalise`;
    with byte fallback, `decode(encode(x)) == [normalise(x)]`.

    An imported tokenizer has a list of subwords instead, and splits texts as transformers' MarianTokenizer does. The
    SentencePiece model has its own normalisation. A subword of the model that the list lacks is unknown. A target
    language such as `>>spa<<` at the beginning of a text is one subword.

    Attributes:
        model_bytes: the SentencePiece model.
        imported: an imported tokenizer's subwords in the order of their ids, each with its id in the files that it was
            imported from; None: the tokenizer was trained.
    """

    def __init__(self, model: bytes, name: str = "tokenizer.model", imported: Mapping[str, int] | None = None) -> None:
        """Load a SentencePiece model; errors use the name."""
        self.model_bytes, self.imported = model, imported
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
            subwords = self._processor.id_to_piece(list(range(self._processor.get_piece_size())))
        except (RuntimeError, UnicodeDecodeError) as error:  # the second: a subword that is no UTF-8
            raise UserError(f"{name} is damaged or no SentencePiece model ({len(model)} bytes)") from error
        for key, expected in (("pad_id", PAD), ("unk_id", UNK), ("bos_id", BOS), ("eos_id", EOS)):
            if imported is None and (value := getattr(self._processor, key)()) != expected:
                message = f"{name} has {key}={value}, expected {expected}"
                raise UserError(f"{message}: retrain it with train.py or pass --{key}={expected} to spm_train")
        self._subwords = list(subwords if imported is None else imported)
        self._ids = {subword: token for token, subword in enumerate(self._subwords)}

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[Any, ...]]:
        """Pickle only the model's bytes and the list, from which another process makes the tokenizer again."""
        return Tokenizer, (self.model_bytes, "tokenizer.model", self.imported)

    @property
    def vocab_size(self) -> int:
        """Number of ids, special ids included."""
        return len(self._subwords)

    @property
    def original_ids(self) -> list[int]:
        """The id of each subword in the files that the tokenizer was imported from; its own id if it was trained."""
        return list(range(self.vocab_size) if self.imported is None else self.imported.values())

    @property
    def byte_ids(self) -> list[int]:
        """Ids of the bytes, which spell characters that no other subword has."""
        ids_of_model = enumerate(map(self._processor.piece_to_id, self._subwords))
        return [token for token, id_of_model in ids_of_model if self._processor.is_byte(id_of_model)]

    @cached_property
    def user_symbols(self) -> dict[str, int]:
        """Ids of the strings that are one subword in any context, such as tags of sources, or of target languages.

        The symbols of masks are not among them.
        """
        if self.imported is not None:
            return {subword: i for subword, i in self._ids.items() if subword[:2] == ">>" and subword[-2:] == "<<"}
        return {text: i for text, i in self._user_defined.items() if i not in self.mask_ids}

    @cached_property
    def mask_ids(self) -> list[int]:
        """Ids of the symbols ⟨1⟩, ⟨2⟩ … of masks (`seq2seq.text.masks`); an imported tokenizer has none."""
        symbols = map(symbol, count(1))
        return [self._user_defined[text] for text in takewhile(self._user_defined.__contains__, symbols)]

    @property
    def characters(self) -> set[str]:
        """The characters that are subwords; others are spelt as bytes, or unknown."""
        return {text for text in (subword.removeprefix("▁") for subword in self._subwords) if len(text) == 1}

    @cached_property
    def _user_defined(self) -> dict[str, int]:
        if self.imported is not None:
            return {}
        ids = range(len(SPECIAL_IDS), self.vocab_size)
        if all(self._processor.get_score(i) or self._processor.is_byte(i) for i in ids):
            return {}  # user symbols have the score 0, but so does the first merge of byte-pair encoding
        pieces = self._description.pieces
        return {piece.piece: i for i, piece in enumerate(pieces) if piece.type == piece.USER_DEFINED}

    @cached_property
    def words(self) -> frozenset[str]:
        """Words of two letters or more that are one subword, as they are frequent: with a capital or without."""
        return frozenset(subword[1:] for subword in self._subwords if subword[0] == "▁" and len(subword) > 2)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Normalise and split texts into ids, without BOS and EOS; an empty text has no ids."""
        change = normalise if self.imported is None else replace_surrogates  # which SentencePiece does not accept
        return self.encode_normalised([change(text) for text in texts])

    def encode_normalised(self, texts: Sequence[str]) -> list[list[int]]:
        """Split normalised texts into ids."""
        if self.imported is None:
            return self._processor.encode(list(texts), num_threads=1)
        languages, rests = list[list[str]](), list[str]()
        for text in texts:
            match = _LANGUAGE.fullmatch(text)
            assert match is not None
            languages.append([match[1]] if match[1] else [])
            rests.append(match[2])
        rows = self._processor.encode(rests, out_type=str, num_threads=1)
        return [self.ids([*language, *row]) for language, row in zip(languages, rows, strict=True)]

    def sample(self, texts: Sequence[str], *, alpha: float, seed: int) -> list[list[int]]:
        """Split normalised texts at random, the same way for the same texts and seed in every thread and process.

        With a unigram vocabulary, a segmentation is drawn from all in proportion to P(x)^alpha (Kudo 2018, §3.2). With
        a BPE vocabulary, each merge is skipped with probability alpha (Provilkov et al. 2020). User symbols are never
        split.
        """
        if self.imported is not None:
            raise UserError("an imported model's vocabulary has no random splits: leave out training.subword_sampling")
        return self._sampler(alpha).sample(texts, seed)

    @cached_property
    def _sampler(self) -> Callable[[float], Sampler]:
        return cache(partial(Sampler, self._processor, self._user_defined, self.is_bpe))

    @property
    def scores(self) -> list[float]:
        """The score of each subword: its log-probability, or the order of its merge, negated (BPE)."""
        return [self._processor.get_score(self._processor.piece_to_id(subword)) for subword in self._subwords]

    @cached_property
    def is_bpe(self) -> bool:
        """Whether subwords are those of byte-pair encoding; else of a unigram model."""
        spec = self._description.trainer_spec
        return spec.model_type == spec.BPE

    @property
    def has_usual_rules(self) -> bool:
        """Whether the vocabulary cuts texts as those of `train_tokenizer` do, whoever made it."""
        spec, rules = self._description.trainer_spec, self._description.normalizer_spec
        is_usual = rules.name == "identity" and rules.add_dummy_prefix and not spec.treat_whitespace_as_suffix
        return self.imported is None and is_usual and spec.model_type in (spec.BPE, spec.UNIGRAM)

    @cached_property
    def _description(self) -> Any:
        format_of_models: Any = import_module("sentencepiece.sentencepiece_model_pb2")  # made at run time: no types
        return format_of_models.ModelProto.FromString(self.model_bytes)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Join ids into texts of one line each, without special ids."""
        if self.imported is None:
            texts = [self._processor.decode([int(i) for i in row if i not in SPECIAL_IDS]) for row in ids]
            return [normalise(text) for text in texts]
        rows = ([self._subwords[i] for i in row if i not in (PAD, UNK, EOS)] for row in ids)  # 2 may be no special id
        return [one_line(CONTROLS.sub("", self._processor.decode_pieces(row)).replace("▁", " ")) for row in rows]

    def rarities(self, words: Sequence[str]) -> list[tuple[int, float]]:
        """Return how rare each word is: the number of its subwords, then a single subword's score, negated."""
        rows = [[self._processor.piece_to_id(subword) for subword in self.tokens(ids)] for ids in self.encode(words)]
        return [(len(row), -self._processor.get_score(row[0]) if len(row) == 1 else 0.0) for row in rows]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the subwords of ids, special ones included."""
        return [self._subwords[i] for i in ids]

    def ids(self, tokens: Sequence[str]) -> list[int]:
        """Return the ids of subwords; a string that is no subword of the vocabulary becomes UNK."""
        return [self._ids.get(token, UNK) for token in tokens]


class VocabularySizeError(UserError):
    """The vocabulary is larger than the texts can fill or smaller than they need; nearest is a size that fits."""

    def __init__(self, message: str, nearest: int) -> None:
        super().__init__(message)
        self.nearest = nearest


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Learn a subword vocabulary of config.vocab_size ids from normalised texts; equal texts give equal bytes."""
    settled = resolve_auto(config)
    model, sample = io.BytesIO(), _sample(filter(None, texts), config.input_sentence_size)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sample),
            model_writer=model,
            model_type=config.type,
            vocab_size=config.vocab_size,
            byte_fallback=config.byte_fallback,
            character_coverage=config.character_coverage,
            required_chars=settled.required_characters,
            split_digits=config.split_digits,
            shuffle_input_sentence=False,  # SentencePiece's own sampling differs from process to process
            max_sentence_length=_MAX_BYTES,
            normalization_rule_name="identity",
            user_defined_symbols=[*map(symbol, range(1, settled.masks + 1)), *config.user_symbols],
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            num_threads=_NUM_THREADS,
            minloglevel=_QUIET,
        )
    except RuntimeError as error:
        failure = _explain(str(error), config)
        if isinstance(failure, VocabularySizeError):
            nearest = replace(config, vocab_size=failure.nearest)
            if resolve_auto(nearest) != replace(
                settled, vocab_size=failure.nearest
            ):  # without them, fewer subwords fit
                try:
                    train_tokenizer(sample, nearest)
                except VocabularySizeError as smaller:
                    failure = _too_large(config, smaller.nearest)
        raise failure from error
    return Tokenizer(model.getvalue())


def resolve_auto(config: TokenizerConfig) -> TokenizerConfig:
    """Return the settings with numbers and characters in place of `auto`, by the size of the vocabulary."""
    assert config.vocab_size != AUTO
    is_large = config.vocab_size >= _LARGE
    characters, masks = config.required_characters, config.masks
    return replace(
        config,
        required_characters=(_CHARACTERS if is_large else "") if characters == AUTO else characters,
        masks=(_MASKS if is_large else 0) if masks == AUTO else masks,
    )


def _sample(texts: Iterable[str], size: int) -> list[str]:
    """Draw `size` texts, each with the same probability; all texts if there are fewer."""
    rng, sample = random.Random(_SEED), list[str]()
    for i, text in enumerate(texts):
        if i < size:
            sample.append(text)
        elif (position := int(rng.random() * (i + 1))) < size:
            sample[position] = text
    return sample


def _too_large(config: TokenizerConfig, nearest: int) -> VocabularySizeError:
    size = f"tokenizer.vocab_size={config.vocab_size}"
    return VocabularySizeError(
        f"{size} is larger than the training text can fill: set it to at most {nearest}", nearest
    )


def _explain(error: str, config: TokenizerConfig) -> UserError:
    """Return an error of SentencePiece's trainer with a message that names our settings."""
    size = f"tokenizer.vocab_size={config.vocab_size}"
    if match := re.search(r"value <= (\d+)", error):
        return _too_large(config, int(match[1]))
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", error):
        message = (
            f"{size} does not even hold the single characters: set it to at least {match[1]} "
            f"or lower tokenizer.character_coverage={config.character_coverage} and tokenizer.required_characters"
        )
        return VocabularySizeError(message, int(match[1]))
    if "sentences_.empty()" in error:
        return UserError("there is no text to train a tokenizer on: see data.train")
    return UserError(f"SentencePiece cannot train a tokenizer: {error}")
