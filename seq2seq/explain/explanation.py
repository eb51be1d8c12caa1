"""All attention of one sentence and its translation, over pieces and over words, and the alignment."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seq2seq.explain.statistics import HeadStatistics, head_statistics
from seq2seq.explain.subject import Subject, Word, make_subject, require_engine
from seq2seq.model.state import aligning_layer
from seq2seq.model.trace import Trace
from seq2seq.settings.search import SearchConfig
from seq2seq.text.segments import align_words
from seq2seq.translator import Translator

VERSION = 1  # of `Explanation.to_plain`
PLACES = 4  # decimals in `Explanation.to_plain`
PARTS = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class Explanation:
    """The weights of every head of every attention over one sentence and its translation.

    Attributes:
        subject: the sentence and the translation.
        attention: "encoder", "decoder" and "cross", each a tensor (h, t, s) a layer: row = asking piece; rows sum to 1.
            The decoder's are over what it reads, `<s>` first; row i of cross is when piece i of the target is
            predicted, `</s>` last. A list is empty where the architecture has no such attention.
        by_word: the same over words: summed over the pieces attended to, mean of the pieces that ask. The decoder's
            word 0 is `<s>`, the others are the target's but the last, `</s>`.
        heads: the same parts' statistics, by layer and head, over pieces.
        alignment: (source word, target word) from 0: for every target word the source word of most weight.
        log_probs: log-probabilities of the target's pieces, `</s>` last (nats).
    """

    subject: Subject
    attention: dict[str, list[Tensor]]
    by_word: dict[str, list[Tensor]]
    heads: dict[str, list[list[HeadStatistics]]]
    alignment: list[tuple[int, int]]
    log_probs: list[float]

    @property
    def architecture(self) -> str:
        """Transformer, or recurrent: without any self-attention."""
        return "transformer" if self.attention["encoder"] or self.attention["decoder"] else "recurrent"

    def aligning(self) -> Float[Tensor, "t s"] | None:
        """Cross-attention over words in the layer that aligns, mean of its heads; None: there is none."""
        layers = self.by_word["cross"]
        return layers[aligning_layer(len(layers))].mean(0) if layers else None

    def to_plain(self) -> dict[str, Any]:
        """The same as JSON knows it, numbers rounded to 4 places; docs/attention.md tells every field."""
        subject, tokens = self.subject, self.subject.tokenizer.tokens
        return {
            "version": VERSION,
            "source": subject.source,
            "target": subject.target,
            "translated": subject.translated,
            "architecture": self.architecture,
            "pieces": {
                "source": tokens(subject.src),
                "target_in": tokens(subject.tgt_in),
                "target_out": tokens(subject.tgt_out),
            },
            "words": {
                "source": [dataclasses.asdict(word) for word in subject.source_words()],
                "target": [dataclasses.asdict(word) for word in subject.target_words()],
            },
            "attention": {part: [rounded(layer) for layer in self.attention[part]] for part in PARTS},
            "by_word": {part: [rounded(layer) for layer in self.by_word[part]] for part in PARTS},
            "heads": {part: [[_plain(head) for head in layer] for layer in self.heads[part]] for part in PARTS},
            "alignment": [list(pair) for pair in self.alignment],
            "log_probs": [round(value, PLACES) for value in self.log_probs],
        }


def explain(
    translator: Translator, source: str, target: str | None = None, *, settings: SearchConfig | None = None
) -> Explanation:
    """Run a model on a sentence and its translation, and keep the weights of all its attention.

    Args:
        translator: of one model, searched by PyTorch.
        source: one sentence.
        target: a translation; None: the best that the model finds.
        settings: of the search; None: the translator's.

    Raises:
        UserError: a text is empty or too long, the engine shows no attention, or the memory does not suffice.
    """
    subject = make_subject(translator, source, target, settings)
    trace, log_probs = _read(translator, subject)
    attention = {part: [layer[0].cpu() for layer in getattr(trace, part)] for part in PARTS}
    source_words, target_words, read = subject.source_words(), subject.target_words(), subject.read_words()
    words = {"encoder": (source_words, source_words), "decoder": (read, read), "cross": (target_words, source_words)}
    return Explanation(
        subject,
        attention,
        {part: [over_words(layer, *words[part]) for layer in attention[part]] for part in PARTS},
        {part: [head_statistics(layer) for layer in attention[part]] for part in PARTS},
        _align(subject, attention["cross"]),
        log_probs,
    )


def over_words(
    weights: Float[Tensor, "h t s"], asking: Sequence[Word], asked: Sequence[Word]
) -> Float[Tensor, "h tw sw"]:
    """Weights over words: summed over the pieces attended to, mean of the pieces that ask; rows sum to 1."""
    mean, total = torch.zeros(len(asking), weights.shape[1]), torch.zeros(weights.shape[2], len(asked))
    for number, word in enumerate(asking):
        mean[number, word.pieces] = 1 / len(word.pieces)
    for number, word in enumerate(asked):
        total[word.pieces, number] = 1
    return mean @ weights @ total


def rounded(numbers: Float[Tensor, "*shape"]) -> Any:
    """Numbers as nested lists of short decimals."""
    return torch.round(numbers.double(), decimals=PLACES).tolist()


def _plain(head: HeadStatistics) -> dict[str, float]:
    return {name: round(value, PLACES) for name, value in dataclasses.asdict(head).items()}


def _read(translator: Translator, subject: Subject) -> tuple[Trace, list[float]]:
    """All attention while the model reads the pair, and the log-probabilities that it gives the target."""
    engine, model = require_engine(translator)
    ((_, forced),) = next(engine.force([subject.src[:-1]], [subject.tgt_out[:-1]], translator.search.batch_tokens))
    ids = (torch.tensor([row], device=engine.device) for row in (subject.src, subject.tgt_in))
    with engine.inference():
        return model.traced(*ids), forced.log_probs


def _align(subject: Subject, cross: list[Float[Tensor, "h t s"]]) -> list[tuple[int, int]]:
    attention = cross[aligning_layer(len(cross))].mean(0) if cross else torch.zeros(1)
    if not attention.any():  # there is none, or it is shut off
        return []
    tokens = subject.tokenizer.tokens
    return align_words(tokens(subject.src[:-1]), tokens(subject.tgt_out[:-1]), attention.tolist())
