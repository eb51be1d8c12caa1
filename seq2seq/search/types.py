"""What a search gets and returns, as ids; loads no PyTorch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seq2seq.settings.search import SearchConfig

Phrases = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Source:
    """A text for an engine; all ids are without EOS."""

    ids: list[int]
    prefix: Sequence[int] = ()  # the translation begins with these ids
    phrases: Phrases = ()  # the translation contains all of these phrases
    key: int = 0  # samples depend on the seed and this key


@dataclass(frozen=True)
class Hypothesis:
    """One finished translation, as ids."""

    ids: list[int]  # without BOS and EOS
    score: float  # sum of the model's own log-probabilities, EOS included (nats)
    normalised_score: float  # score / length^α, length counting EOS (nats)


@dataclass(frozen=True)
class TokenScores:
    """The model's scores of a given translation."""

    log_probs: list[float]  # of every token, EOS last (nats)
    attention: list[list[float]] | None  # from target to source tokens, EOS last; None: not asked for


class Candidate(NamedTuple):
    """A hypothesis that a step of a beam search considers."""

    ids: list[int]
    score: float  # sum of log-probabilities (nats)
    is_live: bool  # whether the next step continues it


def length_limits(sources: Sequence[Source], settings: SearchConfig) -> list[tuple[int, int]]:
    """Return the least and the most tokens of each source's translation, EOS not counted."""
    limits: list[tuple[int, int]] = []
    for source in sources:
        longest = max(_share(source, settings.max_length_ratio, settings.max_length_offset), len(source.prefix))
        limits.append((min(_share(source, settings.min_length_ratio, settings.min_length), longest), longest))
    return limits


def _share(source: Source, ratio: float, more: int) -> int:
    return int(round(len(source.ids) * ratio + more, 6))  # rounded first: 100 * 0.29 is 28.999999999999996
