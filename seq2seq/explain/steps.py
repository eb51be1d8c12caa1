"""Show one attention head and one beam search step by step, with the model's own numbers."""

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq.explain.explanation import plain
from seq2seq.explain.heads import find_heads, require_transformer
from seq2seq.explain.subject import Subject, encode_sentence, make_subject, require_engine
from seq2seq.interface import Candidate, Source
from seq2seq.model.attention import attend
from seq2seq.model.trace import record_attention
from seq2seq.settings.search import SearchConfig
from seq2seq.text.normalise import normalise
from seq2seq.text.tokenizer import EOS
from seq2seq.translator import Translator

PLACES = 6  # decimals in all results
SHOWN = 8  # number of channels shown, for vectors with d_model channels
_WIDE = ("embedding", "position", "input", "joined", "output")


@dataclass(frozen=True)
class Walk:
    """Every intermediate result of one head over one sentence: softmax(QKᵀ / √c) V, its inputs and its output.

    Attributes:
        part: "encoder", "decoder" or "cross".
        layer: from 0.
        head: from 0.
        rows: subwords of the queries.
        columns: subwords of the keys.
        embedding: embeddings of the rows' subwords, scaled by √d if the model scales embeddings.
        position: vectors that are added to the embeddings; None: the model adds none (positions are rotary or none).
        input: input of the attention, for the rows; in the first self-attention of a post-norm encoder or decoder, the
            sum of embedding and position.
        queries: queries of this head, rotated if positions are rotary.
        keys: keys of this head, rotated if positions are rotary.
        values: values of this head.
        scores: QKᵀ.
        mask: True = may attend.
        scaled: scores / √c; -inf where the mask is False.
        weights: softmax of each row of scaled.
        mixture: weights times values.
        joined: the mixtures of all heads, concatenated.
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
        """Return JSON values: numbers rounded to 6 decimals, null for -inf, and only the first 8 of d channels."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {name: None if values[name] is None else values[name][:, :SHOWN] for name in _WIDE}
        scaled = [[None if x == -math.inf else x for x in row] for row in plain(self.scaled, PLACES)]
        sizes = {"d_model": self.joined.shape[1], "channels": self.queries.shape[1]}
        return {**plain(values, PLACES), **sizes, "mask": self.mask.tolist(), "scaled": scaled}


def walk(
    translator: Translator, source: str, target: str | None = None, *, part: str, layer: int, head: int
) -> dict[str, Any]:
    """Return the numbers of one head as JSON values, in the format of `Walk.to_plain`.

    Args:
        translator: must have one Transformer and the PyTorch engine.
        source: one sentence.
        target: a translation; None: the best one that the model finds.
        part: "encoder", "decoder" or "cross".
        layer: from 0.
        head: from 0.

    Raises:
        UserError: a text is empty or too long, the model is not a Transformer, or it has no such part, layer or head.
    """
    return take_walk(translator, make_subject(translator, source, target), part, layer, head).to_plain()


def take_walk(translator: Translator, subject: Subject, part: str, layer: int, head: int) -> Walk:
    """Run the model on a sentence and its translation and return what one head computes.

    Raises:
        UserError: the model is not a Transformer, or it has no such part, layer or head.
    """
    engine, model = require_transformer(translator)
    ((attention, _),) = find_heads(model, part, layer, head, name=f"{part}, layer={layer}, head={head}")
    src, tgt_in = (torch.tensor([ids], device=engine.device) for ids in (subject.src, subject.tgt_in))
    rows, columns = (src, src) if part == "encoder" else (tgt_in, src if part == "cross" else tgt_in)
    with engine.inference(), record_attention([attention]) as calls:
        embedding, position = model.embedded(rows, "source" if part == "encoder" else "target")
        model(src, tgt_in)
        call = calls[attention]
        context = attend(call.queries(), call.memory, call.mask)  # (1, h, t, c)
        joined = context.transpose(1, 2).flatten(2)  # (1, t, d)
        output = attention.out_proj(joined)
        shown = (call.queries()[0, head], call.memory.keys[0, head], call.memory.values[0, head])
    queries, keys, values = (one.float().cpu() for one in shown)
    scores = queries @ keys.T
    mask = torch.ones_like(scores, dtype=torch.bool)
    if call.mask is not None:
        mask &= call.mask[0, 0].cpu()
    source, target = subject.tokenizer.source.tokens, subject.tokenizer.target.tokens
    return Walk(
        part=part,
        layer=layer,
        head=head,
        rows=(source if part == "encoder" else target)(rows[0].tolist()),
        columns=(target if part == "decoder" else source)(columns[0].tolist()),
        embedding=embedding[0].float().cpu(),
        position=None if position is None else position.float().cpu(),
        input=call.x[0].float().cpu(),
        queries=queries,
        keys=keys,
        values=values,
        scores=scores,
        mask=mask,
        scaled=(scores / math.sqrt(queries.shape[1])).masked_fill(~mask, -torch.inf),
        weights=call.weights()[0, head].cpu(),
        mixture=context[0, head].float().cpu(),
        joined=joined[0].float().cpu(),
        output=output[0].float().cpu(),
    )


