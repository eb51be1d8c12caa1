"""A search in a part of the vocabulary: the search knows places, everything around it knows ids."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64

from seq2seq.search.hypothesis import Hypothesis
from seq2seq.search.step import Step


@dataclass(frozen=True)
class Subset:
    """Some ids of a vocabulary; a place is an index among them."""

    ids: Int64[np.ndarray, " u"]  # in rising order

    def places(self, ids: Sequence[int]) -> list[int]:
        """Return the places of ids that are among these."""
        return np.searchsorted(self.ids, ids).tolist()

    def with_ids(self, hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
        """Return hypotheses of places as hypotheses of ids."""
        return [replace(one, ids=self.ids[one.ids].tolist()) for one in hypotheses]

    def shown_to(self, watcher: Callable[[Step], object]) -> Callable[[Step], object]:
        """Return a function that shows a watcher the steps of a search, with ids."""
        return lambda step: watcher(replace(step, tokens=self.ids[step.tokens]))
