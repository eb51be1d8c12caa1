"""The vocabularies of a Marian model in Hugging Face's layout: two SentencePiece models and the ids of their pieces."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sentencepiece

from seq2seq.errors import UserError, in_short
from seq2seq.text.normalise import one_line
from seq2seq.text.tokenizer import EOS, PAD, UNK

SOURCE, TARGET = "source.spm", "target.spm"
VOCAB, TARGET_VOCAB = "vocab.json", "target_vocab.json"  # the second exists if each side has its own vocabulary
SETTINGS, GENERATION = "tokenizer_config.json", "generation_config.json"
_SURROGATES = re.compile("[\ud800-\udfff]")
FILES = (SOURCE, TARGET, VOCAB, TARGET_VOCAB, SETTINGS, GENERATION)


class Special(NamedTuple):
    """The special pieces of a vocabulary, which are not text."""

    pad: str = "<pad>"
    unk: str = "<unk>"
    eos: str = "</s>"


class MarianVocabulary:
    """One side's vocabulary, with the interface of `Tokenizer`; its ids are ours, not Marian's.

    Our ids are Marian's in another order. The pieces of padding, unknown and end have our ids `PAD`, `UNK` and `EOS`.
    If translations start with a piece of their own, the start piece has id 2. The other pieces keep Marian's order; one
    of them has id 2 if there is no start piece. Texts are split as transformers' MarianTokenizer splits them: a target
    language such as `>>spa<<` at the beginning is one piece, SentencePiece splits the rest, and a piece that vocab.json
    lacks is unknown.

    Attributes:
        order: Marian's ids in the order of our ids.
    """

    def __init__(
        self, model: bytes, ids: Mapping[str, int], special: Special, name: str, start: int | None = None
    ) -> None:
        """Load a SentencePiece model and Marian's ids of pieces; Marian's id `start` becomes id 2; errors use the name.

        Raises:
            UserError: model is not a SentencePiece model.
        """
        self.model_bytes, self.special = model, special
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise UserError(f"{name} is damaged or no SentencePiece model ({len(model)} bytes)") from error
        pieces = sorted(ids, key=ids.__getitem__)
        first = [ids[special.pad], ids[special.unk], start, ids[special.eos]]
        others = (number for number in range(len(pieces)) if number not in first)
        self.order = [next(others) if one is None else one for one in first] + list(others)
        self._pieces = [pieces[number] for number in self.order]
        self._ids = {piece: number for number, piece in enumerate(self._pieces)}

    @property
    def vocab_size(self) -> int:
        """Number of ids, special ids included."""
        return len(self._pieces)

    @property
    def byte_ids(self) -> list[int]:
        """Ids of the bytes, which spell characters that no other piece has; Marian's own vocabularies have no bytes."""
        known = ((number, self._processor.piece_to_id(piece)) for number, piece in enumerate(self._pieces))
        return [number for number, of_model in known if self._processor.is_byte(of_model)]

    @property
    def user_symbols(self) -> dict[str, int]:
        """Ids of target languages such as `>>spa<<`, each of which is one piece at the beginning of a text."""
        return {piece: number for piece, number in self._ids.items() if piece.startswith(">>") and piece.endswith("<<")}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Split texts into ids, without start and EOS; an empty text has no ids."""
        return [self.ids(self._split(text)) for text in texts]

    encode_normalised = encode  # SentencePiece normalises by the rules in its model

    def _split(self, text: str) -> list[str]:
        text = _SURROGATES.sub("\ufffd", text)  # SentencePiece does not accept surrogates
        code, end = "", text.find("<<") + 2
        if text.startswith(">>") and end > 1:
            code, text = text[:end], text[end:]
        return [code] * bool(code) + self._processor.encode(text, out_type=str)

    def sample(self, texts: Sequence[str], **settings: Any) -> list[list[int]]:
        """Raise an error: an imported vocabulary does not split texts at random.

        Raises:
            UserError: always.
        """
        raise UserError("an imported model's vocabulary has no random splits: leave out training.subword_sampling")

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Join ids into texts of one line each, without special ids.

        Raises:
            IndexError: an id is not in the vocabulary.
        """
        texts = (
            self._processor.decode_pieces([self._pieces[i] for i in row if i not in (PAD, UNK, EOS)]) for row in ids
        )
        return [one_line(text.replace("▁", " ")) for text in texts]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the pieces of ids, special pieces included.

        Raises:
            IndexError: an id is not in the vocabulary.
        """
        return [self._pieces[i] for i in ids]

    def ids(self, tokens: Sequence[str]) -> list[int]:
        """Return the ids of pieces; a string that is no piece of the vocabulary becomes UNK."""
        return [self._ids.get(token, UNK) for token in tokens]


class MarianVocabularies(NamedTuple):
    """The vocabularies of both sides, and the settings that a search needs for them."""

    source: MarianVocabulary
    target: MarianVocabulary
    is_shared: bool  # whether both have the same ids
    start: int  # the decoder's start id
    unproducible: tuple[int, ...]  # ids that no translation contains
    renormalises: bool  # whether the probabilities of the other ids are divided by their sum


def read_marian(files: Mapping[str, bytes], place: str) -> MarianVocabularies:
    """Read both vocabularies from the contents of `FILES`; errors call the folder `place`.

    Raises:
        UserError: a file is missing or damaged, or asks for a search that is impossible or not supported.
    """
    settings = _read_json(files, SETTINGS, place) if SETTINGS in files else {}
    special = Special(*(_text_of(settings.get(f"{key}_token"), value) for key, value in Special()._asdict().items()))
    if len(set(special)) < len(special):
        raise UserError(in_short(f"{place}/{SETTINGS} is damaged: padding, unknown and end mark are {special!r}"))
    is_shared = TARGET_VOCAB not in files
    ids = [_read_ids(files, name, place, special) for name in ((VOCAB, VOCAB) if is_shared else (VOCAB, TARGET_VOCAB))]
    generation = _read_json(files, GENERATION, place)
    start = generation.get("decoder_start_token_id")
    if type(start) is not int or not 0 <= start < len(ids[1]):
        told = in_short(f"decoder_start_token_id={start!r}")
        raise UserError(f"{place}/{GENERATION} has {told}: it is no id of the vocabulary")
    if start in [ids[1].get(piece) for piece in (special.unk, special.eos)]:
        raise UserError(f"{place}/{GENERATION} has decoder_start_token_id={start}, which is no padding and no own mark")
    own = None if start == ids[1].get(special.pad) else start
    source, target = (
        MarianVocabulary(_content(files, name, place), of_side, special, f"{place}/{name}", first)
        for name, of_side, first in zip((SOURCE, TARGET), ids, (own if is_shared else None, own), strict=True)
    )
    never = _never_produced(generation, f"{place}/{GENERATION}")
    if outside := [one for one in never if not 0 <= one < len(ids[1])]:
        raise UserError(in_short(f"{place}/{GENERATION} forbids {outside}, which the vocabulary does not have"))
    if ids[1][special.eos] in never:
        raise UserError(f"{place}/{GENERATION} forbids the end mark: no translation would end")
    unproducible = sorted({PAD, *(target.order.index(one) for one in never)})
    first, renormalises = PAD if own is None else 2, generation.get("renormalize_logits") is True
    return MarianVocabularies(source, target, is_shared, first, tuple(unproducible), renormalises)


def _never_produced(generation: Mapping[str, Any], name: str) -> list[int]:
    """Return Marian's ids that no translation contains."""
    words, tokens = generation.get("bad_words_ids") or [], generation.get("suppress_tokens") or []
    if not (isinstance(words, list) and isinstance(tokens, list)):
        raise UserError(f"{name} is damaged: bad_words_ids or suppress_tokens is no list")
    for one in words:
        if not (isinstance(one, list) and len(one) == 1):
            told = in_short(f"{name} has bad_words_ids of several pieces, such as {one!r:.40}")
            raise UserError(f"{told}: only single ones are known")
    found = [*(one[0] for one in words), *tokens]
    if not all(type(one) is int for one in found):
        raise UserError(f"{name} is damaged: bad_words_ids or suppress_tokens has what is no id")
    return found


