"""A search in a part of the vocabulary: the search uses indices into the subset, and all other code uses ids."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64

from seq2seq.search.types import Candidate, Hypothesis, Source


@dataclass(frozen=True)
class Subset:
    """Some ids of a vocabulary."""

    ids: Int64[np.ndarray, " u"]  # in ascending order

    def index(self, ids: Sequence[int]) -> list[int]:
        """Return the indices of ids, all of which must be in the subset."""
        return np.searchsorted(self.ids, ids).tolist()

    def source(self, source: Source) -> Source:
        """Return a source whose prefix and phrases are indices."""
        phrases = [self.index(ids) for ids in source.phrases]
        return replace(source, prefix=self.index(source.prefix), phrases=phrases)

    def with_ids(self, hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
        """Return hypotheses of indices as hypotheses of ids."""
        return [replace(hypothesis, ids=self.ids[hypothesis.ids].tolist()) for hypothesis in hypotheses]

    def on_candidates(self, call: Callable[[list[Candidate]], object]) -> Callable[[list[Candidate]], object]:
        """Return a function that calls `call` with candidates whose indices are replaced by ids."""
        return lambda candidates: call([one._replace(token=int(self.ids[one.token])) for one in candidates])
