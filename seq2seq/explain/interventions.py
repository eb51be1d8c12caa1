"""Interventions: switch off a head, a layer's attention, the mask, the positions or a word's keys of a trained model.

Heads and layers are counted from 1, as in pictures and pages:

- "encoder.2.head.3" is the third head of the encoder's second self-attention.
- "cross.1" is all heads of the decoder's first cross-attention.
- "decoder" is all self-attention of the decoder.
- "mask" is the causal mask, and "positions" is the positions, which give attention the order of the subwords.
- "source.3" is the keys of the source's third word.
"""

import copy
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq.engine import Engine
from seq2seq.errors import UserError
from seq2seq.explain.explanation import PARTS
from seq2seq.explain.subject import require_engine, words_of
from seq2seq.model.attention import MultiHeadAttention
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.transformer import Transformer
from seq2seq.text.tokenizer import EOS
from seq2seq.translator import Translator

_HEADS = re.compile(r"(encoder|decoder|cross)(?:\.([0-9]{1,4})(?:\.head\.([0-9]{1,4}))?)?")
_WORD = re.compile(r"source\.([0-9]{1,4})")
_SETTINGS = {"mask": "decoder_mask", "positions": "positions"}  # settings of the model that can be "none"
SourceMask = Callable[[Tensor], Tensor]  # the type of `Transformer.source_mask`
TEMPERATURES = (0.001, 1000.0)  # lowest and highest; below, float32 overflows; above, all weights are equal
_NAMES = "encoder.2.head.3, decoder.1, cross, mask, positions or source.3"
_HEAD_NAMES = "encoder.2.head.3, decoder.1 or cross"


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


@contextmanager
def intervene(
    model: EncoderDecoder,
    *without: str,
    average: Sequence[str] = (),
    temperature: float = 1.0,
    hidden: Sequence[int] = (),
) -> Iterator[None]:
    """Change a model in place until the block ends; then restore every weight and setting exactly.

    No other thread may use the model inside the block. A translator searches with the weights that the model had at its
    first search: inside the block, use a new translator, or `changed`, which returns one.

    Args:
        model: a Transformer.
        without: names of parts, as in `Interventions`, except "source.N".
        average: names of heads.
        temperature: as in `Interventions`.
        hidden: positions of source subwords, from 0; no position attends to them.

    Raises:
        UserError: a name is unknown, the model has no such layer or head, the temperature is out of range, or the model
            is not a Transformer.
    """
    attentions = [one for one in model.modules() if isinstance(one, MultiHeadAttention)]
    before = [(parameter, parameter.detach().clone()) for one in attentions for parameter in one.parameters()]
    config, source_mask = model.config, vars(model).get("source_mask")
    try:
        _change(model, without, average, temperature, hidden)
        yield
    finally:
        with torch.no_grad():
            for parameter, value in before:
                parameter.copy_(value)
        model.config = config
        vars(model).pop("source_mask", None)
        if source_mask is not None:  # the mask of an enclosing block
            vars(model)["source_mask"] = source_mask


def _change(
    model: EncoderDecoder, without: Sequence[str], average: Sequence[str], temperature: float, hidden: Sequence[int]
) -> None:
    """Change a model in place, permanently; an error, such as an unknown name, leaves the model unchanged."""
    if not isinstance(model, Transformer):
        raise UserError(f"interventions are for Transformers: this is model.architecture={model.config.architecture}")
    if not TEMPERATURES[0] <= temperature <= TEMPERATURES[1]:
        raise UserError(f"the temperature {temperature:g} must be from {TEMPERATURES[0]:g} to {TEMPERATURES[1]:g}")
    off = [one for name in without if name not in _SETTINGS for one in _find(model, name, _NAMES)]
    even = [one for name in average for one in _find(model, name, _HEAD_NAMES)]
    if temperature != 1:
        for attention in (one for one in model.modules() if isinstance(one, MultiHeadAttention)):
            _scale_queries(attention, range(attention.num_heads), 1 / temperature)
    with torch.no_grad():
        for attention, heads in even:
            _scale_queries(attention, heads, 0.0)
        for attention, heads in off:
            attention.out_proj.weight[:, _channels(attention, heads)] = 0
    model.config = replace(model.config, **{_SETTINGS[name]: "none" for name in without if name in _SETTINGS})
    if hidden:
        vars(model)["source_mask"] = _hiding(model.source_mask, hidden)


def changed(translator: Translator, interventions: Interventions, source: str = "") -> Translator:
    """Return a translator with a changed copy of the model; "source.N" is the N-th word of the text `source`.

    Raises:
        UserError: for the reasons of `intervene`; the source has no such word; or the translator does not have one
            model and the PyTorch engine.
    """
    engine, model = require_engine(translator)
    hidden, names = [], []
    for name in interventions.without:
        if (found := _WORD.fullmatch(name)) is None:
            names.append(name)
        else:
            hidden += _pieces_of_word(translator, source, int(found.group(1)))
    model, apart = copy.deepcopy(model), copy.copy(translator)
    _change(model, names, interventions.average, interventions.temperature, hidden)
    apart.engine = Engine(
        *(model, engine.device, engine.dtype), compiles="off", shortlist=engine.shortlist, start=engine.start,
        unproducible=engine.unproducible, renormalises=engine.renormalises,
    )  # fmt: skip
    return apart


