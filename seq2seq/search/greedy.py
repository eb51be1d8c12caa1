"""Greedy search over a step function: always the likeliest token; knows ids and an opaque state, never a model."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

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
    waiting, limits = list(range(num_sentences)), max_lengths.tolist()
    ids: list[list[int]] = [[] for _ in range(num_sentences)]
    last = torch.full((num_sentences,), bos, device=device)
    scores = torch.zeros(num_sentences, device=device)
    while waiting:
        logits, state = step(last, state)
        log_probs = next_log_probs(logits, banned)
        for rule in rules:
            prefixes = torch.tensor([ids[number] for number in waiting], dtype=torch.long, device=device)
            log_probs = rule(log_probs, Prefixes(prefixes, torch.tensor(waiting, device=device)))
        at_limit = [len(ids[number]) == limits[number] for number in waiting]
        if any(at_limit):
            log_probs = force_end(log_probs, torch.tensor(at_limit, device=device), eos)
        best, last = log_probs.max(-1)
        scores = scores + best
        tokens: list[int] = last.tolist()  # the one time a step that the host waits for the device
        stay = [row for row, token in enumerate(tokens) if token != eos]
        if len(stay) < len(waiting):
            for number, token, score in zip(waiting, tokens, scores.tolist(), strict=True):
                if token == eos and score > -float("inf"):
                    results[number] = [Hypothesis(ids[number], score, score / (len(ids[number]) + 1) ** alpha)]
            rows = torch.tensor(stay, dtype=torch.long, device=device)
            waiting, last, scores = [waiting[row] for row in stay], last[rows], scores[rows]
            if waiting:
                state = state.reorder(rows, [int(token != eos) for token in tokens])
        for number, row in zip(waiting, stay, strict=True):
            ids[number].append(tokens[row])
    return results