def _text_of(piece: Any, default: str) -> str:
    """Return a special piece of tokenizer_config.json, a string or an object with the string; else the default."""
    found = piece.get("content") if isinstance(piece, dict) else piece
    return found if isinstance(found, str) else default


def _read_ids(files: Mapping[str, bytes], name: str, place: str, special: Special) -> dict[str, int]:
    ids = _read_json(files, name, place)
    if not all(type(value) is int for value in ids.values()):
        raise UserError(f"{place}/{name} is damaged: it does not give every piece a number")
    if sorted(ids.values()) != list(range(len(ids))):
        raise UserError(f"{place}/{name} is damaged: it does not number its {len(ids)} pieces from 0 on")
    if missing := [piece for piece in special if piece not in ids]:
        raise UserError(in_short(f"{place}/{name} lacks {', '.join(missing)}, which {SETTINGS} names"))
    if any(_SURROGATES.search(piece) for piece in ids):
        raise UserError(f"{place}/{name} is damaged: it has a piece that is no text")
    return ids


def _read_json(files: Mapping[str, bytes], name: str, place: str) -> dict[str, Any]:
    content = _content(files, name, place)
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:  # numbers with thousands of digits also raise a ValueError
        raise UserError(f"{place}/{name} is damaged: it is no JSON") from error
    if not isinstance(values, dict):
        raise UserError(f"{place}/{name} is damaged: it is no object")
    return values


def _content(files: Mapping[str, bytes], name: str, place: str) -> bytes:
    if name not in files:
        raise UserError(f"{place}/{name} is missing: the vocabulary of a Marian model needs it")
    return files[name]
