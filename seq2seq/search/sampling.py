"""Sampling over a step function: draws random translations; knows ids and an opaque state, never a model.

The i-th token of a sample depends only on the sentence, its key, the seed and the sample's number, not on the other
sentences of the batch: every sample has its own random generator, and draws one number from it for each token.
"""

from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.device import on_host, tensor_on
from seq2seq.search.driver import INF, Continuation, Partial, Search, SearchTask, continue_all
from seq2seq.search.hypothesis import Hypothesis
from seq2seq.search.step import NextTokens
from seq2seq.settings.search import SearchConfig


@dataclass(kw_only=True)
class _Sample(Partial):
    """One sample of one sentence, with the tokens drawn so far and its random generator."""

    chance: Random


class SampleSearch(Search):
    """Draws `n_best` samples of each sentence, and returns them in the order of their numbers.

    Log-probabilities are divided by temperature. A token is then drawn from the top_k likeliest tokens (0: all), and
    among these only from the likeliest that together reach a probability of top_p. Other seeds draw other samples;
    equal sentences with equal keys get equal samples. A sample is missing if rules leave it no token.
    """

    def __init__(self, task: SearchTask) -> None:
        super().__init__(task)
        seed, keys, samples = self.settings.seed, task.keys or self.waiting, range(task.n_best)
        self._drawn = [
            [_Sample([], number, chance=Random(f"{seed} {key} {sample}")) for sample in samples]
            for number, key in zip(self.waiting, keys, strict=True)
        ]
        self._live = self._drawn  # of the waiting sentences

    def choose(self, following: NextTokens, state: Any) -> Continuation:
        """Draw each live sample's next token."""
        live, log_probs, own = list(chain(*self._live)), following.log_probs, following.own
        if len(live) > len(log_probs):  # the first step has one row a sentence
            repeats = len(live) // len(log_probs)
            log_probs, own = (one.repeat_interleave(repeats, 0) for one in (log_probs, own))
        uniform = tensor_on(self.task.device, [one.chance.random() for one in live], torch.double)
        tokens = _draw(log_probs, uniform, self.settings)[:, None]
        drawn = (one[:, 0].tolist() for one in on_host(tokens, own.gather(1, tokens), log_probs.gather(1, tokens)))
        for one, token, own_score, ruled_score in zip(live, *drawn, strict=True):
            if ruled_score > -INF:  # else rules left no token, or scores are NaN: the sample is dropped
                one.ids.append(token)
                one.own += own_score
        self._live = [[one for one in of_sentence if self._goes_on(one)] for of_sentence in self._live]
        continuation = continue_all(self._live, self.task.device)
        self._live = [of_sentence for of_sentence in self._live if of_sentence]
        return continuation

    def _goes_on(self, one: _Sample) -> bool:
        return len(one.ids) == self.length and one.ids[-1] != self.task.eos

    def results(self) -> list[list[Hypothesis]]:
        """Return each sentence's samples that ended."""
        eos, alpha = self.task.eos, self.alpha
        return [[one.hypothesis(alpha) for one in drawn if one.ids[-1:] == [eos]] for drawn in self._drawn]


def _draw(log_probs: Float[Tensor, "n v"], uniform: Float[Tensor, " n"], settings: SearchConfig) -> Int[Tensor, " n"]:
    """Draw each row's token: the first whose cumulative probability exceeds the row's number in [0, 1) times the total.

    Tokens as likely as the least likely token within top_k and top_p can be drawn, too. Computed in float64.
    """
    top_k, top_p = settings.top_k, settings.top_p
    probs = (log_probs.double() / settings.temperature).softmax(-1)
    size = probs.shape[1]
    if top_k or top_p < 1:
        likeliest = probs.topk(min(top_k or size, size)).values
        before = likeliest.cumsum(-1) - likeliest  # the sum of all likelier tokens
        last = ((before < top_p).sum(-1, keepdim=True) - 1).clamp(min=0)
        probs = probs * (probs >= likeliest.gather(1, last))
    cumulative = probs.cumsum(-1)
    tokens = torch.searchsorted(cumulative, uniform[:, None] * cumulative[:, -1:], right=True)[:, 0]
    return tokens.clamp(max=size - 1)  # past the end only if probabilities are NaN
