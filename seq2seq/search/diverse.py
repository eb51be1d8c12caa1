"""Diverse beam search over a step function; knows ids and an opaque state, never a model.

The beam is divided into groups, searched side by side (Vijayakumar et al. 2018). At every position the groups choose
one after another, and λ is taken off a token for every hypothesis of an earlier group that has just got it (Hamming
diversity). Ending is never made dearer. A sentence's last group is dropped when it can no longer find anything better;
an earlier one goes on as long as a later one has to differ from it, so that stopping early changes no result.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.device import tensor_on
from seq2seq.search.rules import Prefixes, Rule
from seq2seq.search.step import Hypothesis, S, StepFn, force_end, next_log_probs

INF = float("inf")


@dataclass
class _Partial:
    """A hypothesis, ended or not."""

    ids: list[int]  # with EOS, if it has ended
    score: float  # sum of log-probabilities as rules changed them, less what diversity took off (nats)
    taken_off: float  # that (nats)
    own: float  # sum of the model's own log-probabilities (nats)
    row: int  # the step function's, that it continues


@dataclass
class _Group:
    """One group of one sentence: live hypotheses, best first, and the best that ended."""

    live: list[_Partial]
    finished: list[_Partial] = field(default_factory=list)


class _Sentence:
    """The groups of one sentence, `size` hypotheses each."""

    def __init__(self, number: int, limit: int, groups: int, size: int, alpha: float) -> None:
        self.number, self.limit, self.size, self.alpha = number, limit, size, alpha
        self.groups = [_Group([_Partial([], 0.0, 0.0, 0.0, number)]) for _ in range(groups)]

    @property
    def live(self) -> list[_Partial]:
        """The hypotheses of all groups."""
        return [one for group in self.groups for one in group.live]

    def choose(self, index: int, candidates: list[_Partial], eos: int) -> None:
        """Keep a group's best continuations; only those among its best `size` may end."""
        group = self.groups[index]
        candidates = sorted((one for one in candidates if one.score > -INF), key=lambda one: one.score, reverse=True)
        group.finished += [one for one in candidates[: self.size] if one.ids[-1] == eos]
        group.finished = sorted(group.finished, key=self._value, reverse=True)[: self.size]
        group.live = [one for one in candidates if one.ids[-1] != eos][: self.size]

    def give_up(self) -> None:
        """Drop the groups without hope behind which no other has any: log-probabilities are never positive."""
        for group in reversed(self.groups):
            bound = group.live[0].score / (self.limit + 1) ** self.alpha if group.live else -INF
            worst = self._value(group.finished[-1]) if len(group.finished) == self.size else -INF
            if bound > worst:
                break
            group.live = []

    def results(self) -> list[Hypothesis]:
        """What the groups found, each once, best first by scores without what diversity took off."""
        found: dict[tuple[int, ...], _Partial] = {}
        for one in (one for group in self.groups for one in group.finished):
            found.setdefault(tuple(one.ids), one)
        ranked = sorted(
            found.values(), key=lambda one: (one.score + one.taken_off) / len(one.ids) ** self.alpha, reverse=True
        )
        return [Hypothesis(one.ids[:-1], one.own, one.own / len(one.ids) ** self.alpha) for one in ranked]

    def _value(self, one: _Partial) -> float:
        return one.score / len(one.ids) ** self.alpha


