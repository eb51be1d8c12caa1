"""What every search shares: the step function that it calls, and the results of a step; knows no model.

A *step function* takes the last token of each row and a state, and returns the logits of the next token and the new
state. A row continues one hypothesis; rows are ordered by sentence.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

T = TypeVar("T")
MOST_QUICK = 64  # for up to this many best tokens of a row, a decoder's own function is faster


@runtime_checkable
class SearchState(Protocol):
    """A model's state of all rows; a search only reorders the rows."""

    def reorder(self: T, rows: Int[Tensor, " n"], counts: Sequence[int]) -> T:
        """Return the state of the rows that the next step continues.

        Args:
            rows: for each new row, the old row of the same sentence whose past the new row continues.
            counts: new rows of each sentence; a sentence without new rows is dropped for good.
        """
        ...


S = TypeVar("S", bound=SearchState)
StepFn = Callable[[Int[Tensor, " n"], S], tuple[Float[Tensor, "n v"], S]]  # last tokens, state -> logits, state


@dataclass(frozen=True)
class Coverage:
    """Penalty β Σᵢ log(min(Σⱼ aⱼᵢ, 1)) for source tokens i that a translation attended to too little.

    aⱼᵢ is the attention of target token j, EOS included, to source token i (Wu et al. 2016, eq. 14). The penalty is
    added to the value of a finished hypothesis. A sum of exactly zero costs β · 87.3 instead of infinity.
    """

    weight: float  # β, not negative
    attended: Float[Tensor, "b s"]  # sums of attention before the first token: 0 for tokens, 1 for padding
    last: Callable[[Any], Float[Tensor, "n s"]]  # returns the attention of the rows' last tokens from a state


@dataclass(frozen=True)
class Step:
    """One step of a beam search, for a watcher: up to 2k candidates c of each sentence, best first.

    Attributes:
        sentences: the number of each sentence still searched.
        tokens: each candidate's last token.
        scores: sums of log-probabilities as rules changed them (nats); -inf marks no candidate.
        parents: place in the beam, after the previous step, of the hypothesis that each candidate continues.
        places: the candidate that takes each of up to k places in the beam, best first.
        alive: which places the next step continues; the others can no longer win.
    """

    sentences: list[int]
    tokens: Int[np.ndarray, "b c"]
    scores: Float[np.ndarray, "b c"]
    parents: Int[np.ndarray, "b c"]
    places: Int[np.ndarray, "b k"]
    alive: Bool[np.ndarray, "b k"]


def next_log_probs(logits: Float[Tensor, "n v"], banned: Int[Tensor, " u"]) -> Float[Tensor, "n v"]:
    """Return the log-probabilities (nats) of logits, with -inf for banned tokens.

    All other tokens keep their probability by the model. So a translation has the same score, whether a search found
    the translation or the model scores it afterwards.
    """
    return logits.log_softmax(-1).index_fill_(1, banned, -float("inf"))


def force_end(log_probs: Float[Tensor, "n v"], rows: Tensor, eos: int) -> Float[Tensor, "n v"]:
    """Return log-probabilities in which rows marked True allow only EOS; EOS keeps its log-probability."""
    end = log_probs[:, eos].clone()
    log_probs = log_probs.masked_fill(rows[:, None], -float("inf"))
    log_probs[:, eos] = end
    return log_probs


Best = tuple[Float[Tensor, "n c"], Int[Tensor, "n c"]]  # each row's best tokens, best first: log-probabilities, ids


def best_tokens(log_probs: Float[Tensor, "n v"], count: int) -> Best:
    """Return each row's best tokens, c = min(count, v) of them."""
    if count == 1:
        return log_probs.max(-1, keepdim=True)
    size = math.gcd(log_probs.shape[1], 64)  # the best c tokens lie in the c blocks of the greatest maxima
    blocks = log_probs.unflatten(1, (-1, size))
    chosen = blocks.amax(-1).topk(min(count, blocks.shape[1])).indices  # (n, c)
    values, order = (
        blocks.gather(1, chosen[:, :, None].expand(-1, -1, size)).flatten(1).topk(min(count, log_probs.shape[1]))
    )
    return values, chosen.gather(1, order // size) * size + order % size


def best_next(logits: Float[Tensor, "n v"], banned: Int[Tensor, " u"], count: int) -> Best:
    """Return each row's best tokens, c = min(count, v) of them, by the log-probabilities of `next_log_probs`."""
    return best_tokens(next_log_probs(logits, banned), count)


Change = Callable[[Float[Tensor, "n v"]], Float[Tensor, "n v"]]
FindBest = Callable[[Float[Tensor, "n v"], Int[Tensor, " u"], int], Best]  # as `best_next`


@dataclass(frozen=True)
class NextTokens:
    """The scores of each row's next token after a step; a score is computed only when a search reads it."""

    logits: Float[Tensor, "n v"]  # by the model
    banned: Int[Tensor, " u"]  # tokens that no hypothesis contains
    change: Change | None  # applies rules and limits to log-probabilities; None: there are none
    quick_best: FindBest  # finds up to `MOST_QUICK` best tokens of each row

    @cached_property
    def own(self) -> Float[Tensor, "n v"]:
        """The model's own log-probabilities; -inf for banned tokens (nats)."""
        return next_log_probs(self.logits, self.banned)

    @cached_property
    def log_probs(self) -> Float[Tensor, "n v"]:
        """Log-probabilities as rules and limits changed them (nats)."""
        return self.own if self.change is None else self.change(self.own.clone())

    def best(self, count: int) -> tuple[Float[Tensor, "n c"], Int[Tensor, "n c"], Float[Tensor, "n c"]]:
        """Return each row's best tokens: log-probabilities, ids, and log-probabilities by the model alone."""
        if self.change is None:
            find = self.quick_best if count <= MOST_QUICK else best_next
            values, tokens = find(self.logits, self.banned, count)
            return values, tokens, values
        values, tokens = best_tokens(self.log_probs, count)
        return values, tokens, self.own.gather(1, tokens)
