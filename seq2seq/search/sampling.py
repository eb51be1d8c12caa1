"""Sampling over a step function: draws random translations; knows ids and an opaque state, never a model.

The i-th token of a sample depends only on the sentence, its key, the seed and the sample's number, not on the other
sentences of the batch: every sample has its own random generator, and draws one number from it for each token.
"""

from dataclasses import dataclass
from itertools import chain
from random import Random

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.device import on_host, tensor_on
from seq2seq.search.driver import INF, NextTokens, Partial, Search, SearchTask, require_numbers
from seq2seq.search.types import Hypothesis
from seq2seq.settings.search import SearchConfig


@dataclass(kw_only=True, slots=True)
class _Sample(Partial):
    """One sample of one sentence, with the tokens drawn so far and its random generator."""

    random: Random


class SampleSearch(Search[_Sample]):
    """Draws `n_best` samples of each sentence, and returns them in the order of their numbers.

    Log-probabilities are divided by temperature. A token is then drawn from the top_k likeliest tokens (0: all), and
    among these only from the likeliest whose probabilities, renormalised within the top_k, together reach top_p, as in
    Hugging Face's `generate`. Other seeds draw other samples; equal sentences with equal keys get equal samples. A
    sample is missing if rules leave it no token.
    """

    def __init__(self, task: SearchTask) -> None:
        numbers, samples = range(len(task.max_lengths)), range(task.n_best)
        seed, keys = task.settings.seed, task.keys or numbers
        self._drawn = [
            [_Sample([], number, random=Random(f"{seed} {key} {sample}")) for sample in samples]
            for number, key in zip(numbers, keys, strict=True)
        ]
        super().__init__(task, self._drawn)

    def advance(self, next_tokens: NextTokens) -> None:
        """Draw each live sample's next token."""
        live = list(chain(*self.live.values()))
        rows = tensor_on(self.task.device, [sample.row for sample in live])
        log_probs = next_tokens.log_probs[rows]
        uniform = tensor_on(self.task.device, [sample.random.random() for sample in live], torch.double)
        tokens = _draw(log_probs, uniform, self.settings)[:, None]
        drawn = on_host(tokens, log_probs.gather(1, tokens))
        require_numbers(drawn[1])
        for sample, token, score in zip(live, *(table[:, 0].tolist() for table in drawn), strict=True):
            if score > -INF:  # else rules left no token: the sample is dropped
                sample.ids.append(token)
                sample.score += score
        for number, samples in self.live.items():
            drawn = [sample for sample in samples if len(sample.ids) == self.length]
            self.live[number] = [sample for sample in drawn if sample.ids[-1] != self.task.eos]

    def results(self) -> list[list[Hypothesis]]:
        """Return each sentence's samples that ended."""
        eos, alpha = self.task.eos, self.alpha
        return [[sample.hypothesis(alpha) for sample in drawn if sample.ids[-1:] == [eos]] for drawn in self._drawn]


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
        last = ((before < top_p * likeliest.sum(-1, keepdim=True)).sum(-1, keepdim=True) - 1).clamp(min=0)
        probs = probs * (probs >= likeliest.gather(1, last))
    cumulative = probs.cumsum(-1)
    tokens = torch.searchsorted(cumulative, uniform[:, None] * cumulative[:, -1:], right=True)[:, 0]
    return tokens.clamp(max=size - 1)  # past the end only if probabilities are NaN
