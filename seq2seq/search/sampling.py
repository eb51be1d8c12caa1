"""Sampling over a step function: translations drawn by chance; knows ids and an opaque state, never a model.

The i-th token of a sample depends on the sentence, the seed and the sample's number only, not on what else is in the
batch: every sample has a random generator of its own, and draws one number of it for each token.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.device import tensor_on
from seq2seq.search.rules import Prefixes, Rule
from seq2seq.search.step import Hypothesis, S, StepFn, force_end, next_log_probs

INF = float("inf")


@dataclass
class _Sample:
    """One sample of one sentence, as far as it is drawn."""

    sentence: int
    limit: int  # most tokens, EOS not counted
    chance: Random
    ids: list[int] = field(default_factory=list)  # with EOS, once it has ended
    score: float = 0.0  # sum of the model's log-probabilities (nats)


def sample_search(
    step: StepFn[S],
    state: S,
    *,
    num_sentences: int,
    samples: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 1,
    keys: Sequence[int] = (),
    bos: int,
    eos: int,
    max_lengths: Int[Tensor, " b"],
    alpha: float,
    device: torch.device | str,
    banned: Sequence[int] = (),
    rules: Sequence[Rule] = (),
) -> list[list[Hypothesis]]:
    """Draw hypotheses of each sentence, in the order of their numbers; scores are the model's own, however drawn.

    Log-probabilities are divided by temperature; then a token is drawn from the top_k likeliest (0: all), and of these
    from the likeliest that reach a probability of top_p together. Other seeds draw other samples. A key is a number of
    a sentence's own, wherever it stands (none given: its place in the batch); equal sentences with equal keys draw the
    same. A sample for which rules leave no token at some point is missing. The other arguments are those of
    `beam_search`.

    Raises:
        ValueError: a setting is out of range.
    """
    _check(samples, temperature, top_k, top_p, alpha)
    drawn = [
        _Sample(number, limit, Random(f"{seed} {key} {sample}"))
        for number, (key, limit) in enumerate(zip(keys or range(num_sentences), max_lengths.tolist(), strict=True))
        for sample in range(samples)
    ]
    live, waiting = drawn, list(range(num_sentences))
    rows = torch.arange(num_sentences, device=device).repeat_interleave(samples)  # of each live sample
    last, never = torch.full((num_sentences,), bos, device=device), tensor_on(device, banned)
    while live:
        logits, state = step(last, state)
        own = next_log_probs(logits, never)[rows]
        log_probs = _ruled(own, live, rules, eos)
        uniform = tensor_on(device, [one.chance.random() for one in live], torch.double)
        tokens = _draw(log_probs, uniform, temperature, top_k, top_p)[:, None]
        going_on = _record(live, tokens, own.gather(1, tokens), log_probs.gather(1, tokens), eos)
        live = [live[place] for place in going_on]
        if live:
            places = tensor_on(device, going_on)
            counts = Counter(one.sentence for one in live)
            state = state.reorder(rows[places], [counts[number] for number in waiting])
            waiting, last = [number for number in waiting if counts[number]], tokens[places, 0]
            rows = torch.arange(len(live), device=device)
    results: list[list[Hypothesis]] = [[] for _ in range(num_sentences)]
    for one in drawn:
        if one.ids[-1:] == [eos]:
            results[one.sentence].append(Hypothesis(one.ids[:-1], one.score, one.score / len(one.ids) ** alpha))
    return results


def _check(samples: int, temperature: float, top_k: int, top_p: float, alpha: float) -> None:
    if samples < 1 or not 0 < temperature < INF or top_k < 0 or not 0 < top_p <= 1 or alpha < 0:
        raise ValueError(
            f"samples={samples} temperature={temperature} top_k={top_k} top_p={top_p} alpha={alpha}: needs "
            "samples >= 1, 0 < temperature < inf, top_k >= 0, 0 < top_p <= 1 and alpha >= 0"
        )


def _draw(
    log_probs: Float[Tensor, "n v"], uniform: Float[Tensor, " n"], temperature: float, top_k: int, top_p: float
) -> Int[Tensor, " n"]:
    """Draw each row's token: the first at which the cumulative probability passes the row's share, in [0, 1), of all.

    Tokens as likely as the least likely one within top_k and top_p are within, too. Computed in float64.
    """
    probs = (log_probs.double() / temperature).softmax(-1)
    size = probs.shape[1]
    if top_k or top_p < 1:
        likeliest = probs.topk(min(top_k or size, size)).values
        before = likeliest.cumsum(-1) - likeliest  # what all likelier ones have together
        last = ((before < top_p).sum(-1, keepdim=True) - 1).clamp(min=0)
        probs = probs * (probs >= likeliest.gather(1, last))
    cumulative = probs.cumsum(-1)
    tokens = torch.searchsorted(cumulative, uniform[:, None] * cumulative[:, -1:], right=True)[:, 0]
    return tokens.clamp(max=size - 1)  # past the end only if probabilities are NaN


def _ruled(own: Float[Tensor, "n v"], live: list[_Sample], rules: Sequence[Rule], eos: int) -> Float[Tensor, "n v"]:
    """Apply the rules and the limits to a copy of the samples' log-probabilities."""
    log_probs = own.clone()
    if rules:
        tokens = tensor_on(own.device, [one.ids for one in live])
        prefixes = Prefixes(tokens, tensor_on(own.device, [one.sentence for one in live]))
        for rule in rules:
            log_probs = rule(log_probs, prefixes)
    at_limit = [len(one.ids) == one.limit for one in live]
    return force_end(log_probs, tensor_on(own.device, at_limit, torch.bool), eos) if any(at_limit) else log_probs


def _record(live: list[_Sample], tokens: Tensor, own: Tensor, ruled: Tensor, eos: int) -> list[int]:
    """Append what was drawn (n, 1); gives the places of the samples that go on.

    A token at -inf or NaN was drawn for want of any other: its sample comes to nothing.
    """
    going_on = []
    drawn = torch.cat((tokens.double(), own.double(), ruled.double()), 1).tolist()  # one wait for the device a step
    for place, (one, (token, own_score, ruled_score)) in enumerate(zip(live, drawn, strict=True)):
        if ruled_score > -INF:
            one.ids.append(int(token))
            one.score += own_score
            if token != eos:
                going_on.append(place)
    return going_on
