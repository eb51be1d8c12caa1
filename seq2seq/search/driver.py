"""The loop that all searches share; it knows ids and an opaque state, never a model.

`Search.run` makes the steps: it calls the step function, bans tokens, applies the rules and limits, reorders the state,
and drops finished sentences. A subclass continues the hypotheses and collects the results.

A *step function* takes the last token of each row and a state, and returns the logits of the next token and the new
state. A row continues one hypothesis. Rows are ordered by sentence, and all sentences have the same number of rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seq2seq.device import on_host, tensor_on
from seq2seq.errors import UserError
from seq2seq.search.rules import LengthLimits, Prefixes, Rule
from seq2seq.search.types import Candidate, Hypothesis
from seq2seq.settings.search import SearchConfig

INF = float("inf")
Best = tuple[Float[Tensor, "n c"], Int[Tensor, "n c"]]  # each row's best tokens, best first: log-probabilities, ids
FindBest = Callable[[Float[Tensor, "n v"], Bool[Tensor, "n v"], int], Best]  # as `best_next`
Table = list[list[float]]
T = TypeVar("T")


def next_log_probs(logits: Float[Tensor, "n v"], forbidden: Bool[Tensor, "n v"]) -> Float[Tensor, "n v"]:
    """Return the log-probabilities (nats) of logits, with -inf for forbidden tokens.

    All other tokens keep their probability by the model. So a translation has the same score, whether a search found
    the translation or the model scores it afterwards.
    """
    return logits.log_softmax(-1).masked_fill_(forbidden, -INF)


def best_next(logits: Float[Tensor, "n v"], forbidden: Bool[Tensor, "n v"], count: int) -> Best:
    """Return each row's best tokens, c = min(count, v) of them, by the log-probabilities of `next_log_probs`."""
    values, tokens = next_log_probs(logits, forbidden).topk(min(count, logits.shape[1]))
    return values, tokens


@dataclass(frozen=True)
class NextTokens:
    """The scores of each row's next token after a step."""

    logits: Float[Tensor, "n v"]  # by the model
    forbidden: Bool[Tensor, "n v"]  # tokens that rules and limits forbid
    find_best: FindBest

    @cached_property
    def log_probs(self) -> Float[Tensor, "n v"]:
        """Log-probabilities; -inf for forbidden tokens (nats)."""
        return next_log_probs(self.logits, self.forbidden)

    def best(self, count: int) -> tuple[Table, list[list[int]]]:
        """Return each row's best tokens, on the host: log-probabilities and ids.

        A token that is forbidden has -inf.
        """
        values, tokens = on_host(*self.find_best(self.logits, self.forbidden, count))
        require_numbers(values)
        return values.tolist(), tokens.tolist()


def require_numbers(log_probs: Float[np.ndarray, "..."]) -> None:
    """Refuse the log-probabilities of a damaged model."""
    if np.isnan(log_probs).any():
        raise UserError("the model's scores are not numbers (NaN): its weights are damaged, train it again")


@runtime_checkable
class SearchState(Protocol):
    """A model's state of all rows; a search only reorders the rows."""

    def reorder(self: T, rows: Int[Tensor, "b w"]) -> T:
        """Return the state of the rows that the next step continues.

        rows has a line for each sentence that goes on, in order: the old rows whose past its w new rows continue.
        """
        ...


S = TypeVar("S", bound=SearchState)
StepFn = Callable[[Int[Tensor, " n"], S], tuple[Float[Tensor, "n v"], S]]  # last tokens, state -> logits, state


