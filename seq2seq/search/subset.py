"""A search in a part of the vocabulary: the search uses places, and all other code uses ids."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64

from seq2seq.search.hypothesis import Hypothesis
from seq2seq.search.step import Step


@dataclass(frozen=True)
class Subset:
    """Some ids of a vocabulary; a place is an index among them."""

    ids: Int64[np.ndarray, " u"]  # in ascending order

    def places(self, ids: Sequence[int]) -> list[int]:
        """Return the places of ids, all of which must be in the subset."""
        return np.searchsorted(self.ids, ids).tolist()

    def with_ids(self, hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
        """Return hypotheses of places as hypotheses of ids."""
        return [replace(one, ids=self.ids[one.ids].tolist()) for one in hypotheses]

    def shown_to(self, watcher: Callable[[Step], object]) -> Callable[[Step], object]:
        """Return a function that calls watcher with a step of the search, places replaced by ids."""
        return lambda step: watcher(replace(step, tokens=self.ids[step.tokens]))
