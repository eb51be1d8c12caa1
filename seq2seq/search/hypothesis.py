"""The result of a search; knows no tensor."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """One finished translation."""

    ids: list[int]  # without BOS and EOS
    score: float  # sum of the model's own log-probabilities, EOS included (nats)
    normalised_score: float  # score / length^α, length counting EOS (nats)

    @classmethod
    def ended(cls, ids: Sequence[int], score: float, alpha: float) -> "Hypothesis":
        """Return the hypothesis of ids that end with EOS; alpha is α."""
        return cls(list(ids[:-1]), score, score / len(ids) ** alpha)
