"""Rules that forbid a step's tokens, depending on each row's tokens so far; know ids, never a model.

Every search applies the rules in turn. Tokens that are not forbidden keep their log-probabilities. So the score of a
hypothesis is the model's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq.settings.search import SearchConfig

NOTHING, ANYTHING = -2, -1  # in place of an id: no token; any token


@dataclass(frozen=True)
class Prefixes:
    """The sentences of a step's rows, and the tokens that the rows have so far; all rows have the same length."""

    tokens: Int[Tensor, "n t"]  # without BOS
    sentences: Int[Tensor, " n"]  # each row's sentence, by its number in the whole search

    def continued(self, rows: Int[Tensor, " m"], last: Int[Tensor, " m"]) -> "Prefixes":
        """Return the prefixes of the next step, which continues these rows by these tokens."""
        return Prefixes(torch.cat((self.tokens[rows], last[:, None]), 1), self.sentences[rows])


@runtime_checkable
class Rule(Protocol):
    """A function that forbids next tokens of the rows."""

    def __call__(self, forbidden: Bool[Tensor, "n v"], prefixes: Prefixes) -> Bool[Tensor, "n v"]:
        """Return the tokens that are forbidden already, and those that this rule forbids; may change `forbidden`."""
        ...


class LengthLimits:
    """Forbids EOS below each sentence's least length, and all other tokens at its greatest length."""

    def __init__(self, shortest: Sequence[int], longest: Sequence[int], eos: int) -> None:
        """Set the fewest and the most tokens of each sentence, EOS not counted; shortest may be empty: none."""
        self._limits = torch.tensor([shortest or [0] * len(longest), longest])
        self._unlimited = range(max(shortest, default=0), min(longest, default=0))  # lengths without any limit
        self._eos = eos

    def __call__(self, forbidden: Bool[Tensor, "n v"], prefixes: Prefixes) -> Bool[Tensor, "n v"]:
        """Forbid by the rows' present length; an EOS that is forbidden already stays so."""
        length = prefixes.tokens.shape[1]
        if length in self._unlimited:
            return forbidden
        self._limits = self._limits.to(forbidden.device, non_blocking=True)
        shortest, longest = self._limits[:, prefixes.sentences]
        ends = forbidden[:, self._eos] | (shortest > length)
        forbidden |= (longest == length)[:, None]
        forbidden[:, self._eos] = ends
        return forbidden


class NoRepeatNgram:
    """Forbids tokens that would repeat an n-gram of the same row."""

    def __init__(self, size: int) -> None:
        """Set n (tokens)."""
        self.size = size

    def __call__(self, forbidden: Bool[Tensor, "n v"], prefixes: Prefixes) -> Bool[Tensor, "n v"]:
        """Forbid the tokens that followed earlier occurrences of the row's last n - 1 tokens."""
        length = prefixes.tokens.shape[1]
        if length < self.size:
            return forbidden
        ngrams = prefixes.tokens.unfold(1, self.size, 1)  # (n, ngrams, size)
        latest = prefixes.tokens[:, None, length - self.size + 1 :]
        return _forbid(forbidden, ngrams[:, :, -1], (ngrams[:, :, :-1] == latest).all(-1))


class BannedPhrases:
    """Forbids phrases; a phrase of one token forbids this token everywhere."""

    def __init__(self, phrases: Sequence[Sequence[int]]) -> None:
        """Set the phrases (ids), each of at least one token."""
        width = max(map(len, phrases), default=1)
        table = [[ANYTHING] * (width - len(phrase)) + list(phrase) for phrase in phrases]
        self._phrases = torch.tensor(table, dtype=torch.long).view(len(phrases), width)

    def __call__(self, forbidden: Bool[Tensor, "n v"], prefixes: Prefixes) -> Bool[Tensor, "n v"]:
        """Forbid the last token of each phrase whose other tokens are the row's last tokens."""
        self._phrases = self._phrases.to(forbidden.device, non_blocking=True)
        beginnings, ends = self._phrases[:, :-1], self._phrases[:, -1]
        padded = F.pad(prefixes.tokens, (beginnings.shape[1], 0), value=NOTHING)
        latest = padded[:, None, prefixes.tokens.shape[1] :]  # (n, 1, width - 1)
        begun = ((beginnings == latest) | (beginnings == ANYTHING)).all(-1)
        return _forbid(forbidden, ends.expand_as(begun), begun)


class ForcedPrefix:
    """Forces the first tokens of each sentence's translation; these tokens keep their log-probabilities."""

    def __init__(self, prefixes: Sequence[Sequence[int]], rules: Sequence[Rule] = ()) -> None:
        """Set each sentence's first tokens (ids), within the search's limit, and the rules for all other tokens.

        These rules do not apply to forced tokens; but rules that the search applies besides this rule may forbid them.
        """
        width = max(map(len, prefixes), default=0)
        table = [[*prefix, *[ANYTHING] * (width - len(prefix))] for prefix in prefixes]
        self._prefixes = torch.tensor(table, dtype=torch.long).view(len(prefixes), width)
        self.rules = rules

    def __call__(self, forbidden: Bool[Tensor, "n v"], prefixes: Prefixes) -> Bool[Tensor, "n v"]:
        """Forbid all tokens but the forced token in rows that have one; apply the rules to the other rows."""
        self._prefixes = self._prefixes.to(forbidden.device, non_blocking=True)
        position, ruled = prefixes.tokens.shape[1], forbidden.clone()
        for rule in self.rules:
            ruled = rule(ruled, prefixes)
        if position >= self._prefixes.shape[1]:
            return ruled
        forced = self._prefixes[prefixes.sentences, position][:, None]
        index = forced.clamp(min=0)
        only = torch.ones_like(forbidden).scatter_(1, index, forbidden.gather(1, index))
        return torch.where(forced == ANYTHING, ruled, only)


def make_rules(
    settings: SearchConfig, *, prefixes: Sequence[Sequence[int]], banned: Sequence[Sequence[int]]
) -> list[Rule]:
    """Return the rules of a search, by its settings; a forced prefix overrides all other rules.

    prefixes are the ids that each translation begins with, banned the sequences of ids that none contains.
    """
    rules: list[Rule] = []
    if settings.no_repeat_ngram:
        rules.append(NoRepeatNgram(settings.no_repeat_ngram))
    if banned:
        rules.append(BannedPhrases(banned))
    return [ForcedPrefix(prefixes, rules)] if any(prefixes) else rules


def _forbid(forbidden: Bool[Tensor, "n v"], tokens: Int[Tensor, "n i"], where: Bool[Tensor, "n i"]) -> Tensor:
    """Forbid each row's tokens where `where` is True; a token may be listed twice."""
    forbidden.view(torch.uint8).scatter_reduce_(1, tokens, where.byte(), "amax")
    return forbidden
