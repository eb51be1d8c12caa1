"""Beam search for hypotheses that contain given phrases; knows ids and an opaque state, never a model.

Dynamic beam allocation (Post & Vilar 2018): continuations are sorted into banks by the number of phrase tokens that
they still miss, and the banks share the beam, so that a dear phrase is not crowded out by cheap words. Unlike there,
every bank chooses from all continuations, and what breaks a phrase off keeps of it what its last tokens begin anew.
A hypothesis lives only while the missing phrases, one after another, fit within its limit, and ends only when none is
missing; so there is always one that gets them all. A sentence leaves when no live hypothesis can enter its n best.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.device import tensor_on
from seq2seq.search.rules import Prefixes, Rule
from seq2seq.search.step import Hypothesis, S, StepFn, next_log_probs

INF = float("inf")
Phrase = tuple[int, ...]


@dataclass(frozen=True)
class Progress:
    """How far a hypothesis is with the phrases of its sentence."""

    missing: tuple[Phrase, ...]
    begun: tuple[int, ...]  # of each missing phrase, how many of its tokens the hypothesis ends with

    @classmethod
    def start(cls, phrases: Sequence[Sequence[int]]) -> "Progress":
        """Have produced nothing. A phrase within another, or given twice, need not be missed by itself.

        Raises:
            ValueError: a phrase has no tokens.
        """
        if not all(phrases):
            raise ValueError(f"phrases={phrases}: every phrase needs a token")
        unlike = dict.fromkeys(map(tuple, phrases))
        missing = tuple(one for one in unlike if not any(one != other and _within(one, other) for other in unlike))
        return cls(missing, (0,) * len(missing))

    @cached_property
    def needed(self) -> int:
        """Tokens still missing, if the phrase that is furthest goes on and the others follow one after another."""
        return sum(map(len, self.missing)) - max(self.begun, default=0)

    @cached_property
    def steps(self) -> dict[int, "Progress"]:
        """Where the tokens of the missing phrases lead; every other token leads to `broken_off`."""
        return {token: self._after(token) for token in sorted(set(chain(*self.missing)))}

    @cached_property
    def broken_off(self) -> "Progress":
        """The same phrases missing, none begun."""
        return Progress(self.missing, (0,) * len(self.missing)) if any(self.begun) else self

    def _after(self, token: int) -> "Progress":
        tails = [(*phrase[:count], token) for phrase, count in zip(self.missing, self.begun, strict=True)]
        begun = [_overlap(tail, phrase) for tail, phrase in zip(tails, self.missing, strict=True)]
        left = [(phrase, count) for phrase, count in zip(self.missing, begun, strict=True) if count < len(phrase)]
        return Progress(tuple(phrase for phrase, _ in left), tuple(count for _, count in left))


def tokens_needed(phrases: Sequence[Sequence[int]]) -> int:
    """Tell the smallest limit (tokens, EOS not counted) with which the search can place phrases in a sentence.

    Raises:
        ValueError: a phrase has no tokens.
    """
    return Progress.start(phrases).needed


def _within(inner: Phrase, outer: Phrase) -> bool:
    return any(outer[start : start + len(inner)] == inner for start in range(len(outer)))


def _overlap(tail: Phrase, phrase: Phrase) -> int:
    """How many tokens of phrase, from its first, are the last ones of tail."""
    return next(count for count in range(len(tail), -1, -1) if tail[len(tail) - count :] == phrase[:count])


@dataclass(frozen=True)
class _Partial:
    """A hypothesis, ended or not."""

    ids: list[int]  # with EOS, if it has ended
    score: float  # sum of log-probabilities as rules changed them (nats)
    own: float  # sum of the model's own log-probabilities (nats)
    progress: Progress
    row: int = 0  # the step function's, whose hypothesis it continues


class _Sentence:
    """The hypotheses of one sentence: live ones, and the k best that ended."""

    def __init__(self, phrases: Sequence[Sequence[int]], limit: int, beam: int, alpha: float) -> None:
        self.limit, self.beam, self.alpha = limit, beam, alpha
        self.live = [_Partial([], 0.0, 0.0, Progress.start(phrases))]
        self.finished: list[_Partial] = []
        if (needed := self.live[0].progress.needed) > limit:
            raise ValueError(f"phrases={phrases} need {needed} tokens, but at most {limit} are allowed")

    def advance(self, continuations: Iterable[_Partial], eos: int) -> None:
        """Choose among all continuations: the banks take places in turn, those that miss the fewest tokens first."""
        banks: dict[int, list[_Partial]] = {}
        possible = (one for one in continuations if one.score > -INF and self._can_be_completed(one, eos))
        for one in sorted(possible, key=lambda one: one.score, reverse=True):
            banks.setdefault(one.progress.needed, []).append(one)
        turns = sorted((turn, needed) for needed, bank in banks.items() for turn in range(len(bank)))
        places = Counter(needed for _, needed in turns[: self.beam])
        chosen = [one for needed, count in places.items() for one in banks[needed][:count]]
        self.finished += [one for one in chosen if one.ids[-1] == eos]
        self.finished = sorted(self.finished, key=self._value, reverse=True)[: self.beam]
        going_on = {needed: [one for one in bank if one.ids[-1] != eos] for needed, bank in banks.items()}
        self.live = [one for needed, count in places.items() for one in going_on[needed][:count]]

    def _can_be_completed(self, one: _Partial, eos: int) -> bool:
        room = 0 if one.ids[-1] == eos else self.limit - len(one.ids)
        return one.progress.needed <= room

    def is_done(self, n_best: int) -> bool:
        """Tell whether no live hypothesis can enter the n best: log-probabilities are never positive."""
        if not self.live or len(self.finished) < n_best:
            return not self.live
        bound = max(one.score for one in self.live) / (self.limit + 1) ** self.alpha
        return self.beam == 1 or bound <= self._value(self.finished[n_best - 1])

    def results(self, n_best: int) -> list[Hypothesis]:
        """The best that ended, with the model's own scores."""
        best = self.finished[:n_best]
        return [Hypothesis(one.ids[:-1], one.own, one.own / len(one.ids) ** self.alpha) for one in best]

    def _value(self, one: _Partial) -> float:
        return one.score / len(one.ids) ** self.alpha


