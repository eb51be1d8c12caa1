"""Greedy search over a step function: always the likeliest token; knows ids and an opaque state, never a model."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from seq2seq.device import tensor_on
from seq2seq.search.rules import Prefixes, Rule
from seq2seq.search.step import Hypothesis, S, StepFn, force_end, next_log_probs


def greedy_search(
    step: StepFn[S],
    state: S,
    *,
    num_sentences: int,
    bos: int,
    eos: int,
    max_lengths: Int[Tensor, " b"],
    alpha: float,
    device: torch.device | str,
    banned: Sequence[int] = (),
    rules: Sequence[Rule] = (),
) -> list[list[Hypothesis]]:
    """Continue each sentence by its likeliest token until EOS: beam search with a beam of one, only faster.

    The arguments are those of `beam_search`; state is reordered only when finished sentences leave the batch.
    """
    results: list[list[Hypothesis]] = [[] for _ in range(num_sentences)]
    waiting = list(range(num_sentences))
    ids: list[list[int]] = [[] for _ in waiting]
    shortest, limits = min(max_lengths.tolist(), default=0), tensor_on(device, max_lengths.tolist())
    never, sentences = tensor_on(device, banned), torch.arange(num_sentences, device=device)
    last, scores = torch.full((num_sentences,), bos, device=device), torch.zeros(num_sentences, device=device)
    own = scores  # by the model's own log-probabilities; of scores, -inf says that rules left no token
    tokens = last.new_empty(num_sentences, 0)
    while waiting:
        logits, state = step(last, state)
        log_probs = next_log_probs(logits, never)
        own_log_probs = log_probs.clone() if rules else log_probs
        for rule in rules:
            log_probs = rule(log_probs, Prefixes(tokens, sentences))
        if tokens.shape[1] >= shortest:
            log_probs = force_end(log_probs, limits == tokens.shape[1], eos)
        best, last = log_probs.max(-1)
        scores, own = scores + best, own + own_log_probs.gather(1, last[:, None])[:, 0]
        tokens = torch.cat((tokens, last[:, None]), 1)
        found = torch.stack((last.double(), scores.double(), own.double()), 1).tolist()  # the one wait a step
        counts = [int(token != eos) for token, *_ in found]
        for number, (token, ruled_score, score) in zip(waiting, found, strict=True):
            if token != eos:
                ids[number].append(int(token))
            elif ruled_score > -float("inf"):
                results[number] = [Hypothesis(ids[number], score, score / (len(ids[number]) + 1) ** alpha)]
        waiting = [number for number, count in zip(waiting, counts, strict=True) if count]
        if waiting and not all(counts):
            stay = (last != eos).nonzero_static(size=len(waiting))[:, 0]
            last, scores, own, tokens = last[stay], scores[stay], own[stay], tokens[stay]
            limits, sentences = limits[stay], sentences[stay]
            state = state.reorder(stay, counts)
    return results
