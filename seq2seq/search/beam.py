"""Beam search over a step function, all sentences at once; knows ids and an opaque state, never a model.

A hypothesis is worth the sum of its log-probabilities / length^α (length counts EOS). Log-probabilities are never
positive, so nothing that a live hypothesis of score s becomes is worth more than s / (longest length)^α. A hypothesis
is given up exactly when that bound shows that it can no longer enter its sentence's n best. Live ones are equally long
and descendants score no higher, so all that a hopeless one could push out of the beam is as hopeless: giving it up
changes no result, only the work. A sentence without hope leaves the batch. With early stopping, one
leaves as soon as k have ended and no live hypothesis is worth more at its present length, as in Hugging Face's
`generate`: what would have become better by growing longer is missed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from seq2seq.device import tensor_on
from seq2seq.search.rules import Prefixes, Rule
from seq2seq.search.step import Hypothesis, S, Step, StepFn, force_end, next_log_probs

INF = float("inf")
_LEAST_ATTENDED = torch.finfo(torch.float32).tiny  # what an attention of zero counts as; its logarithm is -87.3


@dataclass(frozen=True)
class Coverage:
    """Penalty β Σᵢ log(min(Σⱼ aⱼᵢ, 1)) for source tokens i that a translation attended to too little.

    aⱼᵢ is how much target token j attended to source token i (Wu et al. 2016, eq. 14); it is added to the value of a
    hypothesis that ended, EOS's attention included. A sum of exactly zero costs β · 87.3, not infinitely much.
    """

    weight: float  # β, not negative
    attended: Float[Tensor, "b s"]  # what counts as attended to before the first token: 0; 1 for padding
    last: Callable[[Any], Float[Tensor, "n s"]]  # from a state, how the rows' last tokens attended


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


def beam_search(
    step: StepFn[S],
    state: S,
    *,
    num_sentences: int,
    beam: int,
    bos: int,
    eos: int,
    max_lengths: Int[Tensor, " b"],
    alpha: float,
    device: torch.device | str,
    banned: Sequence[int] = (),
    rules: Sequence[Rule] = (),
    coverage: Coverage | None = None,
    n_best: int | None = None,
    early_stopping: bool = False,
    watcher: Callable[[Step], object] | None = None,
) -> list[list[Hypothesis]]:
    """Find each sentence's best hypotheses, best first; fewer than asked for where fewer exist.

    Hypotheses are ranked by log-probabilities as rules change them; their scores are the model's own.

    Args:
        step: gives the logits of the next token; its first call has one row a sentence.
        state: what step remembers; the search only reorders it.
        num_sentences: sentences in the batch.
        beam: live hypotheses a sentence (k); 1 is greedy search, which ends at its first EOS.
        bos: token that every hypothesis continues.
        eos: token that ends a hypothesis; forced after max_lengths others.
        max_lengths: most tokens of each sentence's hypotheses, EOS not counted; on the host.
        alpha: exponent α of the length.
        device: where step's tensors live.
        banned: tokens never produced.
        rules: what else changes the log-probabilities, in turn.
        coverage: penalty for source tokens that a hypothesis attended to too little; None: none.
        n_best: hypotheses wanted (None: beam); the search goes on until they cannot change.
        early_stopping: whether it ends before: when k have ended and no live one is worth more at its present length.
        watcher: is shown every step, and changes nothing.

    Raises:
        ValueError: not 1 <= n_best <= beam, or alpha is negative.
    """
    n_best = beam if n_best is None else n_best
    _check(beam, n_best, alpha)
    batch = _Batch(max_lengths.tolist(), beam, eos, alpha, torch.device(device), coverage)
    last, never = torch.full((num_sentences,), bos, device=device), tensor_on(device, banned)
    while batch.waiting:
        logits, state = step(last, state)
        log_probs = next_log_probs(logits, never)
        own = log_probs.clone() if rules else None
        for rule in rules:
            log_probs = rule(log_probs, batch.prefixes())
        sentences, attention = batch.waiting, coverage.last(state) if coverage else None
        candidates = batch.advance(log_probs, own, attention)
        rows, last, counts = batch.give_up(n_best, early_stopping)
        if watcher is not None:
            watcher(Step(sentences, *candidates, batch.hopeful))
        if batch.waiting:
            state = state.reorder(rows, counts)
    return batch.hypotheses(num_sentences, n_best)


def _check(beam: int, n_best: int, alpha: float) -> None:
    if not 1 <= n_best <= beam or alpha < 0:
        raise ValueError(f"beam={beam} n_best={n_best} alpha={alpha}: needs 1 <= n_best <= beam and alpha >= 0")


class _Batch:
    """The sentences still being searched, and the results of those that left.

    Attributes:
        tokens: of the live hypotheses, in up to k places a sentence; one at first, of length `position`.
        scores: of the live hypotheses as rules changed them, best first; -inf in an empty place.
        own: of the live hypotheses, the model's own scores.
        rows: the step function's row of the hypothesis in each place; any, where there is none.
        taken: which of all places have a row, in the rows' order.
        attended: with a penalty for coverage, each live hypothesis' sum of attention to every source token.
        finished: the k best that ended so far.
        position: tokens that every live hypothesis has.
        waiting: the number of each sentence still here; on the device `numbers`.
        hopeful: which places the last `give_up` left, those of sentences that it sent away included.
    """

    def __init__(
        self,
        max_lengths: list[int],
        beam: int,
        eos: int,
        alpha: float,
        device: torch.device,
        coverage: Coverage | None = None,
    ) -> None:
        self.beam, self.eos, self.alpha, self.coverage, self.position = beam, eos, alpha, coverage, 0
        self.shortest = min(max_lengths, default=0)
        self.waiting = list(range(len(max_lengths)))
        self.left: list[tuple[list[int], Beams]] = []
        self.longest = tensor_on(device, max_lengths)[:, None] + 1  # (b, 1), EOS counted
        nothing = torch.full((len(max_lengths), beam), -INF, device=device)
        self.finished = Beams(self.longest.new_empty(*nothing.shape, 0), nothing, nothing, nothing)
        self.tokens, self.scores = self.finished.tokens[:, :1], torch.zeros_like(nothing[:, :1])
        self.own = self.scores
        self.taken = self.numbers = torch.arange(len(max_lengths), device=device)
        self.rows = self.taken[:, None]
        self.hopeful = self.scores > -INF
        self.attended = coverage.attended[:, None] if coverage else None

    def advance(
        self,
        log_probs: Float[Tensor, "n v"],
        own: Float[Tensor, "n v"] | None = None,
        attention: Float[Tensor, "n s"] | None = None,
    ) -> tuple[Int[Tensor, "b c"], Float[Tensor, "b c"], Int[Tensor, "b c"], Int[Tensor, "b k"]]:
        """Continue every live hypothesis by one token; gives candidates' tokens, scores and parents, and new places.

        log_probs are as rules changed them, own the model's; None: there are no rules.
        """
        if self.position >= self.shortest:
            at_limit = (self.longest == self.position + 1).expand_as(self.scores)
            log_probs = force_end(log_probs, at_limit.flatten()[self.taken], self.eos)
        last, scores, parents = candidates = self._expand(log_probs)
        own_scores = scores
        if own is not None:
            own_scores = self.own.gather(1, parents) + own[self.rows.gather(1, parents), last]
        self.position += 1
        has_ended = last == self.eos
        live_scores, order = scores.masked_fill(has_ended, -INF).sort(dim=-1, descending=True, stable=True)
        order, penalties = order[:, : self.beam], None
        if self.coverage and self.attended is not None and attention is not None:
            attended = _pick(self.attended + attention[self.rows], parents)
            penalties = self.coverage.weight * attended.clamp(_LEAST_ATTENDED, 1).log().sum(-1)
            self.attended = _pick(attended, order)
        # Only those among the best k may end, as in the searches of Hugging Face and CTranslate2.
        # On a GPU the host would wait for the answer, which costs more than what it may save.
        if scores.device.type != "cpu" or bool(has_ended[:, : self.beam].any()):
            ended_scores = scores.masked_fill(~has_ended, -INF)[:, : self.beam]
            values = ended_scores / self.position**self.alpha
            values = values if penalties is None else values + penalties[:, : self.beam]
            ended = self._continued(parents[:, : self.beam], last[:, : self.beam])
            beams = Beams(ended, ended_scores, values, own_scores[:, : self.beam])
            self.finished = _best(self.beam, self.finished, beams, self.eos)
        parents, self.scores = parents.gather(1, order), live_scores[:, : self.beam]
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
        count = 2 * self.beam if self.beam > 1 else 1  # beside the one hypothesis of greedy search lives no other
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

    def prefixes(self) -> Prefixes:
        """What the step function's rows have produced, for rules."""
        numbers = self.numbers[:, None].expand_as(self.scores)
        return Prefixes(self.tokens.flatten(0, 1)[self.taken], numbers.flatten()[self.taken])

    def give_up(self, n_best: int, early: bool = False) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"], list[int]]:
        """Drop hypotheses without hope, and sentences without hypotheses; early, also those that others are ahead of.

        Returns:
            The rows that the others continue, their last tokens, and how many of them each sentence has that was here.
        """
        hopeful = self.scores / self.longest**self.alpha > self.finished.values[:, n_best - 1 : n_best]
        if early:
            best = self.scores[:, :1]  # live one
            hopeful &= best / self.position**self.alpha > self.finished.values[:, -1:]
        self.hopeful = hopeful
        counts: list[int] = hopeful.sum(1).tolist()  # the one time a step that the host waits for the device
        if not all(counts):
            out, stay = ([row for row, count in enumerate(counts) if bool(count) == here] for here in (False, True))
            stays = hopeful.any(1)
            out_index = (~stays).nonzero_static(size=len(out))[:, 0]
            index = stays.nonzero_static(size=len(stay))[:, 0]
            self.left.append(([self.waiting[row] for row in out], self.finished.of_sentences(out_index)))
            self.waiting, self.finished = [self.waiting[row] for row in stay], self.finished.of_sentences(index)
            self.tokens, self.scores, self.rows = self.tokens[index], self.scores[index], self.rows[index]
            self.longest, self.numbers, hopeful = self.longest[index], self.numbers[index], hopeful[index]
            self.own = self.own[index]
            self.attended = None if self.attended is None else self.attended[index]
        places = hopeful.flatten()
        self.taken = places.nonzero_static(size=sum(counts)).squeeze(1)
        rows, last = self.rows.flatten()[self.taken], self.tokens[:, :, -1].flatten()[self.taken]
        self.scores = self.scores.masked_fill(~hopeful, -INF)
        self.rows = (places.cumsum(0) - 1).clamp_(min=0).view_as(hopeful)
        return rows, last, counts

    def hypotheses(self, num_sentences: int, n_best: int) -> list[list[Hypothesis]]:
        """Bring the results to the host, in the order that the sentences came in."""
        results: list[list[Hypothesis]] = [[] for _ in range(num_sentences)]
        for numbers, beams in self.left:
            tables = (table[:, :n_best].tolist() for table in (beams.tokens, beams.scores, beams.values, beams.own))
            for number, *of_sentence in zip(numbers, *tables, strict=True):
                for ids, score, value, own in zip(*of_sentence, strict=True):
                    if score > -INF:
                        length = ids.index(self.eos) + 1
                        penalty = value - score / length**self.alpha if self.coverage else 0.0
                        results[number].append(Hypothesis(ids[: length - 1], own, own / length**self.alpha + penalty))
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
