import math
import random
from collections import Counter

import pytest
import torch

from seq2seq.search.rules import BannedPhrases, ForcedPrefix, NoRepeatNgram, RepetitionPenalty
from tests.unit.search import tasks
from tests.unit.search.tasks import BANNED, BOS, EOS, ids_of


def sample(model, tables, limits, *, samples, **arguments):
    return tasks.search(model, tables, limits, sampling=True, n_best=samples, **arguments)


def obvious_sample(model, table, limit, draws, temperature, top_k, top_p):
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
        token = next(token for place, token in enumerate(kept) if mark < sum(probs[one] for one in kept[: place + 1]))
        if token == EOS:
            return ids
        ids.append(token)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, 0, 1.0), (0.5, 0, 1.0), (2.0, 3, 1.0), (1.5, 0, 0.7), (1.0, 1, 1.0), (0.8, 4, 0.9), (2.0, 3, 0.6)],
)
def test_samples_are_those_drawn_one_by_one(table_model, temperature, top_k, top_p):
    model, tables, limits = table_model(9), [41, 42, 43], [6, 3, 0]
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    found = sample(model, tables, limits, samples=20, seed=5, keys=[7, 8, 9], **settings)
    for table, limit, key, of_sentence in zip(tables, limits, (7, 8, 9), found, strict=True):
        expected = [
            obvious_sample(model, table, limit, random.Random(f"5 {key} {number}"), temperature, top_k, top_p)
            for number in range(20)
        ]
        assert ids_of(of_sentence) == expected


@pytest.mark.parametrize(("top_k", "top_p"), [(3, 0.6), (5, 0.3), (5, 0.9), (0, 0.6)])
def test_the_tokens_that_can_be_drawn_are_hugging_faces(table_model, top_k, top_p):
    reason = "the extra huggingface is not installed"
    warpers = pytest.importorskip("transformers.generation.logits_process", reason=reason)
    logits = torch.randn(20, 9, generator=torch.Generator().manual_seed(1))
    logits[:, BANNED] = -math.inf
    model = table_model(9)
    model.logits = lambda table, prefix: logits[table]
    found = sample(model, range(20), [1] * 20, samples=500, temperature=1.5, top_k=top_k, top_p=top_p)
    scores = logits / 1.5
    scores = warpers.TopKLogitsWarper(top_k)(None, scores) if top_k else scores
    scores = warpers.TopPLogitsWarper(top_p)(None, scores)
    for allowed, of_sentence in zip(scores.isfinite(), found, strict=True):
        drawn = {one.ids[0] if one.ids else EOS for one in of_sentence}
        assert drawn == set(allowed.nonzero()[:, 0].tolist())


def test_samples_depend_on_the_seed_and_not_on_how_many_are_drawn(table_model):
    model, tables, limits = table_model(9), [41, 42, 43], [6, 3, 8]
    five = sample(model, tables, limits, samples=5, keys=[1, 2, 3])
    assert [best[:2] for best in five] == sample(model, tables, limits, samples=2, keys=[1, 2, 3])
    assert sample(model, tables, limits, samples=5, seed=2, keys=[1, 2, 3]) != five


@pytest.mark.parametrize("no_repeat", [False, True])
def test_samples_come_as_often_as_they_are_probable(table_model, no_repeat):
    model = table_model(6)
    (found,) = sample(model, [44], [2], samples=4000, rules=[NoRepeatNgram(1)] if no_repeat else [])
    counts = Counter(tuple(one.ids) for one in found)
    sequences = model.all_sequences(44, 2, 1.0, BANNED)

    def probability(ids):
        total = 1.0
        for place in range(len(ids) + 1):
            logits = model.logits(44, (BOS, *ids[:place]))
            logits[[*BANNED, *(ids[:place] if no_repeat else [])]] = -math.inf
            token = ids[place] if place < len(ids) else EOS
            total *= 1.0 if place == 2 else logits.softmax(-1)[token].item()
        return total

    assert sum(map(probability, sequences)) == pytest.approx(1.0, abs=1e-5)
    for ids in sequences:
        expected = 4000 * probability(ids)
        assert abs(counts[tuple(ids)] - expected) < 5 * math.sqrt(expected) + 5


def test_samples_obey_rules_but_are_scored_by_the_model(table_model):
    model = table_model(7)
    rules = [BannedPhrases([[4]]), RepetitionPenalty(1.5), ForcedPrefix([[6, 1], []])]
    settings = {"temperature": 2.0, "top_k": 3}
    found = sample(model, [45, 46], [6, 3], samples=30, rules=rules, min_lengths=[4, 2], **settings)
    for table, shortest, of_sentence in zip([45, 46], [4, 2], found, strict=True):
        assert len({tuple(one.ids) for one in of_sentence}) > 3
        for one in of_sentence:
            assert len(one.ids) >= shortest
            assert 4 not in one.ids
            assert one.score == pytest.approx(model.score(table, one.ids), abs=1e-4)
    assert all(one.ids[:2] == [6, 1] for one in found[0])
    assert {len(of_sentence) for of_sentence in found} == {30}


def test_equally_likely_tokens_are_kept_or_cut_off_together(table_model):
    model = table_model(8)
    model.logits = lambda table, prefix: torch.tensor([0.0, 2.0, 0.0, 0.0, 2.0, 5.0, 2.0, 0.0])
    for top_k, top_p in ((2, 1.0), (0, 0.95)):  # 5 alone has less than that, with another of 2 nats more
        (found,) = sample(model, [0], [1], samples=200, top_k=top_k, top_p=top_p)
        assert {tuple(one.ids) for one in found} == {(1,), (4,), (5,), (6,)}


def test_samples_that_rules_leave_no_token_are_missing(table_model):
    rules = [BannedPhrases([[1], [4], [5]])]
    found = sample(table_model(6), [1, 2], [4, 4], samples=3, rules=rules, min_lengths=[2, 0])
    assert [ids_of(of_sentence) for of_sentence in found] == [[], [[], [], []]]


def test_samples_that_ended_leave_the_batch(table_model):
    model = table_model(6)
    found = sample(model, [1, 2, 3], [4, 6, 0], samples=4)
    longest = [len(one.ids) for of_sentence in found for one in of_sentence]
    assert model.calls == [3, *(sum(length >= place for length in longest) for place in range(1, max(longest) + 1))]
