"""The rules that replace `auto` in settings. Pure functions; see docs/automatic.md.

The unit of text is the *position*: one token of a row of a batch, or its EOS. A pair takes as many positions as its
longer side has tokens, plus one.
"""

import math
from typing import Any

AUTO: Any = "auto"  # the value of a setting that a rule decides
VOCABULARIES = ((10_000, 2_000), (50_000, 4_000), (300_000, 8_000), (2_000_000, 16_000))  # pairs below → subwords
LARGEST_VOCABULARY = 32_000
SMALL_TEXT = 50_000  # pairs
PAPERS_BATCH = 25_000  # tokens of an update of Vaswani et al. 2017
WARMUP, LONGEST_WARMUP = 0.1, 4000  # share of a run; updates, those of Vaswani et al. 2017
SMALLEST_BATCH, LARGEST_BATCH = 512, 131_072  # positions on a GPU; larger batches make updates rarer, not faster
_VALIDATIONS = 25  # in a run that does not stop early
_BETWEEN = (100, 5000)  # updates between validations, at least and at most


def vocab_size(pairs: int) -> int:
    """Return the vocabulary size for a number of training pairs: learning rare subwords needs a large corpus."""
    return next((size for below, size in VOCABULARIES if pairs < below), LARGEST_VOCABULARY)


def held_out(pairs: int) -> int:
    """Return how many pairs to hold out for validation, and as many for testing: a twentieth, at most 1,000."""
    return max(1, min(1000, pairs // 20))


def dropout(pairs: int) -> float:
    """Return the share of units to drop: 0.1 as published, 0.3 for a small text, which a model overfits sooner."""
    return 0.3 if pairs < SMALL_TEXT else 0.1


def learning_rate(d_model: int, batch: int, *, is_pre_norm: bool) -> float:
    """Return the peak learning rate for a width, for the positions of an update, and for the place of normalisation.

    At a width of 256 it is 2e-3 with pre-norm, else 1e-3: a post-norm Transformer does not learn to align at 2e-3
    (docs/speedrun.md). It falls with the square root of the width, as that of Vaswani et al. 2017 does, who
    had batches of 25,000. Smaller batches have the same rate (docs/results.md). Larger ones have more, by the fourth
    root: Ott et al. 2018 doubled the rate for batches 16 times as large.
    """
    rate = (2e-3 if is_pre_norm else 1e-3) * math.sqrt(256 / d_model) * max(1.0, batch / PAPERS_BATCH) ** 0.25
    return float(f"{rate:.1e}")  # more digits would claim a precision that no measurement has


def optimizer(*, is_pre_norm: bool) -> str:
    """Return the optimizer: Muon where it was measured (docs/speedrun.md), with pre-norm; else AdamW."""
    return "muon" if is_pre_norm else "adamw"


def max_tokens(memory: int, parameters: int, layers: int, values: int, *, kept: int | None = None) -> int:
    """Return the positions of a batch on a GPU with so many bytes of free memory: a power of two, 512 to 131,072.

    Half of the memory is planned for. A parameter takes 24 bytes: weight, gradients of an update and of a batch, two
    means of AdamW and a running average. A position takes 4 bytes for each of the `values` that a layer saves for its
    gradient, or for the `kept` ones if a layer computes the others again. The other half is for what the saved values
    become on the way, for attention without a fused kernel, and for the allocator's gaps.
    """
    saved = layers * values if kept is None else layers * kept + values
    positions = (memory / 2 - 24 * parameters) / (4 * saved)
    return 2 ** int(math.log2(min(LARGEST_BATCH, max(SMALLEST_BATCH, positions))))


def max_steps(positions: int, batch: int) -> int:
    """Return the number of updates for a text of `positions`, with `batch` positions per update.

    The number grows with the square root of the text's size, so a small text is read more often than a large one. It
    falls with the square root of the batch, so larger batches read more text in fewer updates.
    """
    return max(200, 100 * round(0.09 * math.sqrt(positions * 1024 / batch)))


def warmup_steps(updates: int) -> int:
    """Return the updates of linear rise in a run without a time limit: a tenth of the run, at most 4,000."""
    return min(LONGEST_WARMUP, max(1, int(updates * WARMUP)))


def validate_every(updates: int) -> int:
    """Return the updates between validations: 25 validations in a run, 100 to 5,000 updates apart."""
    fewest, most = _BETWEEN
    return min(updates, most, max(fewest, updates // _VALIDATIONS))


def batch_tokens(device: str) -> int:
    """Return the tokens of a search's batch, on a device of kind cpu or cuda: a GPU computes 4,096 in no less time."""
    return 32_768 if device == "cuda" else 4096
