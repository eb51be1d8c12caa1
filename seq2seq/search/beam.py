"""Beam search over a step function, all sentences at once; knows ids and an opaque state, never a model.

The value of a hypothesis is the sum of its log-probabilities / length^α (length counts EOS). Log-probabilities are
never positive, so the value of a live hypothesis of score s can become at most s / (longest length)^α. The search drops
a hypothesis exactly when this bound shows that it cannot enter its sentence's n best. Everything that grows from a
hopeless hypothesis is hopeless, too, and so is everything that scores lower. So dropping it frees a rank of the beam
and cannot change the n best. A sentence leaves the batch when it has no live hypothesis.
With early stopping, a sentence leaves as soon as k hypotheses have ended and no live hypothesis has a higher value at
its present length, as in Hugging Face's `generate`; hypotheses that become better by growing longer are missed.
"""

from operator import itemgetter

from seq2seq.search.driver import INF, NextTokens, Partial, Search, SearchTask
from seq2seq.search.types import Candidate

_SCORE = itemgetter(0)
_Continuation = tuple[float, int, Partial]  # score, token, the hypothesis that it continues


class BeamSearch(Search[Partial]):
    """Finds each sentence's best hypotheses, best first; a beam of 1 is greedy search."""

    def __init__(self, task: SearchTask) -> None:
        super().__init__(task, [[Partial([], number)] for number in range(len(task.max_lengths))])

    def advance(self, next_tokens: NextTokens) -> None:
        """Continue every live hypothesis by one token, and drop hypotheses that can no longer win."""
        # 2k candidates suffice: each of the k hypotheses has one continuation that ends, so k others are among them.
        count = 2 * self.settings.beam if self.settings.beam > 1 else 1  # greedy search keeps one hypothesis
        values, tokens = next_tokens.best(count)
        for number, live in self.live.items():
            continuations: list[_Continuation] = [
                (parent.score + value, token, parent)
                for parent in live
                for value, token in zip(values[parent.row], tokens[parent.row], strict=True)
                if value > -INF
            ]
            candidates = sorted(continuations, key=_SCORE, reverse=True)[:count]
            self._end(number, candidates)
            going_on = [candidate for candidate in candidates if candidate[1] != self.task.eos]
            kept = self._hopeful(number, going_on[: self.settings.beam])
            if self.task.on_candidates is not None:
                considered = [(_grown(candidate), candidate in kept) for candidate in candidates]
                self.task.on_candidates([Candidate(grown.ids, grown.score, is_live) for grown, is_live in considered])
            self.live[number] = [_grown(candidate) for candidate in kept]

    def _end(self, number: int, candidates: list[_Continuation]) -> None:
        """Collect the candidates that end, of the best k, as in Hugging Face's and CTranslate2's search."""
        ends = [candidate for candidate in candidates[: self.settings.beam] if candidate[1] == self.task.eos]
        if ends:
            best = [*self.ended[number], *map(_grown, ends)]
            best.sort(key=lambda hypothesis: hypothesis.value(self.alpha), reverse=True)
            self.ended[number] = best[: self.settings.beam]

    def _hopeful(self, number: int, candidates: list[_Continuation]) -> list[_Continuation]:
        """Return the candidates that can still enter the n best.

        Early stopping returns none if the best one has, at its present length, no higher value than the k-th best.
        """
        ended, n_best = self.ended[number], self.task.n_best
        if len(ended) >= n_best:  # score / longest^α > the n-th best value, solved for the score
            score_to_beat = ended[n_best - 1].value(self.alpha) * (self.task.max_lengths[number] + 1) ** self.alpha
            candidates = [candidate for candidate in candidates if candidate[0] > score_to_beat]
        if self.settings.early_stopping and len(ended) == self.settings.beam and candidates:
            has_won = candidates[0][0] / self.length**self.alpha <= ended[-1].value(self.alpha)
            return [] if has_won else candidates
        return candidates


def _grown(candidate: _Continuation) -> Partial:
    score, token, parent = candidate
    return Partial([*parent.ids, token], parent.row, score)
