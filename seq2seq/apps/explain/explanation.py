"""A sentence with its translation, and all attention over them, with statistics and the alignment."""

import dataclasses
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seq2seq.errors import UserError, printable
from seq2seq.model.attention import MultiHeadAttention
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.transformer import Transformer
from seq2seq.model.variants.trace import aligning_layer
from seq2seq.settings.search import SearchConfig
from seq2seq.text.normalise import normalise
from seq2seq.text.tokenizer import EOS, Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.text.words import align_words, word_of_subwords
from seq2seq.translate.engine import Engine
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import SearchRequest

MAX_SUBWORDS = 100  # per side, EOS included; a larger map is unreadable and slow to send
PARTS = ("encoder", "decoder", "cross")  # self-attention of the encoder and of the decoder, and cross-attention
VERSION = 1  # version of the format of `Explanation.to_plain`
DECIMALS = 4  # of the numbers in `Explanation.to_plain`


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
    """Return the engine and its only model."""
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

    layer and head count from `first`; None selects all. `name` is what the user named, for errors.
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


@dataclass(frozen=True)
class HeadStatistics:
    """Means over the queries of one head; aᵢⱼ is the weight of key j for query i.

    dᵢ is the key position that corresponds to query i. In self-attention, dᵢ is i. In cross-attention, dᵢ is
    i · (s - 1) / (t - 1), from the first subword to the last (0 if t = 1).

    Attributes:
        entropy: -Σⱼ aᵢⱼ ln aᵢⱼ (nats): 0 if all weight is on one position, ln s if it is spread evenly (Clark et al.
            2019, §3.3).
        distance: Σⱼ aᵢⱼ |j - dᵢ| (positions; Vig & Belinkov 2019 define it for a decoder, where dᵢ is i).
        diagonal: aᵢⱼ of the j nearest to dᵢ; of two equally near j, the later one (share, 0 to 1).
    """

    entropy: float
    distance: float
    diagonal: float


@dataclass(frozen=True)
class Explanation:
    """The weights of every head of every attention over one sentence and its translation.

    Attributes:
        subject: the sentence and the translation.
        attention: for "encoder", "decoder" and "cross", one tensor (h, t, s) per layer; a row is a query and sums to
            1. The decoder's rows and columns are the subwords that it reads, `<s>` first; row i of "cross" predicts
            subword i of the target, `</s>` last. A list is empty if the architecture has no such attention.
        by_word: the same weights over words: summed over a word's keys, averaged over a word's queries. The decoder's
            words are `<s>` and then the target's words without `</s>`.
        heads: statistics by part, layer and head, over subwords.
        alignment: (source word, target word) from 0: for each target word, the source word with the largest weight.
        log_probs: log-probabilities of the target's subwords, `</s>` last (nats).
    """

    subject: Subject
    attention: dict[str, list[Tensor]]
    by_word: dict[str, list[Tensor]]
    heads: dict[str, list[list[HeadStatistics]]]
    alignment: list[tuple[int, int]]
    log_probs: list[float]

    def aligning(self) -> Float[Tensor, "t s"] | None:
        """Return the aligning layer's cross-attention over words, the mean of its heads; None: no cross-attention."""
        layers = self.by_word["cross"]
        return layers[aligning_layer(len(layers))].mean(0) if layers else None

    def to_plain(self) -> dict[str, Any]:
        """Return JSON values, with numbers rounded to 4 decimals; docs/attention.md explains every field."""
        subject, sides = self.subject, self.subject.tokenizer
        target, source = subject.words()["cross"]
        numbers = {name: getattr(self, name) for name in ("attention", "by_word", "heads", "alignment", "log_probs")}
        return {
            "version": VERSION,
            "source": subject.source,
            "target": subject.target,
            "translated": subject.translated,
            "architecture": "transformer" if self.attention["encoder"] else "recurrent",  # which has no self-attention
            "pieces": {
                "source": sides.source.tokens(subject.src),
                "target_in": sides.target.tokens(subject.tgt_in),
                "target_out": sides.target.tokens(subject.tgt_out),
            },
            "words": {
                side: [{"text": word.text, "pieces": word.subwords} for word in words]
                for side, words in (("source", source), ("target", target))
            },
            **plain(numbers, DECIMALS),
        }


def explain(
    translator: Translator, source: str, target: str | None = None, *, settings: SearchConfig | None = None
) -> Explanation:
    """Return the weights of all attention of a model that reads a sentence and its translation.

    Args:
        translator: must have one model and the PyTorch engine.
        source: one sentence.
        target: a translation; None: the best one that the model finds.
        settings: settings of the search for the translation; None: the translator's settings.

    Raises:
        UserError: a text is empty or too long, the engine exposes no attention, or memory is not sufficient.
    """
    return explain_subject(translator, make_subject(translator, source, target, settings))


def explain_subject(translator: Translator, subject: Subject) -> Explanation:
    """Return the weights of all attention of a model that reads a subject, whose ids are of this model's vocabulary."""
    engine, model = require_engine(translator)
    src, tgt = subject.src[:-1], subject.tgt_out[:-1]
    scored = engine.score([src], [tgt], translator.search.batch_tokens, align=model.can_align)
    scores, sides = next(scored)[0][1], translator.tokenizer
    alignment = align_words(sides.source.tokens(src), sides.target.tokens(tgt), scores.attention or [])
    with engine.inference():
        trace = model.traced(*(torch.tensor([ids], device=engine.device) for ids in (subject.src, subject.tgt_in)))
    attention = {part: [layer[0].cpu() for layer in getattr(trace, part)] for part in PARTS}
    words = subject.words()
    return Explanation(
        subject,
        attention,
        {part: [over_words(layer, *words[part]) for layer in attention[part]] for part in PARTS},
        {part: [head_statistics(layer) for layer in attention[part]] for part in PARTS},
        alignment,
        scores.log_probs,
    )


def over_words(
    weights: Float[Tensor, "h t s"], rows: Sequence[Word], columns: Sequence[Word]
) -> Float[Tensor, "h tw sw"]:
    """Return weights over words: summed over each word's keys, averaged over each word's queries; rows sum to 1."""
    mean, total = torch.zeros(len(rows), weights.shape[1]), torch.zeros(weights.shape[2], len(columns))
    for number, word in enumerate(rows):
        mean[number, word.subwords] = 1 / len(word.subwords)
    for number, word in enumerate(columns):
        total[word.subwords, number] = 1
    return mean @ weights @ total


def head_statistics(weights: Float[Tensor, "h t s"]) -> list[HeadStatistics]:
    """Return the statistics of each head of one attention over one sentence."""
    weights = weights.double()
    _, length, width = weights.shape
    diagonal = torch.arange(length, dtype=torch.float64) * (width - 1) / max(1, length - 1)
    entropy = torch.special.entr(weights).sum(-1).mean(-1)
    distance = (weights * (torch.arange(width) - diagonal[:, None]).abs()).sum(-1).mean(-1)
    nearest = (diagonal + 0.5).floor().long()
    share = weights[:, torch.arange(length), nearest].mean(-1)
    rows = zip(entropy.tolist(), distance.tolist(), share.tolist(), strict=True)
    return [HeadStatistics(*row) for row in rows]


def plain(value: Any, decimals: int) -> Any:
    """Return tensors, dataclasses and collections as JSON values, with rounded numbers."""
    if isinstance(value, Tensor):
        return torch.round(value.double(), decimals=decimals).tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        return {key: plain(item, decimals) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, decimals) for item in value]
    return round(value, decimals) if isinstance(value, float) else value
