"""All attention over one sentence and its translation, by subwords and by words, with statistics and the alignment."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seq2seq.apps.explain.sentence import PARTS, Subject, Word, make_subject, require_engine
from seq2seq.model.variants.trace import aligning_layer
from seq2seq.settings.search import SearchConfig
from seq2seq.text.words import align_words
from seq2seq.translate.translator import Translator

VERSION = 1  # version of the format of `Explanation.to_plain`
DECIMALS = 4  # of the numbers in `Explanation.to_plain`


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