def diverse_beam_search(
    step: StepFn[S],
    state: S,
    *,
    num_sentences: int,
    beam: int,
    groups: int,
    diversity: float,
    bos: int,
    eos: int,
    max_lengths: Int[Tensor, " b"],
    alpha: float,
    device: torch.device | str,
    banned: Sequence[int] = (),
    rules: Sequence[Rule] = (),
    n_best: int | None = None,
) -> list[list[Hypothesis]]:
    """Find each sentence's best hypotheses of all groups, best first; what several groups found comes once.

    The groups share the beam evenly; diversity is λ (nats). What it takes off matters within a group only: scores are
    the model's own. The other arguments are those of `beam_search`, which a single group is (but that a group of one
    hypothesis goes on after its first EOS).

    Raises:
        ValueError: beam is no multiple of groups, or a setting is out of range.
    """
    n_best = beam if n_best is None else n_best
    _check(beam, groups, diversity, n_best, alpha)
    limits = max_lengths.tolist()
    sentences = [_Sentence(*one, groups, beam // groups, alpha) for one in enumerate(limits)]
    waiting, rows = sentences, [(number, [], limit) for number, limit in enumerate(limits)]
    last, never = torch.full((num_sentences,), bos, device=device), tensor_on(device, banned)
    while waiting:
        logits, state = step(last, state)
        own = next_log_probs(logits, never)
        log_probs = _ruled(own.clone() if rules else own, rows, rules, eos)
        # A group's best continuations are among so many: of its own size, EOS, and those that others made dearer.
        likeliest = _likeliest(log_probs, own, beam + 1)
        for one in waiting:
            for index in range(groups):
                _advance(likeliest, one, index, diversity, eos)
            one.give_up()
        counts = [len(one.live) for one in waiting]
        waiting = [one for one in waiting if one.live]
        live = [one for sentence in waiting for one in sentence.live]
        rows = [(sentence.number, one.ids, sentence.limit) for sentence in waiting for one in sentence.live]
        if live:
            last = tensor_on(device, [one.ids[-1] for one in live])
            state = state.reorder(tensor_on(device, [one.row for one in live]), counts)
        for row, one in enumerate(live):
            one.row = row
    return [sentence.results()[:n_best] for sentence in sentences]


def _check(beam: int, groups: int, diversity: float, n_best: int, alpha: float) -> None:
    if groups < 1 or beam % groups or not 1 <= n_best <= beam or alpha < 0 or not 0 <= diversity < INF:
        raise ValueError(
            f"beam={beam} groups={groups} diversity={diversity} n_best={n_best} alpha={alpha}: needs beam a multiple "
            "of groups, 1 <= n_best <= beam, alpha >= 0 and 0 <= diversity < inf"
        )


def _ruled(
    log_probs: Float[Tensor, "n v"], rows: list[tuple[int, list[int], int]], rules: Sequence[Rule], eos: int
) -> Float[Tensor, "n v"]:
    """Apply rules and limits to rows, which are given as (sentence's number, ids, limit)."""
    if rules:
        numbers, ids, _ = zip(*rows, strict=True)
        tokens, sentences = (tensor_on(log_probs.device, part) for part in (ids, numbers))
        for rule in rules:
            log_probs = rule(log_probs, Prefixes(tokens, sentences))
    at_limit = [len(ids) == limit for _, ids, limit in rows]
    return force_end(log_probs, tensor_on(log_probs.device, at_limit, torch.bool), eos) if any(at_limit) else log_probs


def _likeliest(
    log_probs: Float[Tensor, "n v"], own: Float[Tensor, "n v"], count: int
) -> list[list[tuple[int, float, float]]]:
    """Read each row's best tokens, best first, with their log-probabilities and the model's own.

    This is the one time a step that the host waits for the device.
    """
    values, tokens = log_probs.topk(min(count, log_probs.shape[1]))
    rows = torch.stack((tokens.double(), values.double(), own.gather(1, tokens).double()), 2).tolist()
    return [[(int(token), value, own_value) for token, value, own_value in row] for row in rows]


def _advance(
    likeliest: list[list[tuple[int, float, float]]], sentence: _Sentence, index: int, diversity: float, eos: int
) -> None:
    """Continue one group of a sentence by one token, at a distance from the groups before."""
    said = Counter(one.ids[-1] for group in sentence.groups[:index] for one in group.live)  # by the groups before
    candidates = []
    for one in sentence.groups[index].live:
        for token, value, own_value in likeliest[one.row]:
            off = diversity * said[token]
            score, own = one.score + value - off, one.own + own_value
            candidates.append(_Partial([*one.ids, token], score, one.taken_off + off, own, one.row))
    sentence.choose(index, candidates, eos)
