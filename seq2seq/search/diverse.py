"""Diverse beam search over a step function; knows ids and an opaque state, never a model.

The beam is divided into groups, searched side by side (Vijayakumar et al. 2018). At every position the groups choose
one after another, and a token's score is reduced by λ for every hypothesis of an earlier group that has chosen the same
token at this position (Hamming diversity). EOS is never penalised. A sentence's last group is dropped when it can no
longer find anything better. An earlier group goes on as long as a later group has to differ from it, so that dropping
groups changes no result.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from seq2seq.device import on_host
from seq2seq.search.driver import INF, Continuation, Partial, Search, SearchTask, continue_all
from seq2seq.search.hypothesis import Hypothesis
from seq2seq.search.step import NextTokens


@dataclass
class _Partial(Partial):
    """A hypothesis whose score contains diversity penalties."""

    taken_off: float = 0.0  # sum of the diversity penalties (nats)


@dataclass
class _Group:
    """One group of one sentence: live hypotheses, best first, and the best finished hypotheses."""

    live: list[_Partial]
    finished: list[_Partial] = field(default_factory=list)


class DiverseBeamSearch(Search):
    """Finds each sentence's best hypotheses of all groups, best first, without duplicates.

    A single group works like `BeamSearch`, except that a group of one hypothesis goes on after its first EOS.
    """

    def __init__(self, task: SearchTask) -> None:
        super().__init__(task)
        self._size = self.settings.beam // self.settings.groups  # hypotheses of a group
        groups = range(self.settings.groups)
        self._groups = [[_Group([_Partial([], number)]) for _ in groups] for number in self.waiting]

    def choose(self, following: NextTokens, state: Any) -> Continuation:
        """Continue every sentence, group after group."""
        # This many tokens contain a group's best continuations: its size, EOS, and tokens that other groups penalise.
        likeliest = _read(following.best(self.settings.beam + 1))
        for number in self.waiting:
            said: Counter[int] = Counter()  # last tokens of the earlier groups
            for group in self._groups[number]:
                self._advance(group, likeliest, said)
                said.update(one.ids[-1] for one in group.live)
            self._give_up(number)
        live = [[one for group in self._groups[number] for one in group.live] for number in self.waiting]
        return continue_all(live, self.task.device)

    def _advance(self, group: _Group, likeliest: list[list[tuple[int, float, float]]], said: Counter[int]) -> None:
        """Keep a group's best continuations; only those among its best `size` may end."""
        candidates = []
        for one in group.live:
            for token, value, own in likeliest[one.row]:
                off = self.settings.diversity * said[token]
                score = one.score + value - off
                if score > -INF:
                    candidates.append(_Partial([*one.ids, token], one.row, score, one.own + own, one.taken_off + off))
        candidates.sort(key=lambda one: one.score, reverse=True)
        group.finished += [one for one in candidates[: self._size] if one.ids[-1] == self.task.eos]
        group.finished.sort(key=lambda one: one.value(self.alpha), reverse=True)
        del group.finished[self._size :]
        group.live = [one for one in candidates if one.ids[-1] != self.task.eos][: self._size]

    def _give_up(self, number: int) -> None:
        """Drop the last groups that can no longer find anything better: log-probabilities are never positive."""
        alpha, longest = self.alpha, self.task.max_lengths[number] + 1
        for group in reversed(self._groups[number]):
            bound = group.live[0].score / longest**alpha if group.live else -INF
            worst = group.finished[-1].value(alpha) if len(group.finished) == self._size else -INF
            if bound > worst:
                break
            group.live = []

    def results(self) -> list[list[Hypothesis]]:
        """Return the hypotheses of all groups, ranked by scores without the diversity penalty."""
        return [self._best(groups)[: self.task.n_best] for groups in self._groups]

    def _best(self, groups: list[_Group]) -> list[Hypothesis]:
        found: dict[tuple[int, ...], _Partial] = {}
        for one in (one for group in groups for one in group.finished):
            found.setdefault(tuple(one.ids), one)
        alpha = self.alpha
        ranked = sorted(
            found.values(), key=lambda one: (one.score + one.taken_off) / len(one.ids) ** alpha, reverse=True
        )
        return [one.hypothesis(alpha) for one in ranked]


def _read(best: tuple[Tensor, Tensor, Tensor]) -> list[list[tuple[int, float, float]]]:
    """Return each row's best tokens, with their log-probabilities and the model's own log-probabilities."""
    values, tokens, own = (table.tolist() for table in on_host(*best))
    return [list(zip(*row, strict=True)) for row in zip(tokens, values, own, strict=True)]