@dataclass(frozen=True, kw_only=True)
class SearchTask:
    """What a search has to find for a batch of b sentences."""

    settings: SearchConfig
    bos: int  # token before the first token of every hypothesis
    eos: int  # token that ends a hypothesis
    max_lengths: Sequence[int]  # most tokens of each sentence's hypotheses, EOS not counted; then EOS is forced
    min_lengths: Sequence[int] = ()  # fewest tokens of each sentence's hypotheses, EOS not counted; empty: none
    device: torch.device | str = "cpu"  # of the step function's tensors
    n_best: int = 1  # hypotheses wanted of each sentence, at most the beam; with sampling, the number of samples
    banned: Sequence[int] = ()  # tokens that no hypothesis contains
    rules: Sequence[Rule] = ()  # forbid tokens, one after another
    phrases: Sequence[Sequence[Sequence[int]]] = ()  # of each sentence; its hypotheses must contain them
    keys: Sequence[int] = ()  # one per sentence; its samples depend on the key (no keys: on its number)
    find_best: FindBest = best_next  # equal to `best_next`
    on_candidates: Callable[[list[Candidate]], object] | None = None  # beam search calls it for every sentence and step


@dataclass(slots=True)
class Partial:
    """A hypothesis during a search, live or ended."""

    ids: list[int]  # with EOS, if it has ended
    row: int  # the step function's row that continues it
    score: float = 0.0  # sum of log-probabilities (nats)

    def value(self, alpha: float) -> float:
        """Return score / length^α; the length counts EOS."""
        return self.score / len(self.ids) ** alpha

    def hypothesis(self, alpha: float) -> Hypothesis:
        """Return the ended hypothesis."""
        return Hypothesis(self.ids[:-1], self.score, self.value(alpha))


P = TypeVar("P", bound=Partial)


class Search(ABC, Generic[P]):
    """A search of one batch of sentences; a subclass continues the hypotheses.

    Attributes:
        alpha: exponent α of the length: the value of a hypothesis is score / length^α, and the length counts EOS.
        live: the live hypotheses of each sentence that is still searched, by the sentence's number.
        ended: each sentence's k best hypotheses that have ended, best first.
        length: tokens of every live hypothesis; while `advance` runs, tokens of its continuations.
    """

    def __init__(self, task: SearchTask, first: Sequence[list[P]]) -> None:
        """Begin one search with the first hypotheses of each sentence; an instance searches once."""
        self.task, self.settings, self.length = task, task.settings, 0
        self.alpha = self.settings.length_penalty
        self.live = dict(enumerate(first))
        self.ended: list[list[P]] = [[] for _ in first]

    @abstractmethod
    def advance(self, next_tokens: NextTokens) -> None:
        """Continue the live hypotheses of every sentence by one token; a sentence without any is finished."""

    def results(self) -> list[list[Hypothesis]]:
        """Return each sentence's hypotheses, best first, in the order that the sentences came in."""
        return [[partial.hypothesis(self.alpha) for partial in best[: self.task.n_best]] for best in self.ended]

    def run(self, step: StepFn[S], state: S) -> list[list[Hypothesis]]:
        """Search all sentences; return each sentence's hypotheses, fewer than wanted where fewer exist.

        The first call of the step function has one row per sentence.
        """
        task, device = self.task, self.task.device
        rules = [*task.rules, LengthLimits(task.min_lengths, task.max_lengths, task.eos)]
        last, banned = torch.full((len(self.live),), task.bos, device=device), tensor_on(device, task.banned)
        prefixes = Prefixes(last.new_empty(len(last), 0), torch.arange(len(last), device=device))
        while self.live:
            logits, state = step(last, state)
            forbidden = torch.zeros_like(logits, dtype=torch.bool).index_fill_(1, banned, True)
            for rule in rules:
                forbidden = rule(forbidden, prefixes)
            self.length += 1
            self.advance(NextTokens(logits, forbidden, task.find_best))
            self.live = {number: live for number, live in self.live.items() if live}
            width = max(map(len, self.live.values()), default=0)
            # all sentences get as many rows: spare rows repeat a sentence's first hypothesis
            continued = [partial for live in self.live.values() for partial in (*live, *live[:1] * (width - len(live)))]
            old_rows = [partial.row for partial in continued]
            rows, last = tensor_on(device, [old_rows, [partial.ids[-1] for partial in continued]])
            if continued and old_rows != list(range(len(logits))):
                state = state.reorder(rows.view(-1, width))
                for row, partial in reversed(list(enumerate(continued))):  # reversed: a hypothesis has its first row
                    partial.row = row
            prefixes = prefixes.continued(rows, last)
        return self.results()
