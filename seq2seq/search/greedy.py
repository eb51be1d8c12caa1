"""Greedy search over a step function: always the likeliest token; knows ids and an opaque state, never a model."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seq2seq.search.driver import INF, Continuation, Search, SearchTask
from seq2seq.search.step import Hypothesis


class GreedySearch(Search):
    """Continues each sentence by its likeliest token until EOS: `BeamSearch` with a beam of one, only faster.

    The state is reordered only when finished sentences leave the batch.
    """

    def __init__(self, task: SearchTask) -> None:
        """Begin one search."""
        super().__init__(task)
        self._ids: list[list[int]] = [[] for _ in task.max_lengths]
        self._found: list[list[Hypothesis]] = [[] for _ in task.max_lengths]
        # Sums of log-probabilities as rules changed them (-inf: rules left no token), and of the model's own.
        self._scores = self._own = torch.zeros(len(task.max_lengths), device=task.device)

    def choose(self, log_probs: Float[Tensor, "n v"], own: Float[Tensor, "n v"], state: Any) -> Continuation:
        """Choose each row's likeliest token."""
        best, last = log_probs.max(-1)
        self._scores, self._own = self._scores + best, self._own + own.gather(1, last[:, None])[:, 0]
        # The one time a step that the host waits for the device.
        chosen = torch.stack((last.double(), self._scores.double(), self._own.double()), 1).tolist()
        for number, (token, score, own_score) in zip(self.waiting, chosen, strict=True):
            self._ids[number].append(int(token))
            if token == self.task.eos and score > -INF:
                self._found[number] = [Hypothesis.ended(self._ids[number], own_score, self.alpha)]
        counts = [int(token != self.task.eos) for token, *_ in chosen]
        if all(counts):
            return Continuation(None, last, counts)
        rows = (last != self.task.eos).nonzero_static(size=sum(counts))[:, 0]
        self._scores, self._own = self._scores[rows], self._own[rows]
        return Continuation(rows, last[rows], counts)

    def results(self) -> list[list[Hypothesis]]:
        """Return each sentence's hypothesis, or none where rules or NaN left none."""
        return self._found
