"""Greedy search over a step function: always the likeliest token; knows ids and an opaque state, never a model."""

from typing import Any

from seq2seq.device import on_host, tensor_on
from seq2seq.search.driver import INF, Continuation, Partial, Search, SearchTask
from seq2seq.search.hypothesis import Hypothesis
from seq2seq.search.step import NextTokens


class GreedySearch(Search):
    """Continues each sentence by its likeliest token until EOS: the same as `BeamSearch` with a beam of 1, but faster.

    The state is reordered only when finished sentences leave the batch.
    """

    def __init__(self, task: SearchTask) -> None:
        """Begin one search."""
        super().__init__(task)
        self._live = [Partial([], number) for number in self.waiting]  # one hypothesis of each waiting sentence
        self._found: list[list[Hypothesis]] = [[] for _ in self.waiting]

    def choose(self, following: NextTokens, state: Any) -> Continuation:
        """Choose each row's likeliest token."""
        best = following.best(1)
        last = best[1][:, 0]
        values, tokens, own_values = (table[:, 0].tolist() for table in on_host(*best))
        for one, token, value, own_value in zip(self._live, tokens, values, own_values, strict=True):
            one.ids.append(token)
            one.score, one.own = one.score + value, one.own + own_value
        counts = [int(token != self.task.eos) for token in tokens]
        if all(counts):
            return Continuation(None, last, counts)
        for number, one, count in zip(self.waiting, self._live, counts, strict=True):
            if not count and one.score > -INF:  # else rules left no token, or the scores are NaN
                self._found[number] = [one.hypothesis(self.alpha)]
        self._live = [one for one, count in zip(self._live, counts, strict=True) if count]
        rows = tensor_on(self.task.device, [row for row, count in enumerate(counts) if count])
        return Continuation(rows, last[rows], counts)

    def results(self) -> list[list[Hypothesis]]:
        """Return each sentence's hypothesis, or none where rules or NaN left none."""
        return self._found
