"""One attention step by step, with the model's own numbers: from embeddings to what is added to the stream."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seq2seq.errors import UserError
from seq2seq.explain.explanation import PARTS, Explanation
from seq2seq.explain.search import watch_beams
from seq2seq.explain.subject import Subject, make_subject, require_engine
from seq2seq.model.attention import MultiHeadAttention
from seq2seq.model.state import aligning_layer
from seq2seq.model.trace import Mixed, watch
from seq2seq.model.transformer import Transformer
from seq2seq.translator import Translator

__all__ = ["Walk", "chosen_walks", "take_walk", "walk", "watch_beams"]

PLACES = 6  # decimals in `Walk.to_plain`
SHOWN = 8  # of the d channels of the model's vectors


@dataclass(frozen=True)
class Walk:
    """Every intermediate result of one head over one sentence: softmax(QKᵀ / √c) V, its inputs and its output.

    Attributes:
        part: "encoder", "decoder" or "cross".
        layer: from 0.
        head: from 0.
        rows: pieces that ask.
        columns: pieces that are asked.
        embedding: of the rows' pieces, scaled by √d.
        position: added to the embedding; None: positions are rotary and turn queries and keys instead.
        input: of the attention, for the rows; in the first self-attention of a post-norm encoder or decoder the sum of
            embedding and position.
        queries: of this head, turned if positions are rotary.
        keys: likewise.
        values: of this head.
        scores: QKᵀ.
        mask: True = may attend.
        scaled: scores / √c, -inf where the mask forbids.
        weights: softmax of each row.
        mixture: weights times values.
        joined: all heads' mixtures side by side.
        output: the projection of joined, which is added to the residual stream.
    """

    part: str
    layer: int
    head: int
    rows: list[str]
    columns: list[str]
    embedding: Float[Tensor, "t d"]
    position: Float[Tensor, "t d"] | None
    input: Float[Tensor, "t d"]
    queries: Float[Tensor, "t c"]
    keys: Float[Tensor, "s c"]
    values: Float[Tensor, "s c"]
    scores: Float[Tensor, "t s"]
    mask: Bool[Tensor, "t s"]
    scaled: Float[Tensor, "t s"]
    weights: Float[Tensor, "t s"]
    mixture: Float[Tensor, "t c"]
    joined: Float[Tensor, "t d"]
    output: Float[Tensor, "t d"]

    def to_plain(self) -> dict[str, Any]:
        """The same as JSON knows it: numbers to 6 places, null for -inf, and the first 8 of d channels."""
        wide = ("embedding", "position", "input", "joined", "output")
        narrow = ("queries", "keys", "values", "scores", "scaled", "weights", "mixture")
        plain: dict[str, Any] = {name: getattr(self, name) for name in ("part", "layer", "head", "rows", "columns")}
        plain |= {"d_model": self.joined.shape[1], "channels": self.queries.shape[1], "mask": self.mask.tolist()}
        plain |= {name: _plain(getattr(self, name)) for name in narrow}
        tables = {name: getattr(self, name) for name in wide}
        return plain | {name: None if one is None else _plain(one[:, :SHOWN]) for name, one in tables.items()}


def walk(
    translator: Translator, source: str, target: str | None = None, *, part: str, layer: int, head: int
) -> dict[str, Any]:
    """Give the numbers of one head as plain values, `Walk.to_plain`.

    Args:
        translator: of one Transformer, searched by PyTorch.
        source: one sentence.
        target: a translation; None: the best that the model finds.
        part: "encoder", "decoder" or "cross".
        layer: from 0.
        head: from 0.

    Raises:
        UserError: a text is empty or too long, the model is no Transformer, or has no such part, layer or head.
    """
    return take_walk(translator, make_subject(translator, source, target), part, layer, head).to_plain()


def chosen_walks(translator: Translator, explanation: Explanation) -> list[dict[str, Any]]:
    """Walks for the page: all heads of the first encoder and decoder layers and of the aligning cross-attention.

    The list is empty if the model is no Transformer.
    """
    if not isinstance(require_engine(translator)[1], Transformer):
        return []
    layers = {"encoder": 0, "decoder": 0, "cross": aligning_layer(len(explanation.attention["cross"]))}
    return [
        take_walk(translator, explanation.subject, part, layer, head).to_plain()
        for part, layer in layers.items()
        for head in range(explanation.attention[part][layer].shape[0])
    ]


def take_walk(translator: Translator, subject: Subject, part: str, layer: int, head: int) -> Walk:
    """Run the model on a pair and keep what one head computes.

    Raises:
        UserError: the model is no Transformer, or has no such part, layer or head.
    """
    engine, model = require_engine(translator)
    if not isinstance(model, Transformer):
        raise UserError("only a Transformer's attention is shown step by step: this model is another")
    attention = _find(model, part, layer, head)
    src, tgt_in = (torch.tensor([row], device=engine.device) for row in (subject.src, subject.tgt_in))
    rows, columns = (src, src) if part == "encoder" else (tgt_in, src if part == "cross" else tgt_in)
    with engine.inference(), watch([attention]) as mixed, _around(attention) as seen:
        embedding, position = model.embedded(rows)
        model(src, tgt_in)
    tokens = subject.tokenizer.tokens
    return Walk(
        part=part,
        layer=layer,
        head=head,
        rows=tokens(rows[0].tolist()),
        columns=tokens(columns[0].tolist()),
        embedding=embedding[0].float().cpu(),
        position=None if position is None else position.float().cpu(),
        **_of_head(mixed[attention], head),
        **{name: one[0] for name, one in seen.items()},
    )


def _of_head(one: Mixed, head: int) -> dict[str, Tensor]:
    """Queries to mixture of one head, as `Walk` names them."""
    queries, keys, values = (x[0].float().cpu() for x in (one.queries[:, :, head], *(x[:, head] for x in one.memory)))
    scores = queries @ keys.T
    allowed = torch.ones(scores.shape, dtype=torch.bool) if one.allowed is None else one.allowed[0, 0].cpu()
    return {
        "queries": queries,
        "keys": keys,
        "values": values,
        "scores": scores,
        "mask": allowed.expand_as(scores),
        "scaled": (scores / math.sqrt(queries.shape[1])).masked_fill(~allowed, -torch.inf),
        "weights": one.weights()[0, head].cpu(),
        "mixture": one.context[0, head].float().cpu(),
    }


def _find(model: Transformer, part: str, layer: int, head: int) -> MultiHeadAttention:
    """The attention of that name."""
    if part not in PARTS:
        raise UserError(f"part={part!r} is not known: choose from {', '.join(PARTS)}")
    layers = model.encoder_layers if part == "encoder" else model.decoder_layers
    for name, value, count in (("layer", layer, len(layers)), ("head", head, model.config.num_heads)):
        if not 0 <= value < count:
            raise UserError(f"{name}={value} is not there: this model has {name}s 0 to {count - 1}")
    found = getattr(layers[layer], "cross_attention" if part == "cross" else "self_attention", None)
    if not isinstance(found, MultiHeadAttention):
        raise UserError(f"this model has no {part} attention to walk through")
    return found


@contextmanager
def _around(attention: MultiHeadAttention) -> Iterator[dict[str, Tensor]]:
    """Collect an attention's input, joined heads and output, in this thread."""
    seen: dict[str, Tensor] = {}
    thread = get_ident()

    def before(module: nn.Module, given: Any) -> None:
        if get_ident() == thread:
            seen["input"] = given[0].float().cpu()

    def after(module: nn.Module, given: Any, output: Tensor) -> None:
        if get_ident() == thread:
            seen["joined"], seen["output"] = given[0].float().cpu(), output.float().cpu()

    handles = (attention.q_proj.register_forward_pre_hook(before), attention.out_proj.register_forward_hook(after))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _plain(numbers: Float[Tensor, "r c"]) -> list[list[float | None]]:
    rows = torch.round(numbers.double(), decimals=PLACES).tolist()
    return [[None if value == -math.inf else value for value in row] for row in rows]
