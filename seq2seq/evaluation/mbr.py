"""Minimum Bayes risk: of several translations of one source, the one most like all the others; knows texts only."""

from collections.abc import Sequence

import numpy as np
from fastchrf import pairwise_chrf


def minimum_bayes_risk(candidates: Sequence[str], weights: Sequence[float] | None = None) -> tuple[int, list[float]]:
    """Choose the candidate of the greatest expected utility (Eikema & Aziz 2022), the first if several have it.

    The utility of a candidate, were another one the true translation, is its sentence chrF (Popović 2015) against it,
    as sacreBLEU computes it. Every candidate counts as a possible truth, itself included.

    Args:
        candidates: translations of one source, such as samples; repeated ones count as often as they come.
        weights: how probable each candidate is, in any unit (None: all equally, as samples are).

    Returns:
        The candidate's index, and every candidate's expected utility (0 to 100).

    Raises:
        ValueError: there is no candidate, or the weights are not one a candidate, none negative and some positive.
    """
    shares = np.ones(len(candidates)) if weights is None else np.array(weights, dtype=float)
    if len(shares) != len(candidates) or not 0 < shares.sum() < np.inf or shares.min() < 0:
        raise ValueError(f"{len(candidates)} candidates with weights {weights}: needs one each, >= 0, not all 0")
    texts = ["".join(text.split()) for text in candidates]  # chrF does not see white space
    utilities = np.array(pairwise_chrf([texts], [texts])[0]) @ (shares / shares.sum())
    return int(utilities.argmax()), utilities.tolist()
