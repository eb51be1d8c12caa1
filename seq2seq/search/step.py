"""What every search shares: the step function it calls and what a step gives; no search knows a model.

A *step function* takes the last token of each row and a state, and returns the logits of the next token and the new
state. A row continues one hypothesis; the rows of a sentence stand together, those of the first sentence first.
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
MOST_QUICK = 64  # tokens of a row for which a decoder's own way to find the best ones is the quicker one


@runtime_checkable
class SearchState(Protocol):
    """What a model remembers of its rows; search only rearranges it."""

    def reorder(self: T, rows: Int[Tensor, " n"], counts: Sequence[int]) -> T:
        """Choose the rows that the next step continues.

        Args:
            rows: for each new row, the old row of the same sentence whose past it continues.
            counts: how many of them each sentence has; a sentence with none leaves for good.
        """
        ...


S = TypeVar("S", bound=SearchState)
StepFn = Callable[[Int[Tensor, " n"], S], tuple[Float[Tensor, "n v"], S]]  # last tokens, state -> logits, state


@dataclass(frozen=True)
class Coverage:
    """Penalty β Σᵢ log(min(Σⱼ aⱼᵢ, 1)) for source tokens i that a translation attended to too little.

    aⱼᵢ is how much target token j attended to source token i (Wu et al. 2016, eq. 14); it is added to the value of a
    hypothesis that ended, EOS's attention included. A sum of exactly zero costs β · 87.3, not infinitely much.
    """

    weight: float  # β, not negative
    attended: Float[Tensor, "b s"]  # what counts as attended to before the first token: 0; 1 for padding
    last: Callable[[Any], Float[Tensor, "n s"]]  # from a state, how the rows' last tokens attended


@dataclass(frozen=True)
class Step:
    """One step of a beam search as it is shown to whoever watches: up to 2k candidates c of each sentence, best first.

    Attributes:
        sentences: the number of each sentence still searched.
        tokens: each candidate's last token.
        scores: sums of log-probabilities as rules changed them (nats); -inf marks no candidate.
        parents: place in the beam, after the step before, of the hypothesis that each continues.
        places: the candidate that takes each of up to k places in the beam, best first.
        alive: which places are searched on; the others can no longer win.
    """

    sentences: list[int]
    tokens: Int[np.ndarray, "b c"]
    scores: Float[np.ndarray, "b c"]
    parents: Int[np.ndarray, "b c"]
    places: Int[np.ndarray, "b k"]
    alive: Bool[np.ndarray, "b k"]


def next_log_probs(logits: Float[Tensor, "n v"], banned: Int[Tensor, " u"]) -> Float[Tensor, "n v"]:
    """Turn logits into log-probabilities (nats), with -inf for banned tokens.

    The others keep the probability that the model gives them, so that a score is the same whether a translation was
    found by search or is scored afterwards.
    """
    return logits.log_softmax(-1).index_fill_(1, banned, -float("inf"))


def force_end(log_probs: Float[Tensor, "n v"], rows: Tensor, eos: int) -> Float[Tensor, "n v"]:
    """Leave the rows marked True nothing but EOS, at the log-probability it has."""
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
    """Return each row's best tokens, c = min(count, v) of them, of what `next_log_probs` gives."""
    return best_tokens(next_log_probs(logits, banned), count)


Change = Callable[[Float[Tensor, "n v"]], Float[Tensor, "n v"]]
FindBest = Callable[[Float[Tensor, "n v"], Int[Tensor, " u"], int], Best]  # as `best_next`


@dataclass(frozen=True)
class NextTokens:
    """What a step tells of each row's next token; only what a search asks for is computed."""

    logits: Float[Tensor, "n v"]  # the model's
    banned: Int[Tensor, " u"]  # tokens that no hypothesis contains
    change: Change | None  # applies rules and limits to log-probabilities; None: there are none
    quick_best: FindBest  # finds up to `MOST_QUICK` tokens

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