@dataclass(frozen=True)
class HeadWorth:
    """The value of one head for given translations.

    Attributes:
        part: "encoder", "decoder" or "cross".
        layer: from 0.
        head: from 0.
        loss: increase of the translations' negative log-probability without the head (nats per token).
    """

    part: str
    layer: int
    head: int
    loss: float


def rank_heads(translator: Translator, pairs: Sequence[tuple[str, str]]) -> list[HeadWorth]:
    """Return the value of each head, the most valuable first: score given translations without each head in turn.

    The method is that of Michel et al. 2019.

    Raises:
        UserError: a text is empty, the model is not a Transformer, or the translator does not have one model and the
            PyTorch engine.
    """
    apart = changed(translator, Interventions())
    engine, model = require_engine(apart)
    sides = apart.tokenizer
    sources, targets = sides.source.encode([src for src, _ in pairs]), sides.target.encode([tgt for _, tgt in pairs])
    if not all(sources) or not all(targets):
        raise UserError("a sentence or its translation is empty: give both with words")

    def mean_log_prob() -> float:
        read = [one for batch in engine.score(sources, targets, apart.search.batch_tokens) for _, one in batch]
        return sum(math.fsum(one.log_probs) for one in read) / sum(len(one.log_probs) for one in read)

    whole, found = mean_log_prob(), []
    for part, layer, head in _heads(model):
        with intervene(model, f"{part}.{layer + 1}.head.{head + 1}"):
            found.append(HeadWorth(part, layer, head, whole - mean_log_prob()))
    return sorted(found, key=lambda one: -one.loss)


def _heads(model: EncoderDecoder) -> Iterator[tuple[str, int, int]]:
    for part in PARTS:
        for layer in range(len(model.encoder_layers if part == "encoder" else model.decoder_layers)):
            yield from ((part, layer, head) for head in range(model.config.num_heads))


def _find(model: Transformer, name: str, names: str) -> list[tuple[MultiHeadAttention, list[int]]]:
    """Return the attention modules that a name selects, each with its selected heads (from 0); names: for the error."""
    if (found := _HEADS.fullmatch(name)) is None:
        raise UserError(f"{name!r:.80} names nothing to change: give {names}")
    part, layer, head = found.groups()
    layers = model.encoder_layers if part == "encoder" else model.decoder_layers
    attentions = [getattr(one, "cross_attention" if part == "cross" else "self_attention") for one in layers]
    if layer is not None:
        if not 1 <= int(layer) <= len(attentions):
            raise UserError(f"{name}: this model has layers 1 to {len(attentions)} there")
        attentions = attentions[int(layer) - 1 : int(layer)]
    if head is not None and not 1 <= int(head) <= attentions[0].num_heads:
        raise UserError(f"{name}: this model has heads 1 to {attentions[0].num_heads}")
    return [(one, list(range(one.num_heads)) if head is None else [int(head) - 1]) for one in attentions]


@torch.no_grad()
def _scale_queries(attention: MultiHeadAttention, heads: Sequence[int], factor: float) -> None:
    """Multiply QKᵀ of some heads by a factor, through the weights of the queries, in place."""
    is_shared = attention.k_proj is attention.q_proj  # then one change affects both factors of QKᵀ
    factor = math.sqrt(factor) if is_shared else factor
    channels = _channels(attention, heads)
    attention.q_proj.weight[channels] *= factor
    if attention.q_proj.bias is not None:
        attention.q_proj.bias[channels] *= factor


def _channels(attention: MultiHeadAttention, heads: Sequence[int]) -> list[int]:
    size = attention.q_proj.out_features // attention.num_heads
    return [head * size + channel for head in heads for channel in range(size)]


def _hiding(usual: SourceMask, places: Sequence[int]) -> SourceMask:
    """Return a source mask that also hides these positions of every source."""

    def source_mask(src: Int[Tensor, "b s"]) -> Bool[Tensor, "b 1 1 s"]:
        mask = usual(src)
        mask[..., [place for place in places if place < src.shape[1]]] = False
        return mask

    return source_mask


def _pieces_of_word(translator: Translator, source: str, number: int) -> list[int]:
    sides = translator.tokenizer
    ids = [*sides.source.encode([source])[0], EOS]
    words = words_of(ids, sides.source, {len(ids) - 1})[:-1]
    if not 1 <= number <= len(words):
        raise UserError(f"source.{number}: the sentence has words 1 to {len(words)}")
    return words[number - 1].pieces
