"""Measure how much of the source a model attends to while it reads given translations."""

import math
from collections.abc import Sequence

from seq2seq.errors import UserError
from seq2seq.evaluation.error_analysis import Focus
from seq2seq.evaluation.faults import IGNORED
from seq2seq.search.types import TokenScores
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import ScoringEngine

MAX_TOKENS = 2048  # per side; longer pairs are not read, since all attention of a pair is in memory at once


def find_focus(translator: Translator, sources: Sequence[str], hypotheses: Sequence[str]) -> list[Focus | None]:
    """Return measures of the aligning layer's attention while a model reads given translations.

    The result is None for a pair with a side that is empty or longer than MAX_TOKENS.
    """
    engine = translator.engine
    if not (isinstance(engine, ScoringEngine) and engine.can_align):
        raise UserError("this model shows no attention to the source: leave out --model, or give another one")
    tokenizer = translator.tokenizer
    src, tgt = tokenizer.encode_given(sources, hypotheses)
    read = [i for i, pair in enumerate(zip(src, tgt, strict=True)) if all(0 < len(ids) <= MAX_TOKENS for ids in pair)]
    measures: list[Focus | None] = [None] * len(sources)
    batch_tokens = translator.search.batch_tokens
    for batch in engine.score([src[i] for i in read], [tgt[i] for i in read], batch_tokens, align=True):
        for index, scores in batch:
            measures[read[index]] = _measure(scores, len(src[read[index]]))
    return measures


def _measure(scores: TokenScores, num_source: int) -> Focus:
    """Return the measures over the translation's tokens without EOS; the source's EOS counts only in the entropy."""
    assert scores.attention is not None
    rows = scores.attention[:-1]
    received = [sum(row[i] for row in rows) for i in range(num_source)]
    entropies = [-math.fsum(share * math.log(share) for share in row if share > 0) for row in rows]
    return Focus(sum(share < IGNORED for share in received) / num_source, math.fsum(entropies) / len(rows))
