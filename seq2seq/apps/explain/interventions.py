"""Interventions: switch off a head, a layer's attention, the mask, the positions or a word's keys of a trained model.

Heads and layers are counted from 1, as in pictures and pages:

- "encoder.2.head.3" is the third head of the encoder's second self-attention.
- "cross.1" is all heads of the decoder's first cross-attention.
- "decoder" is all self-attention of the decoder.
- "mask" is the causal mask, and "positions" is the positions, which give attention the order of the subwords.
- "source.3" is the keys of the source's third word.

`contrast` hides each source word in turn, to tell which source words speak for each of two words of a translation.
"""

import copy
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from seq2seq.apps.explain.explanation import PARTS, Subject, encode_sentence, find_heads, require_transformer, words_of
from seq2seq.errors import UserError
from seq2seq.model.attention import MultiHeadAttention
from seq2seq.model.encoder_decoder import PAD, DecoderState
from seq2seq.model.masks import padding_mask
from seq2seq.model.transformer import Transformer
from seq2seq.model.variants.ablations import mask_without_order
from seq2seq.model.variants.trace import record_attention
from seq2seq.text.tokenizer import EOS
from seq2seq.translate.engine import Engine
from seq2seq.translate.translator import Translator

_HEADS = re.compile(r"(encoder|decoder|cross)(?:\.([0-9]{1,4})(?:\.head\.([0-9]{1,4}))?)?")
_WORD = re.compile(r"source\.([0-9]{1,4})")
_SETTINGS = {"mask": "decoder_mask", "positions": "positions"}  # settings of the model that can be "none"
TEMPERATURES = (0.001, 1000.0)  # lowest and highest; below, float32 overflows; above, all weights are equal
_HEAD_NAMES = "encoder.2.head.3, decoder.1 or cross"
_NAMES = "encoder.2.head.3, decoder.1, cross, mask, positions or source.3"


@dataclass(frozen=True)
class Interventions:
    """Changes to a model.

    Attributes:
        without: names of the parts to switch off, as above. A head that is off adds nothing. No other position, in the
            encoder or in the decoder, attends to a word that is off.
        average: names of heads with equal weights: they return the mean of the values that they may attend to.
        temperature: of the softmax of all attention: QKᵀ / (√c · temperature). 1 changes nothing; above 1, weights
            become more even.
    """

    without: Sequence[str] = ()
    average: Sequence[str] = ()
    temperature: float = 1.0

    def __bool__(self) -> bool:
        return bool(self.without or self.average) or self.temperature != 1


def changed(translator: Translator, interventions: Interventions, source: str = "") -> Translator:
    """Return a translator with a changed copy of the model; "source.N" is the N-th word of the text `source`.

    The given translator stays as it is. Both models share the weights that are equal.

    Raises:
        UserError: a name is unknown, the model has no such layer or head, the source has no such word, the temperature
            is out of range, or the translator does not have one Transformer and the PyTorch engine.
    """
    engine, model = require_transformer(translator)
    if not TEMPERATURES[0] <= interventions.temperature <= TEMPERATURES[1]:
        limits = f"{TEMPERATURES[0]:g} to {TEMPERATURES[1]:g}"
        raise UserError(f"the temperature {interventions.temperature:g} must be from {limits}")
    model = copy.deepcopy(model, {id(weight): weight for weight in chain(model.parameters(), model.buffers())})
    if interventions.temperature != 1:
        for attention, heads in chain(*(find_heads(model, part, None, None, name=part) for part in PARTS)):
            _scale_queries(attention, heads, 1 / interventions.temperature)
    for name in interventions.average:
        for attention, heads in _named_heads(model, name, _HEAD_NAMES):
            _scale_queries(attention, heads, 0.0)
    hidden: list[int] = []
    for name in interventions.without:
        if name in _SETTINGS:
            model.config = replace(model.config, **{_SETTINGS[name]: "none"})
            model.target_mask = mask_without_order if name == "mask" else model.target_mask
        elif word := _WORD.fullmatch(name):
            hidden += _subwords_of_word(translator, source, int(word[1]))
        else:
            for attention, heads in _named_heads(model, name, _NAMES):
                projection = attention.out_proj
                projection.weight = _scaled(projection.weight, (slice(None), _channels(attention, heads)), 0.0)
    model = _WithHiddenWords(model, hidden) if hidden else model
    other = copy.copy(translator)
    other.engine = Engine(
        *(model, engine.device, engine.dtype), compiles="off", shortlist=engine.shortlist, start=engine.start,
        unproducible=engine.unproducible, renormalises=engine.renormalises,
    )  # fmt: skip
    return other


