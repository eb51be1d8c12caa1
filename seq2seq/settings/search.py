"""Settings of translating: `search`."""

import dataclasses
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from seq2seq.errors import UserError
from seq2seq.settings.checks import require, require_at_least, require_at_most


@dataclass(kw_only=True)
class SearchConfig:
    """How translations are searched: in training's validation, and as the bundle's default."""

    beam: int = 5  # hypotheses kept at every step; 1 = greedy search
    length_penalty: float = 1.0  # α in score / length^α, length counting EOS
    max_length_ratio: float = 2.0  # at most ratio · source tokens + max_length_offset target tokens
    max_length_offset: int = 20  # target tokens that are added to max_length_ratio · source tokens
    min_length_ratio: float = 0.0  # at least ratio · source tokens + min_length target tokens
    min_length: int = 0  # target tokens that are added to min_length_ratio · source tokens
    no_repeat_ngram: int = 0  # no n-gram of this length twice; 0 = off
    repetition_penalty: float = 1.0  # factor on log-probabilities of tokens that were there before; 1 = off
    coverage_penalty: float = 0.0  # β of Wu et al. 2016, for source tokens attended to too little; 0 = off
    early_stopping: bool = False  # end when nothing is better at its present length; quicker, and no longer exact
    groups: int = 1  # groups of diverse beam search, beam / groups hypotheses each; 1 = off
    diversity: float = 0.5  # penalty (nats) per earlier group that chose the token
    sampling: bool = False  # draw tokens by temperature, top_k, top_p and seed instead of searching
    temperature: float = 1.0  # divides log-probabilities before drawing; below 1, likely tokens get likelier
    top_k: int = 0  # draw from the k likeliest tokens; 0 = all
    top_p: float = 1.0  # nucleus: draw from the likeliest tokens that sum to top_p
    seed: int = 1  # number that all draws follow from
    mbr: int = 0  # hypotheses for minimum Bayes risk decoding (by chrF); 0 = off
    batch_tokens: int = 4096  # beam × source tokens of a batch, padding included

    def __post_init__(self) -> None:
        for key in ("length_penalty", "max_length_ratio", "min_length_ratio", "min_length", "no_repeat_ngram"):
            require_at_least(f"search.{key}", getattr(self, key), 0)
        for key in ("coverage_penalty", "diversity", "top_k", "mbr", "seed"):
            require_at_least(f"search.{key}", getattr(self, key), 0)
        for key in ("beam", "max_length_offset", "groups", "repetition_penalty", "batch_tokens"):
            require_at_least(f"search.{key}", getattr(self, key), 1)
        limits = {"beam": 1000, "mbr": 10_000, "max_length_ratio": 1000, "max_length_offset": 100_000}
        for key, maximum in {**limits, "min_length": 100_000, "min_length_ratio": 1000, "batch_tokens": 10**9}.items():
            require_at_most(f"search.{key}", getattr(self, key), maximum)
        require(
            self.beam % self.groups == 0,
            f"search.beam={self.beam} must be a multiple of search.groups={self.groups}",
        )
        in_range = 0 < self.temperature < math.inf
        require(in_range, f"search.temperature={self.temperature} must be greater than 0 and finite")
        require(self.diversity < math.inf, f"search.diversity={self.diversity} must be finite")
        require(0 < self.top_p <= 1, f"search.top_p={self.top_p} must be in (0, 1]")


_EXPECTED = {int: (Integral, "a whole number"), float: (Real, "a number"), bool: (bool, "True or False")}


def change_search(search: SearchConfig, changes: Mapping[str, object]) -> SearchConfig:
    """Return the settings with some changed by name; None changes nothing.

    Beside the fields of `SearchConfig` there is max_length: the most tokens of a translation, whatever the source.

    Raises:
        UserError: a name is unknown, or a value has the wrong type or is out of range.
    """
    types = {one.name: one.type for one in dataclasses.fields(SearchConfig)} | {"max_length": int}
    wanted: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    for name, value in wanted.items():
        if name not in types:
            close = difflib.get_close_matches(name, types, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise UserError(f"there is no search setting {name}{hint}: choose from {', '.join(types)}")
        kind, expected = _EXPECTED[types[name]]
        is_right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        require(is_right, f"{name}={value!r} is of type {type(value).__name__}: give {expected}")
    if "max_length" in wanted:
        require_at_least("max_length", wanted["max_length"], 1)
        wanted |= {"max_length_ratio": 0.0, "max_length_offset": wanted.pop("max_length")}
    return dataclasses.replace(search, **wanted)
