"""Show one attention head and one beam search step by step, with the model's own numbers."""

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq.apps.explain import explanation
from seq2seq.model import attention as textbook
from seq2seq.model.variants.trace import record_attention
from seq2seq.search.types import Candidate, Source
from seq2seq.settings.search import SearchConfig, require_steps
from seq2seq.text.normalise import normalise
from seq2seq.text.tokenizer import EOS
from seq2seq.translate.translator import Translator

_DECIMALS = 6  # in all JSON values
_MAX_CHANNELS = 8  # in the JSON values of vectors with d_model channels
_WIDE = ("embedding", "position", "input", "joined", "output")  # these vectors


@dataclass(frozen=True)
class HeadSteps:
    """Every intermediate result of one head over one sentence: softmax(QKᵀ / √c) V, its inputs and its output."""

    part: str  # "encoder", "decoder" or "cross"
    layer: int  # from 0
    head: int  # from 0
    rows: list[str]  # subwords of the queries
    columns: list[str]  # subwords of the keys
    embedding: Float[Tensor, "t d"]  # embeddings of the rows' subwords, times √d if the model scales embeddings
    position: Float[Tensor, "t d"] | None  # what is added to them; None: positions are rotary, or there are none
    input: Float[Tensor, "t d"]  # of the attention; in a post-norm model's first layers, embedding + position
    queries: Float[Tensor, "t c"]  # rotated if positions are rotary
    keys: Float[Tensor, "s c"]  # rotated if positions are rotary
    values: Float[Tensor, "s c"]
    scores: Float[Tensor, "t s"]  # QKᵀ
    mask: Bool[Tensor, "t s"]  # True = may attend
    scaled: Float[Tensor, "t s"]  # scores / √c; -inf where the mask is False
    weights: Float[Tensor, "t s"]  # softmax of each row of scaled
    mixture: Float[Tensor, "t c"]  # weights times values
    joined: Float[Tensor, "t d"]  # the mixtures of all heads, concatenated
    output: Float[Tensor, "t d"]  # the projection of joined, which is added to the residual stream

    def to_plain(self) -> dict[str, Any]:
        """Return JSON values: numbers rounded to 6 decimals, null for -inf, and only the first 8 of d channels."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {name: None if values[name] is None else values[name][:, :_MAX_CHANNELS] for name in _WIDE}
        scaled = [[None if x == -math.inf else x for x in row] for row in explanation.plain(self.scaled, _DECIMALS)]
        sizes = {"d_model": self.joined.shape[1], "channels": self.queries.shape[1]}
        return {**explanation.plain(values, _DECIMALS), **sizes, "mask": self.mask.tolist(), "scaled": scaled}


def head_steps(translator: Translator, subject: explanation.Subject, part: str, layer: int, head: int) -> HeadSteps:
    """Run the model on a sentence and its translation and return what one head computes; layer and head are from 0.

    Raises:
        UserError: the model is not a Transformer, or it has no such part, layer or head.
    """
    engine, model = explanation.require_transformer(translator)
    ((attention, _),) = explanation.find_heads(model, part, layer, head, name=f"{part}, layer={layer}, head={head}")
    src, tgt_in = (torch.tensor([ids], device=engine.device) for ids in (subject.src, subject.tgt_in))
    rows, columns = (src, src) if part == "encoder" else (tgt_in, src if part == "cross" else tgt_in)
    with engine.inference(), record_attention([attention]) as calls:
        embedding, position = model.embedded(rows, "source" if part == "encoder" else "target")
        model(src, tgt_in)
        call = calls[attention]
        queries, (keys, values) = call.queries(), call.memory
        context = textbook.attend(queries, call.memory, call.mask)  # (1, h, t, c)
        joined = context.transpose(1, 2).flatten(2)  # (1, t, d)
        output = attention.out_proj(joined)
    queries, keys, values, mixture = (vectors[0, head].float().cpu() for vectors in (queries, keys, values, context))
    scores = queries @ keys.T
    mask = torch.ones_like(scores, dtype=torch.bool)
    if call.mask is not None:
        mask &= call.mask[0, 0].cpu()
    source, target = subject.tokenizer.source.tokens, subject.tokenizer.target.tokens
    return HeadSteps(
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
        mixture=mixture,
        joined=joined[0].float().cpu(),
        output=output[0].float().cpu(),
    )


def beam_steps(translator: Translator, source: str, settings: SearchConfig | None = None) -> dict[str, Any]:
    """Translate a sentence by a plain beam search, and return every step.

    settings are those of the search; None: the translator's.

    Returns:
        A dictionary with source, beam and length_penalty; steps, each with its candidates, best first; and result, the
        id, text and normalised_score (score / length^α) of all finished hypotheses, best first. The first one is the
        translation.

        A candidate is a hypothesis after a step, one subword longer than its parent. Its fields are id (from 1); parent
        (the id of the hypothesis that the candidate continues; None: the empty hypothesis); piece (its last subword);
        text (of all its subwords); log_prob (of the last subword, nats); score (sum of log-probabilities, nats); and
        fate: "kept", "finished", or "dropped" if its rank is too low or it can no longer win.
    """
    engine, _ = explanation.require_engine(translator)
    settings = translator.search if settings is None else settings
    tokenizer = translator.tokenizer.target
    steps: list[dict[str, Any]] = []
    finished: list[dict[str, Any]] = []
    hypotheses: dict[tuple[int, ...], tuple[int | None, float]] = {(): (None, 0.0)}  # candidate's id and score, by ids

    def record(candidates: list[Candidate]) -> None:
        described = []
        for rank, candidate in enumerate(candidates):
            ids, identifier = candidate.ids, len(hypotheses)
            parent, score = hypotheses[tuple(ids[:-1])]
            hypotheses[tuple(ids)] = identifier, candidate.score
            is_finished = ids[-1] == EOS and rank < settings.beam
            (text,), (subword,) = tokenizer.decode([ids]), tokenizer.tokens(ids[-1:])
            described.append(
                {
                    "id": identifier,
                    "parent": parent,
                    "piece": subword,
                    "text": text,
                    "log_prob": candidate.score - score,
                    "score": candidate.score,
                    "fate": "finished" if is_finished else "kept" if candidate.is_live else "dropped",
                }
            )
            if is_finished:
                normalised = candidate.score / len(ids) ** settings.length_penalty
                finished.append({"id": identifier, "text": text, "normalised_score": normalised})
        steps.append({"candidates": described})

    ids = explanation.encode_sentence(translator.tokenizer.source, translator.tokenizer.mask(source).text, "sentence")
    banned = [[symbol] for symbol in tokenizer.user_symbols.values()]
    require_steps(settings)
    list(engine.search([Source(ids, key=1 << 16)], settings, 1, banned, on_candidates=record))
    return {
        "source": normalise(source),
        "beam": settings.beam,
        "length_penalty": settings.length_penalty,
        "steps": explanation.plain(steps, _DECIMALS),
        "result": explanation.plain(sorted(finished, key=lambda result: -result["normalised_score"]), _DECIMALS),
    }
