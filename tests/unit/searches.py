"""Searches, a style of model and a mark that several tests of decoders share."""

import shutil
from typing import Any

import pytest

NEEDS_COMPILER = pytest.mark.skipif(shutil.which("cc") is None, reason="this machine has no C compiler")
MODERN: dict[str, Any] = {"norm": "rmsnorm", "norm_position": "pre", "activation": "swiglu", "positions": "rotary"}
SEARCHES: dict[str, dict[str, Any]] = {  # settings by name; "constrained" is for sources with phrases
    "greedy": {"beam": 1},
    "beam": {"beam": 5},
    "early stopping": {"beam": 4, "early_stopping": True},
    "least length": {"beam": 4, "min_length": 4},
    "sampling": {"sampling": True, "top_k": 20, "seed": 3},
    "diverse": {"beam": 6, "groups": 3, "diversity": 0.7},
    "rules": {"beam": 4, "no_repeat_ngram": 2, "repetition_penalty": 1.3, "min_length": 4},
    "constrained": {"beam": 5},
}