def watch_beams(translator: Translator, source: str, settings: SearchConfig | None = None) -> dict[str, Any]:
    """Translate a sentence by the ordinary beam search, and return every step.

    Args:
        translator: must have one model and the PyTorch engine.
        source: one sentence.
        settings: settings of a plain beam search; None: the translator's settings.

    Returns:
        A dictionary with source, beam and length_penalty; steps, each with its candidates, best first; and result, the
        id, text and normalised_score (score / length^α) of all finished hypotheses, best first. The first one is the
        translation.

        A candidate is a hypothesis after a step, one subword longer than its parent. Its fields are id (from 1); parent
        (the id of the hypothesis that the candidate continues; None: the empty hypothesis); piece (its last subword);
        text (of all its subwords); log_prob (of the last subword, nats); score (sum of log-probabilities, nats); and
        fate: "kept", "finished", or "dropped" if its rank is too low or it can no longer win.

    Raises:
        UserError: the sentence is empty or too long, the engine does not expose its steps, or the settings ask for
            another kind of search.
    """
    engine, _ = require_engine(translator)
    settings = translator.search if settings is None else settings
    tokenizer = translator.tokenizer.target
    steps: list[list[dict[str, Any]]] = []
    hypotheses: dict[int | None, tuple[list[int], float]] = {None: ([], 0.0)}  # ids and score, by candidate's id
    beam: list[int | None] = [None]  # id of the candidate at each rank of the beam

    def record(step: list[Candidate]) -> None:
        first, shown = len(hypotheses), list[dict[str, Any]]()
        for number, candidate in enumerate(step):
            token, parent = candidate.token, beam[candidate.parent]
            ids, before = hypotheses[parent]
            ids = [*ids, token]
            hypotheses[first + number] = ids, candidate.score
            is_finished = token == EOS and number < settings.beam
            shown.append(
                {
                    "id": first + number,
                    "parent": parent,
                    "piece": tokenizer.tokens([token])[0],
                    "text": tokenizer.decode([ids])[0],
                    "log_prob": candidate.score - before,
                    "score": candidate.score,
                    "fate": "finished" if is_finished else "kept" if candidate.is_live else "dropped",
                }
            )
        steps.append(shown)
        beam[:] = [first + number for number, candidate in enumerate(step) if candidate.is_live]

    ids = encode_sentence(translator.tokenizer.source, source, "sentence")
    banned = [[symbol] for symbol in tokenizer.user_symbols.values()]
    engine.search_steps(Source(ids, key=1 << 16), settings, record, banned)
    finished = [
        {
            "id": one["id"],
            "text": one["text"],
            "normalised_score": one["score"] / len(hypotheses[one["id"]][0]) ** settings.length_penalty,
        }
        for candidates in steps
        for one in candidates
        if one["fate"] == "finished"
    ]
    return {
        "source": normalise(source),
        "beam": settings.beam,
        "length_penalty": settings.length_penalty,
        "steps": [{"candidates": plain(candidates, PLACES)} for candidates in steps],
        "result": plain(sorted(finished, key=lambda one: one["normalised_score"], reverse=True), PLACES),
    }