@dataclass(frozen=True)
class HeadWorth:
    """The value of one head for given translations."""

    part: str  # "encoder", "decoder" or "cross"
    layer: int  # from 0
    head: int  # from 0
    loss: float  # increase of the translations' negative log-probability without the head (nats per token)

    @property
    def name(self) -> str:
        """Return the head's name in interventions, such as "encoder.2.head.3"."""
        return _head_name(self.part, self.layer, self.head)


def rank_heads(translator: Translator, pairs: Sequence[tuple[str, str]]) -> list[HeadWorth]:
    """Return the value of each head, the most valuable first: score given translations without each head in turn.

    The method is that of Michel et al. 2019.

    Raises:
        UserError: a text is empty, or the translator does not have one Transformer and the PyTorch engine.
    """
    _, model = require_transformer(translator)
    sources, targets = translator.tokenizer.encode_given([src for src, _ in pairs], [tgt for _, tgt in pairs])
    if not all(sources) or not all(targets):
        raise UserError("a sentence or its translation is empty: give both with words")

    def mean_log_prob(translator: Translator) -> float:
        engine, _ = require_transformer(translator)
        batches = engine.score(sources, targets, translator.search.batch_tokens)
        log_probs = [log_prob for batch in batches for _, scores in batch for log_prob in scores.log_probs]
        return math.fsum(log_probs) / len(log_probs)

    unchanged, ranking = mean_log_prob(translator), []
    for part in PARTS:
        for layer, (_, heads) in enumerate(find_heads(model, part, None, None, name=part)):
            for head in heads:
                without_head = changed(translator, Interventions([_head_name(part, layer, head)]))
                ranking.append(HeadWorth(part, layer, head, unchanged - mean_log_prob(without_head)))
    return sorted(ranking, key=lambda worth: -worth.loss)


def _head_name(part: str, layer: int, head: int) -> str:
    return f"{part}.{layer + 1}.head.{head + 1}"


def _named_heads(model: Transformer, name: str, known: str) -> list[tuple[MultiHeadAttention, list[int]]]:
    """Return the attention modules that a name selects, each with its selected heads (from 0); known: for the error."""
    if (match := _HEADS.fullmatch(name)) is None:
        raise UserError(f"{name!r:.80} names nothing to change: give {known}")
    layer, head = (None if number is None else int(number) for number in match.groups()[1:])
    return find_heads(model, match[1], layer, head, name=name, first=1)


def _scale_queries(attention: MultiHeadAttention, heads: Sequence[int], factor: float) -> None:
    """Multiply QKᵀ of some heads by a factor, through the weights of the queries."""
    is_shared = attention.k_proj is attention.q_proj  # then one change affects both factors of QKᵀ
    factor = math.sqrt(factor) if is_shared else factor
    channels, projection = _channels(attention, heads), attention.q_proj
    projection.weight = _scaled(projection.weight, channels, factor)
    if projection.bias is not None:
        projection.bias = _scaled(projection.bias, channels, factor)


def _scaled(weight: Tensor, index: Any, factor: float) -> nn.Parameter:
    """Return a new parameter: a copy of a weight, multiplied by a factor at an index."""
    weight = weight.detach().clone()
    weight[index] *= factor
    return nn.Parameter(weight)


def _channels(attention: MultiHeadAttention, heads: Sequence[int]) -> list[int]:
    size = attention.q_proj.out_features // attention.num_heads
    return [head * size + channel for head in heads for channel in range(size)]


class _WithHiddenWords(Transformer):
    """A Transformer in which no position attends to the hidden positions of a source."""

    def __init__(self, model: Transformer, hidden: Sequence[int]) -> None:
        """Take over the parts of a model, which may have hidden positions already."""
        nn.Module.__init__(self)
        vars(self).update(vars(model))
        self.hidden = [*(model.hidden if isinstance(model, _WithHiddenWords) else ()), *hidden]

    def encode(self, src: Int[Tensor, "b s"], source_mask: Bool[Tensor, "b 1 1 s"] | None = None) -> DecoderState:
        """Encode the source without its hidden positions."""
        mask = padding_mask(src, PAD) if source_mask is None else source_mask.clone()
        mask[..., [position for position in self.hidden if position < src.shape[1]]] = False
        return super().encode(src, mask)


