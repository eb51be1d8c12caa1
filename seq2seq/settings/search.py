"""Settings of translating: `search`."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from seq2seq.errors import UserError
from seq2seq.settings.checks import IntOrAuto, check_ranges, require, require_at_least
from seq2seq.settings.rules import AUTO

Compile = Literal["auto", "on", "off"]  # whether the search runs as compiled code; auto: where that is possible


@dataclass(kw_only=True)
class SearchConfig:
    """How translations are searched in validation, and by default with the bundle."""

    beam: int = 5  # hypotheses kept at every step; 1 = greedy search
    length_penalty: float = 1.0  # α in score / length^α; the length counts EOS
    # a translation has at most max_length_ratio · source tokens + max_length_offset tokens
    max_length_ratio: float = 2.0
    max_length_offset: int = 20  # tokens added to max_length_ratio · source tokens
    min_length_ratio: float = 0.0  # a translation has at least min_length_ratio · source tokens + min_length tokens
    min_length: int = 0  # tokens added to min_length_ratio · source tokens
    no_repeat_ngram: int = 0  # length of n-grams that may not appear twice in a translation; 0 = off
    # end when enough finished hypotheses (beam) beat every unfinished one at its present length; faster, not exact
    early_stopping: bool = False
    sampling: bool = False  # draw tokens by temperature, top_k, top_p and seed instead of searching
    temperature: float = 1.0  # divides log-probabilities before drawing; below 1, likely tokens become likelier
    top_k: int = 0  # draw from the k likeliest tokens; 0 = all
    top_p: float = 1.0  # nucleus: draw from the likeliest tokens whose probabilities sum to top_p
    seed: int = 1  # random seed of the draws
    # translate text in capitals or title case as usual text, and search again with the numbers that a translation lacks
    repair: bool = False
    mbr: int = 0  # hypotheses for minimum Bayes risk decoding (by chrF); 0 = off
    # most beam × source tokens of a batch, padding included; auto: 4,096 on a CPU, 32,768 on a GPU
    batch_tokens: IntOrAuto = AUTO

    def __post_init__(self) -> None:
        check_ranges(
            "search.",
            self,
            seed=(0, math.inf),
            length_penalty=(0, 10),  # length^α stays a number of 32 bits
            no_repeat_ngram=(0, 100_000),
            top_k=(0, 10**9),
            beam=(1, 1000),
            mbr=(0, 10_000),
            max_length_ratio=(0, 1000),
            max_length_offset=(1, 100_000),
            min_length_ratio=(0, 1000),
            min_length=(0, 100_000),
            batch_tokens=(1, 10**9),
            temperature=(1e-6, 1e6),
        )
        require(0 < self.top_p <= 1, f"search.top_p={self.top_p} must be in (0, 1]")


def change_search(search: SearchConfig, changes: Mapping[str, Any]) -> SearchConfig:
    """Return the settings with some changed by name; None changes nothing.

    Besides the fields of `SearchConfig`, max_length sets the most tokens of a translation, whatever the source.
    """
    new_values = {name: value for name, value in changes.items() if value is not None}
    if "max_length" in new_values:
        require_at_least("max_length", new_values["max_length"], 1)
        new_values |= {"max_length_ratio": 0.0, "max_length_offset": new_values.pop("max_length")}
    return dataclasses.replace(search, **new_values)


def require_one_kind(settings: SearchConfig, *, has_phrases: bool) -> None:
    """Refuse kinds of search that cannot be combined."""
    kinds = {"sampling": settings.sampling, "phrases": has_phrases, "early_stopping": settings.early_stopping}
    wanted = [name for name, is_wanted in kinds.items() if is_wanted]
    if len(wanted) > 1:
        raise UserError(f"{' and '.join(wanted)} do not go together: leave out all but one")


def require_steps(settings: SearchConfig) -> None:
    """Refuse a search whose steps cannot be shown."""
    if settings.sampling or settings.mbr:
        raise UserError("only a plain beam search has steps to show: no sampling or mbr")
