"""Diverse beam search (Vijayakumar et al. 2018): groups choose in turn; knows ids and an opaque state, never a model.

A token's score is reduced by λ for every hypothesis of an earlier group that has chosen it at the same position.
"""

from collections import Counter
from dataclasses import dataclass

from seq2seq.interface import Hypothesis
from seq2seq.search.driver import Partial, Search, SearchTask
from seq2seq.search.next_tokens import INF, NextTokens


@dataclass(slots=True)
class _Partial(Partial):
    group: int = 0
    penalty: float = 0.0  # sum of the diversity penalties in the score (nats)


class DiverseBeamSearch(Search[_Partial]):
    """Finds each sentence's best hypotheses of all groups, ranked without the penalty and without duplicates."""

    def __init__(self, task: SearchTask) -> None:
        groups = range(task.settings.groups)
        numbers = range(len(task.max_lengths))
        super().__init__(task, [[_Partial([], number, group=group) for group in groups] for number in numbers])
        self._size = self.settings.beam // self.settings.groups
        self._ended: list[list[list[_Partial]]] = [[[] for _ in groups] for _ in self.live]

    def advance(self, next_tokens: NextTokens) -> None:
        """Continue every sentence, group after group; a sentence ends when no group can find anything better."""
        best = next_tokens.best(self.settings.beam + 1)  # a group's size, EOS, and tokens that other groups penalise
        for number, live in self.live.items():
            chosen: list[_Partial] = []
            for group, ended in enumerate(self._ended[number]):
                taken, candidates = Counter(one.ids[-1] for one in chosen), list[_Partial]()
                for one in (one for one in live if one.group == group):
                    for value, token, model_value in zip(*(table[one.row] for table in best), strict=True):
                        off = self.settings.diversity * taken[token]
                        scores = one.score + value - off, one.model_score + model_value
                        candidates.append(_Partial([*one.ids, token], one.row, *scores, group, one.penalty + off))
                candidates = sorted((c for c in candidates if c.score > -INF), key=lambda c: c.score, reverse=True)
                ended += [one for one in candidates[: self._size] if one.ids[-1] == self.task.eos]
                ended[:] = sorted(ended, key=lambda one: one.value(self.alpha), reverse=True)[: self._size]
                chosen += [one for one in candidates if one.ids[-1] != self.task.eos][: self._size]
            self.live[number] = chosen if any(self._is_hopeful(number, one) for one in chosen) else []

    def _is_hopeful(self, number: int, one: _Partial) -> bool:
        """Return whether a hypothesis can still enter its group's best: log-probabilities are never positive."""
        ended, power = self._ended[number][one.group], (self.task.max_lengths[number] + 1) ** self.alpha
        return len(ended) < self._size or one.score / power > ended[-1].value(self.alpha)

    def results(self) -> list[list[Hypothesis]]:
        """Return the hypotheses of all groups, ranked by scores without the diversity penalty."""
        results: list[list[Hypothesis]] = []
        for groups in self._ended:
            unlike = {tuple(one.ids): one for group in reversed(groups) for one in reversed(group)}
            values = {ids: (one.score + one.penalty) / len(ids) ** self.alpha for ids, one in unlike.items()}
            ranked = sorted(unlike, key=values.__getitem__, reverse=True)[: self.task.n_best]
            results.append([unlike[ids].hypothesis(self.alpha) for ids in ranked])
        return results