def _subwords_of_word(translator: Translator, source: str, number: int) -> list[int]:
    """Return the positions of the subwords of a source's word, which is counted from 1."""
    tokenizer = translator.tokenizer.source
    ids = [*tokenizer.encode([translator.tokenizer.mask(source).text])[0], EOS]
    words = words_of(ids, tokenizer, {len(ids) - 1})[:-1]
    if not 1 <= number <= len(words):
        raise UserError(f"source.{number}: the sentence has words 1 to {len(words)}")
    return words[number - 1].subwords


@dataclass(frozen=True)
class Evidence:
    """How much one source word matters for both words.

    Attributes:
        looks: the share of the source word in what cross-attention takes from the source while each of the two is
            written: the norms of weighted, projected values (Kobayashi et al. 2020), the mean over layers and subwords.
        drops: by how much each one's log-probability falls if the source word is hidden (nats).
    """

    looks: tuple[float, float]
    drops: tuple[float, float]


@dataclass(frozen=True)
class Contrast:
    """A word of a translation beside another one after the same words.

    Attributes:
        word: index of the target word.
        texts: both words.
        log_probs: their log-probabilities after the words before (nats), summed over their subwords.
        evidence: of each source word.
    """

    word: int
    texts: tuple[str, str]
    log_probs: tuple[float, float]
    evidence: list[Evidence]


def contrast(translator: Translator, subject: Subject, word: int, other: str) -> Contrast:
    """Compare the target word of index `word`, from 0, with one other word in its place.

    Raises:
        UserError: the translation has no such word, `other` is not one word, or the model is not a Transformer.
    """
    require_transformer(translator)
    source, target = subject.words()["cross"][1][:-1], subject.words()["cross"][0][:-1]
    if not 0 <= word < len(target):
        raise UserError(f"word={word}: the translation has words 0 to {len(target) - 1}")
    ids = encode_sentence(translator.tokenizer.target, other, "other word")
    texts = (target[word].text, translator.tokenizer.target.decode([ids])[0])
    if len(texts[1].split()) != 1:
        raise UserError(f"{other!r:.60} is not one word: give a single one")
    before, own = subject.tgt_out[: target[word].subwords[0]], target[word].subwords
    both = [subject.tgt_out[own[0] : own[-1] + 1], ids]

    def log_probs(translator: Translator) -> list[float]:
        engine, _ = require_transformer(translator)
        batches = engine.score(
            [subject.src[:-1]] * 2, [[*before, *subwords] for subwords in both], translator.search.batch_tokens
        )
        scores = dict(pair for batch in batches for pair in batch)
        return [math.fsum(scores[i].log_probs[len(before) : len(before) + len(both[i])]) for i in range(2)]

    usual = log_probs(translator)
    looks = [_looks(translator, subject, [*before, *subwords], len(subwords)) for subwords in both]
    evidence = []
    for number, source_word in enumerate(source, start=1):
        hidden = log_probs(changed(translator, Interventions([f"source.{number}"]), subject.source))
        shares = (sum(looks[0][i] for i in source_word.subwords), sum(looks[1][i] for i in source_word.subwords))
        evidence.append(Evidence(shares, (usual[0] - hidden[0], usual[1] - hidden[1])))
    return Contrast(word, texts, (usual[0], usual[1]), evidence)


def _looks(translator: Translator, subject: Subject, target: Sequence[int], count: int) -> list[float]:
    """Return the share of every source subword in what is taken from the source for the last `count` subwords."""
    engine, model = require_transformer(translator)
    modules: list[Any] = [layer.cross_attention for layer in model.decoder_layers]
    src, tgt_in = (torch.tensor([row], device=engine.device) for row in (subject.src, [engine.start, *target[:-1]]))
    with engine.inference(), record_attention(modules) as calls:
        model(src, tgt_in)
    shares = torch.zeros(len(subject.src), dtype=torch.float64)
    for module in modules:
        weights, values = calls[module].weights()[0], calls[module].memory.values[0].float()  # (h, t, s), (h, s, c)
        by_head: Tensor = module.out_proj.weight.float().unflatten(1, (len(values), -1))  # (d, h, c)
        projected = torch.einsum("hsc,dhc->hsd", values, by_head)
        taken = torch.einsum("hts,hsd->tsd", weights[:, -count:], projected).norm(dim=-1).double().cpu()  # (t, s)
        shares += (taken / taken.sum(1, keepdim=True).clamp_min(1e-30)).mean(0) / len(modules)
    return shares.tolist()
