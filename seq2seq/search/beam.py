"""Beam search over a step function, all sentences at once; knows ids and an opaque state, never a model.

A hypothesis is worth the sum of its log-probabilities / length^α (length counts EOS). Log-probabilities are never
positive, so a live hypothesis of score s can become worth at most s / (longest length)^α. The search drops a hypothesis
exactly when this bound shows that it cannot enter its sentence's n best. All live hypotheses are equally long, and a
continuation scores no higher than its beginning. So a hopeless hypothesis can push only hopeless ones out of the beam:
dropping it saves work and changes no result. A sentence leaves the batch when it has no live hypothesis. With early
stopping, a sentence leaves as soon as k hypotheses have ended and no live one is worth more at its present length, as
in Hugging Face's `generate`; hypotheses that become better by growing longer are missed.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from seq2seq.device import tensor_on
from seq2seq.search.driver import INF, Continuation, Search, SearchTask
from seq2seq.search.step import Hypothesis, Step

_LEAST_ATTENDED = torch.finfo(torch.float32).tiny  # what an attention of zero counts as; its logarithm is -87.3


@dataclass(frozen=True)
class Beams:
    """Up to k hypotheses a sentence, best first."""

    tokens: Int[Tensor, "b k t"]  # meaningful up to EOS
    scores: Float[Tensor, "b k"]  # sums of log-probabilities as rules changed them (nats); -inf marks an empty place
    values: Float[Tensor, "b k"]  # score / length^α and the penalty for coverage; of what has ended
    own: Float[Tensor, "b k"]  # sums of the model's own log-probabilities (nats)

    def of_sentences(self, index: Int[Tensor, " i"]) -> "Beams":
        """Keep the hypotheses of some sentences only."""
        return Beams(self.tokens[index], self.scores[index], self.values[index], self.own[index])


class BeamSearch(Search):
    """Finds each sentence's best hypotheses, best first.

    Attributes:
        tokens: the live hypotheses, (b, places, length); a sentence has one place at first, then up to k.
        scores: the live hypotheses' scores as rules changed them, best first; -inf in an empty place.
        own: the live hypotheses' scores by the model alone.
        rows: the step function's row of each place; any row for an empty place.
        attended: with a coverage penalty, each live hypothesis' sum of attention to every source token.
        finished: each sentence's k best hypotheses that have ended.
        longest: each sentence's greatest length, EOS counted, (b, 1); longest_power is longest^α.
        left: the numbers and hypotheses of the sentences that have left the batch.
    """

    def __init__(self, task: SearchTask) -> None:
        super().__init__(task)
        self.left: list[tuple[list[int], Beams]] = []
        self.longest = tensor_on(task.device, task.max_lengths)[:, None] + 1
        self.longest_power = self.longest**self.alpha
        nothing = torch.full((len(self.longest), self.settings.beam), -INF, device=task.device)
        self.finished = Beams(self.longest.new_empty(*nothing.shape, 0), nothing, nothing, nothing)
        self.tokens, self.scores = self.finished.tokens[:, :1], torch.zeros_like(nothing[:, :1])
        self.own = self.scores
        self.rows = torch.arange(len(self.longest), device=task.device)[:, None]
        self.attended = task.coverage.attended[:, None] if task.coverage else None

    def choose(self, log_probs: Float[Tensor, "n v"], own: Float[Tensor, "n v"], state: Any) -> Continuation:
        """Continue every live hypothesis by one token, and drop hypotheses without hope."""
        attention = self.task.coverage.last(state) if self.task.coverage else None
        candidates = self._advance(log_probs, own if self.task.rules else None, attention)
        hopeful = self._hopeful()
        if self.task.watcher is not None:
            self.task.watcher(Step(self.waiting, *candidates, hopeful))
        return self._keep(hopeful)

    def _advance(
        self,
        log_probs: Float[Tensor, "n v"],
        own: Float[Tensor, "n v"] | None,
        attention: Float[Tensor, "n s"] | None,
    ) -> tuple[Int[Tensor, "b c"], Float[Tensor, "b c"], Int[Tensor, "b c"], Int[Tensor, "b k"]]:
        """Continue every live hypothesis by one token; return candidates' tokens, scores and parents, and new places.

        log_probs are as rules changed them, own the model's; None: there are no rules.
        """
        last, scores, parents = candidates = self._expand(log_probs)
        own_scores = scores
        if own is not None:
            own_scores = self.own.gather(1, parents) + own[self.rows.gather(1, parents), last]
        has_ended = last == self.task.eos
        live_scores, order = scores.masked_fill(has_ended, -INF).sort(dim=-1, descending=True, stable=True)
        order, penalties = order[:, : self.settings.beam], None
        if self.task.coverage and self.attended is not None and attention is not None:
            attended = _pick(self.attended + attention[self.rows], parents)
            penalties = self.task.coverage.weight * attended.clamp(_LEAST_ATTENDED, 1).log().sum(-1)
            self.attended = _pick(attended, order)
        # Only those among the best k may end, as in the searches of Hugging Face and CTranslate2.
        # On a GPU the host would wait for the answer, which costs more than what it may save.
        if scores.device.type != "cpu" or bool(has_ended[:, : self.settings.beam].any()):
            ended_scores = scores.masked_fill(~has_ended, -INF)[:, : self.settings.beam]
            values = ended_scores / self.length**self.alpha
            values = values if penalties is None else values + penalties[:, : self.settings.beam]
            ended = self._continued(parents[:, : self.settings.beam], last[:, : self.settings.beam])
            beams = Beams(ended, ended_scores, values, own_scores[:, : self.settings.beam])
            self.finished = _best(self.settings.beam, self.finished, beams, self.task.eos)
        parents, self.scores = parents.gather(1, order), live_scores[:, : self.settings.beam]
        self.own = self.scores if own is None else own_scores.gather(1, order)
        self.tokens, self.rows = self._continued(parents, last.gather(1, order)), self.rows.gather(1, parents)
        return *candidates, order

    def _continued(self, parents: Int[Tensor, "b c"], last: Int[Tensor, "b c"]) -> Int[Tensor, "b c t"]:
        return torch.cat((_pick(self.tokens, parents), last[:, :, None]), 2)

    def _expand(
        self, log_probs: Float[Tensor, "n v"]
    ) -> tuple[Int[Tensor, "b c"], Float[Tensor, "b c"], Int[Tensor, "b c"]]:
        """Find the 2k best continuations of every sentence: last tokens, scores, and the place that each continues.

        2k suffice: each of the k hypotheses ends in one way only, so k that live are always among them.
        """
        count = 2 * self.settings.beam if self.settings.beam > 1 else 1  # greedy search keeps one hypothesis
        size = math.gcd(log_probs.shape[1], 64)  # the best c tokens lie in the c blocks of the greatest maxima
        blocks = log_probs.unflatten(1, (-1, size))
        per_row = blocks.shape[1]
        maxima = (blocks.amax(-1)[self.rows] + self.scores[:, :, None]).flatten(1)
        chosen = maxima.topk(min(count, maxima.shape[1])).indices  # (b, c)
        parents = chosen // per_row
        contents = blocks.flatten(0, 1)[self.rows.gather(1, parents) * per_row + chosen % per_row]  # (b, c, size)
        scores = (contents + self.scores.gather(1, parents)[:, :, None]).flatten(1)
        scores, order = scores.topk(min(count, scores.shape[1]))
        chosen = chosen.gather(1, order // size)
        return chosen % per_row * size + order % size, scores, chosen // per_row

    def _hopeful(self) -> Bool[Tensor, "b k"]:
        """Tell which live hypotheses can still enter the n best; with early stopping, at their present length."""
        hopeful = self.scores / self.longest_power > self.finished.values[:, self.task.n_best - 1 : self.task.n_best]
        if self.settings.early_stopping:
            best = self.scores[:, :1]
            hopeful &= best / self.length**self.alpha > self.finished.values[:, -1:]
        return hopeful

    def _keep(self, hopeful: Bool[Tensor, "b k"]) -> Continuation:
        """Keep the hopeful hypotheses, and drop sentences without any."""
        counts: list[int] = hopeful.sum(1).tolist()  # the one time a step that the host waits for the device
        places = hopeful.flatten()
        taken = places.nonzero_static(size=sum(counts)).squeeze(1)
        rows, last = self.rows.flatten()[taken], self.tokens[:, :, -1].flatten()[taken]
        self.scores = self.scores.masked_fill(~hopeful, -INF)
        self.rows = (places.cumsum(0) - 1).clamp_(min=0).view_as(hopeful)
        if not all(counts):
            self._drop_finished(hopeful.any(1), counts)
        return Continuation(rows, last, counts)

    def _drop_finished(self, stays: Bool[Tensor, " b"], counts: list[int]) -> None:
        """Move the results of sentences without live hypotheses from the tables to `left`."""
        numbers = [number for number, count in zip(self.waiting, counts, strict=True) if not count]
        out = (~stays).nonzero_static(size=len(numbers))[:, 0]
        index = stays.nonzero_static(size=len(counts) - len(numbers))[:, 0]
        self.left.append((numbers, self.finished.of_sentences(out)))
        self.finished = self.finished.of_sentences(index)
        self.tokens, self.scores, self.rows = self.tokens[index], self.scores[index], self.rows[index]
        self.own, self.longest = self.own[index], self.longest[index]
        self.longest_power = self.longest**self.alpha
        self.attended = None if self.attended is None else self.attended[index]

    def results(self) -> list[list[Hypothesis]]:
        """Bring the results to the host, in the order that the sentences came in."""
        alpha, n_best = self.alpha, self.task.n_best
        results: list[list[Hypothesis]] = [[] for _ in self.task.max_lengths]
        for numbers, beams in self.left:
            tables = (table[:, :n_best].tolist() for table in (beams.tokens, beams.scores, beams.values, beams.own))
            for number, *of_sentence in zip(numbers, *tables, strict=True):
                for ids, score, value, own in zip(*of_sentence, strict=True):
                    if score > -INF:
                        length = ids.index(self.task.eos) + 1
                        penalty = value - score / length**alpha if self.task.coverage else 0.0
                        results[number].append(Hypothesis(ids[: length - 1], own, own / length**alpha + penalty))
        return results


def _pick(tokens: Shaped[Tensor, "b k t"], index: Int[Tensor, "b c"]) -> Shaped[Tensor, "b c t"]:
    """Choose what belongs to hypotheses by their place in the beam."""
    return tokens.gather(1, index[:, :, None].expand(-1, -1, tokens.shape[2]))


def _best(count: int, first: Beams, second: Beams, eos: int) -> Beams:
    """Choose the most valuable of two sets; where values are equal, the first set's go before the second's."""
    values, order = torch.cat((first.values, second.values), 1).sort(dim=-1, descending=True, stable=True)
    values, order = values[:, :count], order[:, :count]
    tokens = F.pad(first.tokens, (0, second.tokens.shape[2] - first.tokens.shape[2]), value=eos)
    scores = torch.cat((first.scores, second.scores), 1).gather(1, order)
    own = torch.cat((first.own, second.own), 1).gather(1, order)
    return Beams(_pick(torch.cat((tokens, second.tokens), 1), order), scores, values, own)
