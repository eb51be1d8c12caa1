"""Beam search over a step function, all sentences at once; knows ids and an opaque state, never a model.

The value of a hypothesis is the sum of its log-probabilities / length^α (length counts EOS). Log-probabilities are
never positive, so the value of a live hypothesis of score s can become at most s / (longest length)^α. The search drops
a hypothesis exactly when this bound shows that it cannot enter its sentence's n best. All live hypotheses are equally
long, and a continuation scores no higher than its beginning. So a hopeless hypothesis can push only hopeless ones out
of the beam: dropping it saves work and changes no result. A sentence leaves the batch when it has no live hypothesis.
With early stopping, a sentence leaves as soon as k hypotheses have ended and no live hypothesis has a higher value at
its present length, as in Hugging Face's `generate`; hypotheses that become better by growing longer are missed.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from seq2seq.device import on_host, tensor_on
from seq2seq.search.driver import INF, Continuation, Search, SearchTask
from seq2seq.search.hypothesis import Hypothesis
from seq2seq.search.step import NextTokens, Step

_LEAST_ATTENDED = 2.0**-126  # replaces a sum of attention of zero; its logarithm is -87.3


@dataclass(frozen=True)
class _Candidates:
    """The best continuations of every sentence, best first."""

    tokens: Int[np.ndarray, "b c"]
    scores: Float[np.ndarray, "b c"]  # as rules changed them (nats)
    parents: Int[np.ndarray, "b c"]  # place of the hypothesis that each continues
    own: Float[np.ndarray, "b c"]  # scores by the model alone (nats)
    attended: Float[np.ndarray, "b c s"] | None  # with a coverage penalty, sums of attention


class BeamSearch(Search):
    """Finds each sentence's best hypotheses, best first.

    The device finds the best tokens of every row; the tables of hypotheses are small, and are kept on the host. A
    sentence has one place for live hypotheses at first, then up to k.

    Attributes:
        tokens: the live hypotheses, (b, places, length).
        scores: the live hypotheses' scores as rules changed them, best first (nats); -inf in an empty place.
        own: the live hypotheses' scores by the model alone (nats).
        rows: the step function's row of each place; any row for an empty place.
        attended: with a coverage penalty, each live hypothesis' sum of attention to every source token.
        longest_power: each sentence's greatest length, EOS counted, to the power of α, (b, 1).
        to_beat: values of each sentence's n-th and k-th best hypothesis that has ended, (b, 2); -inf: fewer have.
        ended: each sentence's k best hypotheses that have ended, with their values, best first; of all sentences.
    """

    def __init__(self, task: SearchTask) -> None:
        super().__init__(task)
        sentences = len(self.waiting)
        self.tokens = np.empty((sentences, 1, 0), np.int64)
        self.scores = self.own = np.zeros((sentences, 1))
        self.rows = np.arange(sentences)[:, None]
        self.attended = on_host(task.coverage.attended)[0][:, None] if task.coverage else None
        self.longest_power = (np.array(task.max_lengths)[:, None] + 1.0) ** self.alpha
        self.to_beat = np.full((sentences, 2), -INF)
        self.ended: list[list[tuple[float, Hypothesis]]] = [[] for _ in self.waiting]

    def choose(self, following: NextTokens, state: Any) -> Continuation:
        """Continue every live hypothesis by one token, and drop hypotheses that can no longer win."""
        # 2k candidates suffice: each of the k hypotheses has one continuation that ends, so k others are among them.
        count = 2 * self.settings.beam if self.settings.beam > 1 else 1  # greedy search keeps one hypothesis
        attention = (self.task.coverage.last(state),) if self.task.coverage else ()
        values, tokens, own_values, *attention = on_host(*following.best(count), *attention)
        is_live = self.scores[:, :, None] > -INF
        scores = np.where(is_live, self.scores[:, :, None] + values[self.rows], -INF).reshape(len(self.rows), -1)
        scores[np.isnan(scores).any(1)] = -INF  # a damaged model: these sentences find nothing more
        order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        parents = order // values.shape[1]
        candidates = _Candidates(
            _pick(tokens[self.rows].reshape(scores.shape), order),
            _pick(scores, order),
            parents,
            _pick((self.own[:, :, None] + own_values[self.rows]).reshape(scores.shape), order),
            None if self.attended is None else _pick(self.attended + attention[0][self.rows], parents),
        )
        self._end(candidates)
        places = self._continue(candidates)
        hopeful = self._hopeful()
        if self.task.watcher is not None:
            shown = candidates.tokens, candidates.scores, candidates.parents
            self.task.watcher(Step(self.waiting, *shown, places, hopeful))
        return self._keep(hopeful)

    def _end(self, candidates: _Candidates) -> None:
        """Collect the candidates that end, of each sentence's best k, as in Hugging Face's and CTranslate2's search."""
        beam, coverage = self.settings.beam, self.task.coverage
        has_ended = (candidates.tokens[:, :beam] == self.task.eos) & (candidates.scores[:, :beam] > -INF)
        for row, place in np.argwhere(has_ended).tolist():
            ids, number = self.tokens[row, candidates.parents[row, place]].tolist(), self.waiting[row]
            penalty = 0.0
            if coverage and candidates.attended is not None:
                shares = candidates.attended[row, place].clip(_LEAST_ATTENDED, 1)
                penalty = coverage.weight * float(np.log(shares).sum())
            power, own = self.length**self.alpha, float(candidates.own[row, place])
            value = float(candidates.scores[row, place]) / power + penalty
            ended = self.ended[number]
            ended.append((value, Hypothesis(ids, own, own / power + penalty)))
            ended.sort(key=lambda one: one[0], reverse=True)
            del ended[beam:]
            for column, wanted in enumerate((self.task.n_best, beam)):
                self.to_beat[row, column] = ended[wanted - 1][0] if len(ended) >= wanted else -INF

    def _continue(self, candidates: _Candidates) -> Int[np.ndarray, "b k"]:
        """Make the best k candidates that do not end the live hypotheses; return their indices, best first."""
        has_ended = candidates.tokens == self.task.eos
        places = np.argsort(has_ended, axis=1, kind="stable")[:, : self.settings.beam]
        self.scores = _pick(np.where(has_ended, -INF, candidates.scores), places)
        self.own, parents = _pick(candidates.own, places), _pick(candidates.parents, places)
        self.attended = None if candidates.attended is None else _pick(candidates.attended, places)
        last = _pick(candidates.tokens, places)
        self.tokens = np.concatenate((_pick(self.tokens, parents), last[:, :, None]), 2)
        self.rows = _pick(self.rows, parents)
        return places

    def _hopeful(self) -> Bool[np.ndarray, "b k"]:
        """Return which live hypotheses can still enter the n best.

        Early stopping excludes all of a sentence if none has, at its present length, a higher value than the k-th best.
        """
        hopeful = self.scores / self.longest_power > self.to_beat[:, :1]
        if self.settings.early_stopping:
            hopeful &= self.scores[:, :1] / self.length**self.alpha > self.to_beat[:, 1:]
        return hopeful

    def _keep(self, hopeful: Bool[np.ndarray, "b k"]) -> Continuation:
        """Keep the hopeful hypotheses, and the sentences that have any."""
        rows, last = tensor_on(self.task.device, np.stack((self.rows[hopeful], self.tokens[:, :, -1][hopeful])))
        counts = hopeful.sum(1)
        self.scores = np.where(hopeful, self.scores, -INF)
        self.rows = (hopeful.cumsum() - 1).clip(0).reshape(hopeful.shape)
        if not counts.all():
            stays = counts > 0
            self.tokens, self.scores, self.own = self.tokens[stays], self.scores[stays], self.own[stays]
            self.rows, self.longest_power = self.rows[stays], self.longest_power[stays]
            self.to_beat = self.to_beat[stays]
            self.attended = None if self.attended is None else self.attended[stays]
        return Continuation(rows, last, counts.tolist())

    def results(self) -> list[list[Hypothesis]]:
        """Return each sentence's hypotheses, in the order that the sentences came in."""
        return [[hypothesis for _, hypothesis in best[: self.task.n_best]] for best in self.ended]


def _pick(table: Shaped[np.ndarray, "b k ..."], index: Int[np.ndarray, "b c"]) -> Shaped[np.ndarray, "b c ..."]:
    """Return the entries of table at each row's places."""
    return table[np.arange(len(table))[:, None], index]
