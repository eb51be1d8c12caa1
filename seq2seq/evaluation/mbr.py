"""Minimum Bayes risk: choose the translation of a source that is most similar to all the others."""

from collections.abc import Sequence

import numpy as np
from fastchrf import pairwise_chrf


def minimum_bayes_risk(candidates: Sequence[str], weights: Sequence[float] | None = None) -> tuple[int, list[float]]:
    """Choose the candidate with the greatest expected utility (Eikema & Aziz 2022), the first of equals.

    The utility of a candidate for a reference is its sentence chrF (Popović 2015), as sacreBLEU computes it. Every
    candidate serves as a reference, itself included.

    Args:
        candidates: translations of one source, such as samples; repeated candidates count each time.
        weights: probabilities of the candidates, times any factor; None: all equal, as for samples.

    Returns:
        The candidate's index, and every candidate's expected utility (0 to 100).

    Raises:
        ValueError: there is no candidate, the weights are not one a candidate, a weight is negative, or the sum of the
            weights is 0 or infinite.
    """
    shares = np.ones(len(candidates)) if weights is None else np.array(weights, dtype=float)
    if len(shares) != len(candidates) or not 0 < shares.sum() < np.inf or shares.min() < 0:
        raise ValueError(f"{len(candidates)} candidates with weights {weights}: needs one each, >= 0, not all 0")
    texts = ["".join(text.split()) for text in candidates]  # chrF ignores white space
    utilities = np.array(pairwise_chrf([texts], [texts])[0]) @ (shares / shares.sum())
    return int(utilities.argmax()), utilities.tolist()
