"""Beam search over a step function, all sentences at once; knows ids and an opaque state, never a model.

A hypothesis is worth the sum of its log-probabilities / length^α (length counts EOS). Log-probabilities are never
positive, so nothing that a live hypothesis of score s becomes is worth more than s / (longest length)^α: a sentence
leaves the batch exactly when that bound shows that nothing alive can still enter its n best.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.search.step import Hypothesis, S, StepFn, force_end, next_log_probs

INF = float("inf")


@dataclass(frozen=True)
class Beams:
    """Up to k hypotheses a sentence, best first."""

    tokens: Int[Tensor, "b k t"]  # meaningful up to EOS or the current position
    scores: Float[Tensor, "b k"]  # sums of log-probabilities (nats); -inf marks an empty place
    values: Float[Tensor, "b k"]  # ended: score / length^α; live: the most that any continuation can be worth

    def of_sentences(self, index: Int[Tensor, " i"]) -> "Beams":
        """Keep the hypotheses of some sentences only."""
        return Beams(self.tokens[index], self.scores[index], self.values[index])


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
    n_best: int | None = None,
) -> list[list[Hypothesis]]:
    """Find each sentence's best hypotheses, best first; fewer than asked for where fewer exist.

    Args:
        step: gives the logits of the next token; its first call has one row a sentence.
        state: what step remembers; the search only reorders it.
        num_sentences: sentences in the batch.
        beam: live hypotheses a sentence (k); 1 is greedy search, which ends at its first EOS.
        bos: token that every hypothesis continues.
        eos: token that ends a hypothesis; forced after max_lengths others.
        max_lengths: most tokens of each sentence's hypotheses, EOS not counted.
        alpha: exponent α of the length.
        device: where step's tensors live.
        banned: tokens never produced.
        n_best: hypotheses wanted (None: beam); the search goes on until they cannot change.

    Raises:
        ValueError: not 1 <= n_best <= beam, or alpha is negative.
    """
    n_best = beam if n_best is None else n_best
    _check(beam, n_best, alpha)
    batch = _Batch(max_lengths.to(device), beam, eos, alpha)
    last = torch.full((num_sentences,), bos, device=device)
    while batch.waiting:
        logits, state = step(last, state)
        rows, stay = batch.release(n_best, batch.advance(next_log_probs(logits, banned)))
        if batch.waiting:
            state, last = state.reorder(rows.flatten(), stay), batch.last_tokens()
    return batch.hypotheses(num_sentences, n_best)


def _check(beam: int, n_best: int, alpha: float) -> None:
    if not 1 <= n_best <= beam or alpha < 0:
        raise ValueError(f"beam={beam} n_best={n_best} alpha={alpha}: needs 1 <= n_best <= beam and alpha >= 0")


class _Batch:
    """The sentences still being searched, and the results of those that left.

    Attributes:
        live: hypotheses to continue: one a sentence at first, then up to k.
        finished: the k best that ended so far.
        position: tokens that every live hypothesis has.
        waiting: the number of each sentence still here.
    """

    def __init__(self, max_lengths: Int[Tensor, " b"], beam: int, eos: int, alpha: float) -> None:
        self.beam, self.eos, self.alpha, self.position = beam, eos, alpha, 0
        self.limits: list[int] = max_lengths.tolist()
        self.waiting = list(range(len(self.limits)))
        self.left: list[tuple[list[int], Beams]] = []
        self.longest = max_lengths[:, None] + 1  # (b, 1), EOS counted
        tokens = max_lengths.new_full((len(self.limits), beam, max(self.limits, default=0) + 1), eos, dtype=torch.long)
        nothing = torch.full(tokens.shape[:2], -INF, device=tokens.device)
        self.finished = Beams(tokens, nothing, nothing)
        self.live = Beams(tokens[:, :1], torch.zeros_like(nothing[:, :1]), torch.zeros_like(nothing[:, :1]))

    def advance(self, log_probs: Float[Tensor, "n v"]) -> Int[Tensor, "b k"]:
        """Continue every live hypothesis by one token; returns the row that each new live one continues."""
        width = self.live.scores.shape[1]
        if self.position == min(self.limits):
            log_probs = force_end(log_probs, (self.longest == self.position + 1).expand(-1, width).flatten(), self.eos)
        candidates, parents = self._expand(log_probs)
        has_ended = candidates.tokens[:, :, self.position] == self.eos
        self.position += 1
        # Only those among the best k may end, as in the searches of Hugging Face and CTranslate2.
        ended_scores = candidates.scores.masked_fill(~has_ended, -INF)[:, : self.beam]
        ended = Beams(candidates.tokens[:, : self.beam], ended_scores, ended_scores / self.position**self.alpha)
        self.finished = _best(self.beam, self.finished, ended)
        live_scores, order = candidates.scores.masked_fill(has_ended, -INF).sort(dim=-1, descending=True, stable=True)
        order = order[:, : self.beam]
        live_scores = live_scores[:, : self.beam]
        self.live = Beams(_pick(candidates.tokens, order), live_scores, live_scores / self.longest**self.alpha)
        first_rows = torch.arange(0, log_probs.shape[0], width, device=log_probs.device)
        return parents.gather(1, order) + first_rows[:, None]

    def _expand(self, log_probs: Float[Tensor, "n v"]) -> tuple[Beams, Int[Tensor, "b c"]]:
        """Find the 2k best continuations of every sentence, and the hypothesis that each continues.

        2k suffice: each of the k hypotheses ends in one way only, so k that live are always among them.
        """
        count = 2 * self.beam if self.beam > 1 else 1  # beside the one hypothesis of greedy search lives no other
        live = self.live.scores  # (b, k)
        block = math.gcd(log_probs.shape[1], 64)  # the best c tokens lie in the c blocks of the greatest maxima
        blocks = log_probs.view(live.shape[0], live.shape[1], -1, block)
        per_row = blocks.shape[2]
        maxima = (blocks.amax(-1) + live[:, :, None]).flatten(1)
        chosen = maxima.topk(min(count, maxima.shape[1])).indices  # (b, c)
        contents = blocks.flatten(1, 2).gather(1, chosen[:, :, None].expand(-1, -1, block))  # (b, c, block)
        scores = (contents + live.gather(1, chosen // per_row)[:, :, None]).flatten(1)
        scores, order = scores.topk(min(count, scores.shape[1]))
        chosen = chosen.gather(1, order // block)
        parents = chosen // per_row
        tokens = _pick(self.live.tokens, parents)
        tokens[:, :, self.position] = chosen % per_row * block + order % block
        return Beams(tokens, scores, scores), parents

    def release(self, n_best: int, rows: Int[Tensor, "b k"]) -> tuple[Int[Tensor, "i k"], Int[Tensor, " i"] | None]:
        """Let the sentences go whose n best cannot change; returns the others' rows, and which stay (None: all)."""
        cannot_change = self.live.values[:, 0] <= self.finished.values[:, n_best - 1]
        decided: list[bool] = cannot_change.tolist()  # the one time a step that the host waits for the device
        done = [yes or self.position > limit for yes, limit in zip(decided, self.limits, strict=True)]
        if not any(done):
            return rows, None
        out = [row for row, is_done in enumerate(done) if is_done]
        stay = [row for row, is_done in enumerate(done) if not is_done]
        out_index, stay_index = (torch.tensor(index, dtype=torch.long, device=rows.device) for index in (out, stay))
        self.left.append(([self.waiting[row] for row in out], self.finished.of_sentences(out_index)))
        self.waiting, self.limits = [self.waiting[row] for row in stay], [self.limits[row] for row in stay]
        self.live, self.finished = self.live.of_sentences(stay_index), self.finished.of_sentences(stay_index)
        self.longest = self.longest[stay_index]
        return rows[stay_index], stay_index

    def last_tokens(self) -> Int[Tensor, " n"]:
        """What every live hypothesis ends with."""
        return self.live.tokens[:, :, self.position - 1].flatten()

    def hypotheses(self, num_sentences: int, n_best: int) -> list[list[Hypothesis]]:
        """Bring the results to the host, in the order that the sentences came in."""
        results: list[list[Hypothesis]] = [[] for _ in range(num_sentences)]
        for numbers, beams in self.left:
            tables = zip(numbers, beams.tokens[:, :n_best].tolist(), beams.scores[:, :n_best].tolist(), strict=True)
            for number, tokens, scores in tables:
                for ids, score in zip(tokens, scores, strict=True):
                    if score > -INF:
                        length = ids.index(self.eos) + 1
                        results[number].append(Hypothesis(ids[: length - 1], score, score / length**self.alpha))
        return results


def _pick(tokens: Int[Tensor, "b k t"], index: Int[Tensor, "b c"]) -> Int[Tensor, "b c t"]:
    """Choose hypotheses by their place in the beam."""
    return tokens.gather(1, index[:, :, None].expand(-1, -1, tokens.shape[2]))


def _best(count: int, first: Beams, second: Beams) -> Beams:
    """Choose the most valuable of two sets; where values are equal, the first set's go before the second's."""
    values, order = torch.cat((first.values, second.values), 1).sort(dim=-1, descending=True, stable=True)
    values, order = values[:, :count], order[:, :count]
    scores = torch.cat((first.scores, second.scores), 1).gather(1, order)
    return Beams(_pick(torch.cat((first.tokens, second.tokens), 1), order), scores, values)
