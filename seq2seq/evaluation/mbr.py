"""Minimum Bayes risk: how similar each translation of a source is to all the others."""

from collections.abc import Sequence

import numpy as np
from fastchrf import pairwise_chrf


def expected_utilities(candidates: Sequence[str]) -> list[float]:
    """Return the expected utility of each translation of one source, from 0 to 100 (Eikema & Aziz 2022).

    The utility of a candidate for a reference is its sentence chrF (Popović 2015), as sacreBLEU computes it. Every
    candidate serves as a reference, itself included; repeated candidates, such as samples, count each time.
    """
    texts = ["".join(text.split()) for text in candidates]  # chrF ignores white space
    return np.array(pairwise_chrf([texts], [texts])[0]).mean(1).tolist()
