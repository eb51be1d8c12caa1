"""Why this word and not another one: which source words speak for each of two words at one place of a translation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seq2seq.apps.explain.heads import require_transformer
from seq2seq.apps.explain.interventions import Interventions, changed
from seq2seq.apps.explain.sentence import Subject, encode_sentence
from seq2seq.errors import UserError
from seq2seq.model.variants.trace import record_attention
from seq2seq.translate.translator import Translator


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
    """Compare a word of a translation with another one in its place.

    Args:
        translator: must have one Transformer and the PyTorch engine.
        subject: result of `make_subject`.
        word: index of the target word, from 0.
        other: one word.

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