def constrained_beam_search(
    step: StepFn[S],
    state: S,
    *,
    num_sentences: int,
    phrases: Sequence[Sequence[Sequence[int]]],
    beam: int,
    bos: int,
    eos: int,
    max_lengths: Int[Tensor, " b"],
    alpha: float,
    device: torch.device | str,
    banned: Sequence[int] = (),
    n_best: int | None = None,
    rules: Sequence[Rule] = (),
) -> list[list[Hypothesis]]:
    """Find each sentence's best hypotheses that contain all its phrases, best first.

    The arguments are those of `beam_search`, which gives the same for a sentence without phrases; phrases are each
    sentence's own (ids). A beam greater than the number of their tokens has room for every stage of them; a smaller
    one makes hypotheses begin their phrases early.

    Raises:
        ValueError: not 1 <= n_best <= beam, alpha is negative, or a phrase is empty, has a token that is never
            produced, or does not fit within its sentence's limit (see `tokens_needed`).
    """
    n_best = beam if n_best is None else n_best
    _check(phrases, (eos, *banned), beam, n_best, alpha)
    limits = max_lengths.tolist()
    sentences = [_Sentence(*one, beam, alpha) for one in zip(phrases, limits, strict=True)]
    waiting = list(range(num_sentences))
    last, never = torch.full((num_sentences,), bos, device=device), tensor_on(device, banned)
    while waiting:
        logits, state = step(last, state)
        live = {number: sentences[number].live for number in waiting}
        own = next_log_probs(logits, never)
        log_probs = _apply(rules, own.clone(), live) if rules else own
        continuations = iter(_continuations(log_probs, own, list(chain(*live.values())), beam, eos))
        for number, rows in live.items():
            sentences[number].advance(chain(*islice(continuations, len(rows))), eos)
        left = [[] if sentences[number].is_done(n_best) else sentences[number].live for number in waiting]
        waiting = [number for number, hypotheses in zip(waiting, left, strict=True) if hypotheses]
        if waiting:
            last = tensor_on(device, [one.ids[-1] for one in chain(*left)])
            rows = tensor_on(device, [one.row for one in chain(*left)])
            state = state.reorder(rows, [len(hypotheses) for hypotheses in left])
    return [sentence.results(n_best) for sentence in sentences]


def _check(
    phrases: Sequence[Sequence[Sequence[int]]], never: Sequence[int], beam: int, n_best: int, alpha: float
) -> None:
    if not 1 <= n_best <= beam or alpha < 0:
        raise ValueError(f"beam={beam} n_best={n_best} alpha={alpha}: needs 1 <= n_best <= beam and alpha >= 0")
    if impossible := set(never).intersection(chain(*chain(*phrases))):
        raise ValueError(f"phrases={phrases} have tokens that are never produced: {sorted(impossible)}")


def _apply(
    rules: Sequence[Rule], log_probs: Float[Tensor, "n v"], live: dict[int, list[_Partial]]
) -> Float[Tensor, "n v"]:
    """Let rules change the log-probabilities of the live hypotheses, which are given by their sentence's number."""
    rows = [(number, one.ids) for number, hypotheses in live.items() for one in hypotheses]
    sentences, tokens = (tensor_on(log_probs.device, part) for part in zip(*rows, strict=True))
    for rule in rules:
        log_probs = rule(log_probs, Prefixes(tokens, sentences))
    return log_probs


def _continuations(
    log_probs: Float[Tensor, "n v"], own: Float[Tensor, "n v"], live: list[_Partial], beam: int, eos: int
) -> list[list[_Partial]]:
    """Continue every row by EOS, by each token of its missing phrases, and by the best k of all other tokens.

    log_probs are as rules changed them, own the model's.
    """
    special = [(row, token) for row, one in enumerate(live) for token in (eos, *one.progress.steps)]
    at = tensor_on(log_probs.device, special).unbind(1)
    most = beam + max(len(one.progress.steps) for one in live) + 1  # so that k are left without the special ones
    values, tokens = log_probs.topk(min(most, log_probs.shape[1]))
    of_special, own_special, *of_rows = _read(log_probs[at], own[at], tokens, values, own.gather(1, tokens))
    found: list[list[_Partial]] = [[] for _ in live]
    for (row, token), value, own_value in zip(special, of_special, own_special, strict=True):
        one = live[row]
        after = one.progress if token == eos else one.progress.steps[token]
        found[row].append(_Partial([*one.ids, token], one.score + value, one.own + own_value, after, row))
    for row, (one, *table) in enumerate(zip(live, *of_rows, strict=True)):
        best = ((int(token), *values) for token, *values in zip(*table, strict=True))
        others = (entry for entry in best if entry[0] != eos and entry[0] not in one.progress.steps)
        for token, value, own_value in islice(others, beam):
            partial = _Partial([*one.ids, token], one.score + value, one.own + own_value, one.progress.broken_off, row)
            found[row].append(partial)
    return found


def _read(*tensors: Tensor) -> list[Any]:
    """Bring several tensors' values to the host together: the one wait for the device a step."""
    parts = torch.cat([one.double().flatten() for one in tensors]).cpu().split([one.numel() for one in tensors])
    return [part.view(one.shape).tolist() for part, one in zip(parts, tensors, strict=True)]
