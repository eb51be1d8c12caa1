"""The sentence and the translation that are looked at, as texts, ids and pieces; knows no attention."""

from collections.abc import Sequence
from dataclasses import dataclass

from seq2seq.config import SearchConfig
from seq2seq.engine import Engine
from seq2seq.errors import UserError
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.text.normalise import normalise
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.vocab import BOS, EOS
from seq2seq.text.words import word_of_pieces
from seq2seq.translator import Translator

MAX_PIECES = 100  # of either side, its end included: more are neither read by anyone nor sent quickly


@dataclass(frozen=True)
class Word:
    """A word as `text.split()` gives it, or an end or beginning of a sentence, which is a word of its own."""

    text: str
    pieces: list[int]  # numbers of its pieces


@dataclass(frozen=True)
class Subject:
    """What is looked at: a sentence and a translation of it, word for word and piece for piece.

    Attributes:
        source: text, normalised.
        target: text.
        translated: whether the target is the model's own translation.
        src: ids of the source, EOS last.
        tgt_in: BOS, then the ids of the target: what the decoder reads.
        tgt_out: ids of the target, EOS last: what it predicts from each of tgt_in.
        tokenizer: what spells them.
    """

    source: str
    target: str
    translated: bool
    src: list[int]
    tgt_in: list[int]
    tgt_out: list[int]
    tokenizer: Tokenizer

    def source_words(self) -> list[Word]:
        """The words over `src`."""
        return words_of(self.src, self.tokenizer)

    def target_words(self) -> list[Word]:
        """The words over `tgt_out`."""
        return words_of(self.tgt_out, self.tokenizer)

    def read_words(self) -> list[Word]:
        """The words over `tgt_in`."""
        return words_of(self.tgt_in, self.tokenizer)


def make_subject(
    translator: Translator, source: str, target: str | None, settings: SearchConfig | None = None
) -> Subject:
    """Encode a sentence and a given translation, or without one the best that the model finds.

    Raises:
        UserError: either is empty or too long, or the engine is not one model of PyTorch.
    """
    require_engine(translator)
    tokenizer = translator.tokenizer
    src = encode_sentence(tokenizer, source, "sentence")
    if target is not None:
        tgt, text = encode_sentence(tokenizer, target, "target"), normalise(target)
    else:
        (found,) = translator.stream([source], translator.search if settings is None else settings)
        tgt, text = tokenizer.ids(found[0].tokens), found[0].text
        _require_short(len(tgt), "model's translation")
    return Subject(normalise(source), text, target is None, [*src, EOS], [BOS, *tgt], [*tgt, EOS], tokenizer)


def require_engine(translator: Translator) -> tuple[Engine, EncoderDecoder]:
    """The engine whose one model can be looked into, and the model.

    Raises:
        UserError: the engine is another program's, or several models translate together.
    """
    engine = translator.engine
    if not isinstance(engine, Engine):
        raise UserError("this engine shows no attention: use the pytorch engine")
    if not isinstance(engine.model, EncoderDecoder):
        raise UserError("several models together have no one attention to show: give a single --model")
    return engine, engine.model


def words_of(ids: Sequence[int], tokenizer: Tokenizer) -> list[Word]:
    """The words that pieces make up; BOS and EOS are words of their own."""
    pieces = tokenizer.tokens(ids)
    inner = [number for number, one in enumerate(ids) if one not in (BOS, EOS)]
    groups: dict[int, list[int]] = {}
    for number, word in zip(inner, word_of_pieces([pieces[number] for number in inner]), strict=True):
        groups.setdefault(word, []).append(number)
    words = [Word(_spell([ids[number] for number in group], tokenizer), group) for group in groups.values()]
    marks = [Word(pieces[number], [number]) for number, one in enumerate(ids) if one in (BOS, EOS)]
    return sorted([*words, *marks], key=lambda word: word.pieces[0])


def _spell(ids: list[int], tokenizer: Tokenizer) -> str:
    (text,) = tokenizer.decode([ids])
    return text or "".join(tokenizer.tokens(ids))  # such as UNK, which has no text


def encode_sentence(tokenizer: Tokenizer, text: str, name: str) -> list[int]:
    """The ids of a text, by which name errors call it, without EOS.

    Raises:
        UserError: it is empty or too long.
    """
    (ids,) = tokenizer.encode([text])
    if not ids:
        raise UserError(f"the {name} is empty: give one with words")
    _require_short(len(ids), name)
    return ids


def _require_short(length: int, name: str) -> None:
    if length >= MAX_PIECES:
        raise UserError(f"the {name} has {length} pieces: attention is shown for at most {MAX_PIECES - 1}, shorten it")
