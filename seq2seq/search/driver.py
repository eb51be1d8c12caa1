"""The loop that all searches share; it knows ids and an opaque state, never a model.

`Search.run` makes the steps: it calls the step function, bans tokens, applies the rules, forces EOS at the length
limit, reorders the state, and drops finished sentences. A subclass chooses the next tokens and keeps the results.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.device import tensor_on
from seq2seq.search.hypothesis import Hypothesis
from seq2seq.search.rules import Prefixes, Rule
from seq2seq.search.step import Coverage, FindBest, NextTokens, S, Step, StepFn, best_next, force_end
from seq2seq.settings.search import SearchConfig

INF = float("inf")


@dataclass(frozen=True, kw_only=True)
class SearchTask:
    """What a search has to find for a batch of b sentences.

    Raises:
        ValueError: not 1 <= n_best <= beam.
    """

    settings: SearchConfig
    bos: int  # token before the first token of every hypothesis
    eos: int  # token that ends a hypothesis
    max_lengths: Sequence[int]  # most tokens of each sentence's hypotheses, EOS not counted; then EOS is forced
    device: torch.device | str  # of the step function's tensors
    n_best: int = 1  # hypotheses wanted of each sentence; with sampling, the number of samples
    banned: Sequence[int] = ()  # tokens that no hypothesis contains
    rules: Sequence[Rule] = ()  # change the log-probabilities, one after another
    phrases: Sequence[Sequence[Sequence[int]]] = ()  # of each sentence; its hypotheses must contain them
    keys: Sequence[int] = ()  # one per sentence; its samples depend on the key (no keys: on its number)
    coverage: Coverage | None = None  # beam search adds this penalty
    quick_best: FindBest = best_next  # the decoder's own function, if it has one
    watcher: Callable[[Step], object] | None = None  # beam search calls it with every step

    def __post_init__(self) -> None:
        beam = self.settings.beam
        if self.n_best < 1 or (self.n_best > beam and not self.settings.sampling):
            raise ValueError(f"beam={beam} n_best={self.n_best}: needs 1 <= n_best <= beam")


class Continuation(NamedTuple):
    """The hypotheses that the next step continues, one per row; the rows of a sentence are neighbours."""

    rows: Int[Tensor, " n"] | None  # each hypothesis' row in this step; None: every row stays where it is
    last: Int[Tensor, " n"]  # each hypothesis' last token
    counts: Sequence[int]  # hypotheses of each sentence that was searched; 0: the sentence is finished


class Search(ABC):
    """A search of one batch of sentences; a subclass chooses the next tokens.

    Attributes:
        alpha: exponent α of the length: the value of a hypothesis is score / length^α, and the length counts EOS.
        waiting: numbers of the sentences that are still searched.
        length: tokens of every live hypothesis; while `choose` runs, tokens of its continuations.
    """

    def __init__(self, task: SearchTask) -> None:
        """Begin one search; an instance searches once."""
        self.task, self.settings, self.length = task, task.settings, 0
        self.alpha = self.settings.length_penalty
        self.waiting = list(range(len(task.max_lengths)))

    @abstractmethod
    def choose(self, following: NextTokens, state: Any) -> Continuation:
        """Choose the next tokens; state is the step function's, after the step."""

    @abstractmethod
    def results(self) -> list[list[Hypothesis]]:
        """Return each sentence's hypotheses, best first."""

    def run(self, step: StepFn[S], state: S) -> list[list[Hypothesis]]:
        """Search all sentences; return each sentence's hypotheses, fewer than wanted where fewer exist.

        Hypotheses are ranked by log-probabilities that rules may have changed; the returned scores are the model's own.

        Args:
            step: returns the logits of the next token; its first call has one row per sentence.
            state: the state of step; the search only reorders its rows.
        """
        task, device = self.task, self.task.device
        limits, counts = task.max_lengths, [1] * len(self.waiting)  # rows of each waiting sentence
        last, banned = torch.full((len(counts),), task.bos, device=device), tensor_on(device, task.banned)
        prefixes = Prefixes(last.new_empty(len(counts), 0), torch.arange(len(counts), device=device))  # for rules
        while self.waiting:
            logits, state = step(last, state)
            at_limit = [limits[number] == self.length for number in self.waiting]
            change = None
            if task.rules or any(at_limit):
                at_limit = [one for one, count in zip(at_limit, counts, strict=True) for _ in range(count)]
                change = partial(self._change, prefixes=prefixes, at_limit=at_limit)
            self.length += 1
            rows, last, counts = self.choose(NextTokens(logits, banned, change, task.quick_best), state)
            self.waiting = [number for number, count in zip(self.waiting, counts, strict=True) if count]
            if self.waiting and rows is not None:
                state = state.reorder(rows, counts)
            if self.waiting and task.rules:
                prefixes = prefixes.continued(rows, last)
            counts = [count for count in counts if count]
        return self.results()

    def _change(
        self, log_probs: Float[Tensor, "n v"], prefixes: Prefixes, at_limit: Sequence[bool]
    ) -> Float[Tensor, "n v"]:
        """Apply the rules, then end the rows that are at their limit."""
        for rule in self.task.rules:
            log_probs = rule(log_probs, prefixes)
        if not any(at_limit):
            return log_probs
        return force_end(log_probs, tensor_on(self.task.device, at_limit, torch.bool), self.task.eos)


@dataclass
class Partial:
    """A hypothesis on the host, finished or not."""

    ids: list[int]  # with EOS, if it has ended
    row: int  # the step function's row that continues it
    score: float = 0.0  # sum of log-probabilities as the search changed them (nats)
    own: float = 0.0  # sum of the model's own log-probabilities (nats)

    def value(self, alpha: float) -> float:
        """Return score / length^α."""
        return self.score / len(self.ids) ** alpha

    def hypothesis(self, alpha: float) -> Hypothesis:
        """Return the finished hypothesis, with the model's own scores."""
        return Hypothesis.ended(self.ids, self.own, alpha)


def continue_all(live: Sequence[Sequence[Partial]], device: torch.device | str) -> Continuation:
    """Return the continuation of each sentence's live hypotheses, and give them the rows of the next step."""
    partials = list(chain(*live))
    rows, last = tensor_on(device, [[one.row for one in partials], [one.ids[-1] for one in partials]])
    for row, one in enumerate(partials):
        one.row = row
    return Continuation(rows, last, [len(of_sentence) for of_sentence in live])
