"""What is explained: a sentence with its translation, and the attention heads of a model."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from seq2seq.errors import UserError, printable
from seq2seq.model.attention import MultiHeadAttention
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.transformer import Transformer
from seq2seq.settings.search import SearchConfig
from seq2seq.text.normalise import normalise
from seq2seq.text.tokenizer import EOS, Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.text.words import word_of_subwords
from seq2seq.translate.engine import Engine
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import SearchRequest

MAX_SUBWORDS = 100  # per side, EOS included; a larger map is unreadable and slow to send
PARTS = ("encoder", "decoder", "cross")  # self-attention of the encoder and of the decoder, and cross-attention


@dataclass(frozen=True)
class Word:
    """A word, separated by spaces as in `text.split()`, or the start or end mark."""

    text: str
    subwords: list[int]  # positions of the word's subwords


@dataclass(frozen=True)
class Subject:
    """A sentence and its translation."""

    source: str  # the normalised text of the sentence
    target: str  # the text of the translation
    translated: bool  # whether the model made the translation; False: the user gave it
    src: list[int]  # ids of the source, EOS last
    tgt_in: list[int]  # ids that the decoder reads: the start, then the target's ids
    tgt_out: list[int]  # ids that the decoder predicts: the target's ids, then EOS
    tokenizer: Tokenizers  # of the model

    def words(self) -> dict[str, tuple[list[Word], list[Word]]]:
        """Return the words of the rows and of the columns of each part's attention."""
        sides, marks = self.tokenizer, {len(self.tgt_out) - 1}
        source = words_of(self.src, sides.source, {len(self.src) - 1})
        read, target = words_of(self.tgt_in, sides.target, {0}), words_of(self.tgt_out, sides.target, marks)
        return {"encoder": (source, source), "decoder": (read, read), "cross": (target, source)}


def make_subject(
    translator: Translator, source: str, target: str | None, settings: SearchConfig | None = None
) -> Subject:
    """Return a sentence and its translation with their ids; if target is None, the model translates.

    Raises:
        UserError: either text is empty or too long, or the engine is not one PyTorch model.
    """
    require_engine(translator)
    tokenizer = translator.tokenizer
    masked = tokenizer.mask(source)
    src = encode_sentence(tokenizer.source, masked.text, "sentence")
    if target is not None:
        tgt, text = encode_sentence(tokenizer.target, masked.apply(target), "target"), normalise(target)
    else:
        ((best, *_),) = translator.stream([source], SearchRequest(settings=settings or translator.search))
        tgt, text = tokenizer.target.ids(best.tokens), best.text
        _require_short(len(tgt), "model's translation", "give a shorter sentence or a target")
    return Subject(
        normalise(source), text, target is None, [*src, EOS], [tokenizer.start, *tgt], [*tgt, EOS], tokenizer
    )


def require_engine(translator: Translator) -> tuple[Engine, EncoderDecoder]:
    """Return the engine and its only model.

    Raises:
        UserError: the engine is not PyTorch's, or it has several models.
    """
    engine = translator.engine
    if not isinstance(engine, Engine):
        raise UserError("this engine shows no attention: use the pytorch engine")
    if not isinstance(engine.model, EncoderDecoder):
        raise UserError("several models together have no one attention to show: give a single --model")
    return engine, engine.model


def words_of(ids: Sequence[int], tokenizer: Tokenizer, marks: Set[int]) -> list[Word]:
    """Return the words that the subwords form; each position in marks is a start or end mark and its own word."""
    tokens = [printable(token) for token in tokenizer.tokens(ids)]  # which may be a stranger's
    inner = [position for position in range(len(ids)) if position not in marks]
    groups: dict[int, list[int]] = {}
    for position, word in zip(inner, word_of_subwords([tokens[position] for position in inner]), strict=True):
        groups.setdefault(word, []).append(position)
    texts = tokenizer.decode([[ids[position] for position in group] for group in groups.values()])
    words = [
        Word(text or "".join(tokens[position] for position in group), group)  # UNK decodes to an empty text
        for text, group in zip(texts, groups.values(), strict=True)
    ]
    words += [Word(tokens[position], [position]) for position in marks]
    return sorted(words, key=lambda word: word.subwords[0])


def encode_sentence(tokenizer: Tokenizer, text: str, name: str) -> list[int]:
    """Return the ids of a text, without EOS; `name` names the text in errors."""
    (ids,) = tokenizer.encode([text])
    if not ids:
        raise UserError(f"the {name} is empty: give one with words")
    _require_short(len(ids), name)
    return ids


def _require_short(length: int, name: str, advice: str = "shorten it") -> None:
    if length >= MAX_SUBWORDS:
        limit = MAX_SUBWORDS - 1
        raise UserError(f"the {name} has {length} subwords, and attention is shown for at most {limit}: {advice}")


def require_transformer(translator: Translator) -> tuple[Engine, Transformer]:
    """Return the engine and its only model, which has heads."""
    engine, model = require_engine(translator)
    if not isinstance(model, Transformer):
        raise UserError(f"only a Transformer has heads: this is model.architecture={model.config.architecture}")
    return engine, model


def find_heads(
    model: Transformer, part: str, layer: int | None, head: int | None, *, name: str, first: int = 0
) -> list[tuple[MultiHeadAttention, list[int]]]:
    """Return the attention modules of a part's layers, each with the numbers (from 0) of its selected heads.

    Args:
        model: the model.
        part: "encoder", "decoder" or "cross".
        layer: number of the only layer; None: all layers.
        head: number of the only head in each layer; None: all heads.
        name: what the user named, for errors.
        first: number of the first layer and of the first head.
    """
    if part not in PARTS:
        raise UserError(f"part={part!r} is not known: choose from {', '.join(PARTS)}")
    layers = model.encoder_layers if part == "encoder" else model.decoder_layers
    attentions = [getattr(block, "cross_attention" if part == "cross" else "self_attention") for block in layers]
    if layer is not None:
        if not first <= layer < first + len(attentions):
            raise UserError(f"{name}: this model has layers {first} to {first + len(attentions) - 1} there")
        attentions = [attentions[layer - first]]
    num_heads = model.config.num_heads
    if head is not None and not first <= head < first + num_heads:
        raise UserError(f"{name}: this model has heads {first} to {first + num_heads - 1}")
    return [(attention, list(range(num_heads)) if head is None else [head - first]) for attention in attentions]
