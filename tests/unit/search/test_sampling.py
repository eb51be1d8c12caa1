import math
import random
from collections import Counter

import pytest
import torch

from seq2seq.search.rules import BannedPhrases, ForcedPrefix, NoRepeatNgram
from tests.unit.search import tasks
from tests.unit.search.tasks import BANNED, BOS, EOS, TableModel, ids_of


def sample(model, tables, limits, *, samples, **arguments):
    return tasks.search(model, tables, limits, sampling=True, n_best=samples, **arguments)


def plain_sample(model, table, limit, draws, temperature, top_k, top_p):
    """One sample, a token at a time, with plain lists."""
    ids = []
    while True:
        logits = model.logits(table, (BOS, *ids))
        logits[list(BANNED)] = -math.inf
        if len(ids) == limit:
            logits[[token for token in range(len(logits)) if token != EOS]] = -math.inf
        probs = (logits.double() / temperature).softmax(-1).tolist()
        best_first = sorted(range(len(probs)), key=lambda token: -probs[token])[: top_k or None]
        among, kept, total = sum(probs[token] for token in best_first), [], 0.0
        for token in best_first:
            if total < top_p * among:
                kept.append(token)
            total += probs[token]
        kept.sort()
        mark = draws.random() * sum(probs[token] for token in kept)
        token = next(token for i, token in enumerate(kept, 1) if mark < sum(probs[other] for other in kept[:i]))
        if token == EOS:
            return ids
        ids.append(token)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, 0, 1.0), (0.5, 0, 1.0), (2.0, 3, 1.0), (1.5, 0, 0.7), (1.0, 1, 1.0), (0.8, 4, 0.9), (2.0, 3, 0.6)],
)
def test_samples_are_those_drawn_one_by_one(temperature, top_k, top_p):
    model, tables, limits, keys = TableModel(9), [41, 42, 43], [6, 3, 0], [7, 8, 9]
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    results = sample(model, tables, limits, samples=20, seed=5, keys=keys, **settings)
    for table, limit, key, samples in zip(tables, limits, keys, results, strict=True):
        draws = (random.Random(f"5 {key} {number}") for number in range(20))
        assert ids_of(samples) == [plain_sample(model, table, limit, draw, **settings) for draw in draws]


@pytest.mark.slow
@pytest.mark.parametrize(("top_k", "top_p"), [(3, 0.6), (5, 0.3), (5, 0.9), (0, 0.6)])
def test_the_tokens_that_can_be_drawn_are_hugging_faces(top_k, top_p):
    reason = "the extra huggingface is not installed"
    warpers = pytest.importorskip("transformers.generation.logits_process", reason=reason)
    logits = torch.randn(20, 9, generator=torch.Generator().manual_seed(1))
    logits[:, BANNED] = -math.inf
    model = TableModel(9)
    model.logits = lambda table, prefix: logits[table]
    results = sample(model, range(20), [1] * 20, samples=500, temperature=1.5, top_k=top_k, top_p=top_p)
    scores = logits / 1.5
    scores = warpers.TopKLogitsWarper(top_k)(None, scores) if top_k else scores
    scores = warpers.TopPLogitsWarper(top_p)(None, scores)
    for allowed, samples in zip(scores.isfinite(), results, strict=True):
        assert {(*ids, EOS)[0] for ids in ids_of(samples)} == set(allowed.nonzero()[:, 0].tolist())


@pytest.mark.parametrize("no_repeat", [False, True])
def test_samples_come_as_often_as_they_are_probable(no_repeat):
    model, number = TableModel(6), 1000
    (samples,) = sample(model, [44], [2], samples=number, rules=[NoRepeatNgram(1)] if no_repeat else [])
    counts = Counter(map(tuple, ids_of(samples)))

    def probability(ids):
        total = 1.0
        for position, token in enumerate((*ids, EOS)[:2]):  # at the limit of 2 tokens, EOS is certain
            logits = model.logits(44, (BOS, *ids[:position]))
            logits[[*BANNED, *(ids[:position] if no_repeat else [])]] = -math.inf
            total *= logits.softmax(-1)[token].item()
        return total

    probabilities = {tuple(ids): probability(ids) for ids in model.all_sequences(44, 2)}
    assert sum(probabilities.values()) == pytest.approx(1.0, abs=1e-5)
    for ids, share in probabilities.items():
        assert abs(counts[ids] - number * share) < 4 * math.sqrt(number * share) + 3


def test_samples_obey_rules_but_are_scored_by_the_model():
    model = TableModel(7)
    rules = [BannedPhrases([[4]]), ForcedPrefix([[6, 1], []])]
    settings = {"temperature": 2.0, "top_k": 3}
    results = sample(model, [45, 46], [6, 3], samples=30, rules=rules, min_lengths=[4, 2], **settings)
    for table, shortest, samples in zip([45, 46], [4, 2], results, strict=True):
        assert len(samples) == 30
        assert len(set(map(tuple, ids_of(samples)))) > 3
        for hypothesis in samples:
            assert len(hypothesis.ids) >= shortest
            assert 4 not in hypothesis.ids
            assert hypothesis.score == pytest.approx(model.score(table, hypothesis.ids), abs=1e-4)
    assert all(ids[:2] == [6, 1] for ids in ids_of(results[0]))


@pytest.mark.parametrize(("top_k", "top_p"), [(2, 1.0), (0, 0.95)])  # 5 alone has less than 0.95
def test_equally_likely_tokens_are_kept_or_cut_off_together(top_k, top_p):
    model = TableModel(8)
    model.logits = lambda table, prefix: torch.tensor([0.0, 2.0, 0.0, 0.0, 2.0, 5.0, 2.0, 0.0])
    (samples,) = sample(model, [0], [1], samples=200, top_k=top_k, top_p=top_p)
    assert set(map(tuple, ids_of(samples))) == {(1,), (4,), (5,), (6,)}


def test_samples_that_rules_leave_no_token_are_missing():
    rules = [BannedPhrases([[1], [4], [5]])]
    results = sample(TableModel(6), [1, 2], [4, 4], samples=3, rules=rules, min_lengths=[2, 0])
    assert [ids_of(samples) for samples in results] == [[], [[], [], []]]
