import math
import random
from collections import Counter

import pytest
import torch

from seq2seq.search.constrained import ConstrainedBeamSearch
from seq2seq.search.rules import BannedPhrases, ForcedPrefix, NoRepeatNgram
from tests.refusing import refuses
from tests.unit.search import tasks
from tests.unit.search.tasks import BANNED, BOS, EOS, TableModel, contains, ids_of


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


def test_samples_that_rules_leave_no_token_are_missing():
    rules = [BannedPhrases([[1], [4], [5]])]
    results = sample(TableModel(6), [1, 2], [4, 4], samples=3, rules=rules, min_lengths=[2, 0])
    assert [ids_of(samples) for samples in results] == [[], [[], [], []]]


@pytest.mark.parametrize(("top_k", "top_p"), [(2, 1.0), (0, 0.95)])  # 5 alone has less than 0.95
def test_equally_likely_tokens_are_kept_or_cut_off_together(top_k, top_p):
    model = TableModel(8)
    model.logits = lambda table, prefix: torch.tensor([0.0, 2.0, 0.0, 0.0, 2.0, 5.0, 2.0, 0.0])
    (samples,) = sample(model, [0], [1], samples=200, top_k=top_k, top_p=top_p)
    assert set(map(tuple, ids_of(samples))) == {(1,), (4,), (5,), (6,)}


PHRASE_SETS = [
    [[4]],
    [[5, 1]],
    [[1, 1, 4]],  # after 1 1 1, two of its tokens are there
    [[1, 4, 1, 5]],  # after 1 4 1 4, again two
    [[5], [1, 4]],
    [[4], [5], [1]],
    [[1, 4], [4, 5]],  # 1 4 5 has both
    [[1, 4, 5], [4, 1]],
    [[1, 5], [1, 4]],  # the same beginning
    [[4], [5, 4]],  # the first is in the last
    [[4], [4], [5, 4]],  # and once more
    [[1, 4], [1, 4]],
]


def search(model, tables, limits, phrases, **arguments):
    return tasks.search(model, tables, limits, kind=ConstrainedBeamSearch, phrases=phrases, **arguments)


def missing_tokens(ids, phrases):
    """Tokens that must follow ids if the missing phrases are written one after another."""
    given = Counter(map(tuple, phrases))
    within = {each: sum(given[other] for other in given if each != other and contains(other, each)) for each in given}
    missing = {each: given[each] - occurrences(ids, each) for each in given if given[each] > within[each]}
    begun = [n for each in missing if missing[each] > 0 for n in range(len(each)) if ends_with(ids, each[:n])]
    return sum(len(each) * max(count, 0) for each, count in missing.items()) - max(begun, default=0)


def occurrences(ids, phrase):
    return sum(tuple(ids[start : start + len(phrase)]) == tuple(phrase) for start in range(len(ids)))


def ends_with(ids, beginning):
    return len(ids) >= len(beginning) and tuple(ids[len(ids) - len(beginning) :]) == tuple(beginning)


def has_room(ids, phrases, limit):
    return all(missing_tokens(ids[:length], phrases) <= limit - length for length in range(len(ids) + 1))


def plain_search(model, table, limit, phrases, beam, alpha):
    """Dynamic beam allocation step by step, never stopping early."""
    live, finished = [[]], []
    for length in range(limit + 1):
        banks = [[] for _ in range(sum(map(len, phrases)) + 1)]
        for ids in live:
            for token, log_prob in enumerate(model.log_probs(table, tuple(ids))):
                score = model.prefix_score(table, ids) + log_prob
                needed = missing_tokens(ids if token == EOS else [*ids, token], phrases)
                if token not in BANNED and needed <= (0 if token == EOS else limit - length - 1):
                    banks[needed].append((score, [*ids, token]))
        for bank in banks:
            bank.sort(reverse=True)
        ranks = [0] * len(banks)
        for _ in range(beam):  # rank after rank to the bank that has fewest, of those with candidates left
            open_banks = [number for number, bank in enumerate(banks) if ranks[number] < len(bank)]
            if open_banks:
                ranks[min(open_banks, key=lambda number: ranks[number])] += 1
        live = []
        for bank, count in zip(banks, ranks, strict=True):
            ended = [(score, ids[:-1]) for score, ids in bank[:count] if ids[-1] == EOS]
            finished += [(score / (len(ids) + 1) ** alpha, ids) for score, ids in ended]
            live += [ids for _, ids in bank if ids[-1] != EOS][:count]
        if beam == 1 and finished:
            break
    return [ids for _, ids in sorted(finished, reverse=True)[:beam]]


@pytest.mark.parametrize("phrases", PHRASE_SETS, ids=str)
def test_a_wide_enough_beam_finds_what_exhaustive_search_finds_among_sequences_with_all_phrases(phrases):
    model, longest = TableModel(6), 5
    complete = [
        ids
        for ids in model.all_sequences(1, longest)
        if all(occurrences(ids, each) >= phrases.count(each) for each in phrases)
    ]
    expected = [ids for ids in complete if has_room(ids, phrases, longest)]
    assert expected
    assert ids_of(search(model, [1], [longest], [phrases], beam=400)[0]) == expected
    can_overlap = any(a[-1:] == b[:1] for a in phrases for b in phrases if a != b or len(a) > 1)
    assert can_overlap or expected == complete  # no sequence is lost for want of room


@pytest.mark.parametrize("beam", [1, 3, 8])
@pytest.mark.parametrize("phrases", [[], *PHRASE_SETS], ids=str)
def test_a_narrow_beam_keeps_what_dynamic_beam_allocation_keeps(phrases, beam):
    model, longest = TableModel(7), 5
    (best,) = search(model, [31], [longest], [phrases], beam=beam)
    assert ids_of(best) == plain_search(model, 31, longest, phrases, beam, 1.0)


@pytest.mark.parametrize("beam", [1, 2, 7])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_sentences_without_phrases_come_out_as_from_beam_search(beam, alpha):
    model, tables, limits = TableModel(9), [11, 12, 13, 14], [4, 0, 9, 6]
    settings = {"beam": beam, "length_penalty": alpha, "n_best": 1}
    assert search(model, tables, limits, [[]] * 4, **settings) == tasks.search(model, tables, limits, **settings)


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_phrases_that_just_fit_are_all_there_however_unlikely(beam):
    model = TableModel(8)
    true_logits = model.logits
    model.logits = lambda table, prefix: true_logits(table, prefix) - 30 * torch.eye(8)[4] - 30 * torch.eye(8)[6]
    phrases = [[4, 6, 4, 4], [6, 5], [6]]
    (best,) = search(model, [3], [6], [phrases], beam=beam)
    assert best
    assert all(ids in ([4, 6, 4, 4, 6, 5], [6, 5, 4, 6, 4, 4]) for ids in ids_of(best))


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("n_best", [1, 3])
def test_stopping_early_gives_the_same_best_hypotheses_as_going_on(alpha, n_best):
    tables, limits, phrases = list(range(6)), [7] * 6, [[[4, 6]], [[5], [1, 1]], [], [[6]], [[1]], [[5, 5]]]
    patient, hasty = TableModel(7), TableModel(7)
    expected = search(patient, tables, limits, phrases, beam=6, length_penalty=alpha)
    best = search(hasty, tables, limits, phrases, beam=6, length_penalty=alpha, n_best=n_best)
    assert best == [all_best[:n_best] for all_best in expected]
    assert sum(hasty.calls) <= sum(patient.calls)


def test_rules_see_the_prefixes_and_their_sentences():
    model, seen = TableModel(7), []

    def no_token_twice_in_sentence_1(forbidden, prefixes):
        seen.append((prefixes.tokens.tolist(), prefixes.sentences.tolist()))
        for row, (tokens, sentence) in enumerate(zip(*seen[-1], strict=True)):
            if sentence == 1:
                forbidden[row, tokens] = True
        return forbidden

    phrases = [[[4]], [[4]], []]
    free = search(model, [1, 2, 3], [5, 5, 0], phrases, beam=20)
    ruled = search(model, [1, 2, 3], [5, 5, 0], phrases, beam=20, rules=[no_token_twice_in_sentence_1])
    assert ruled[0] == free[0]
    assert ruled[1]
    assert all(len(set(ids)) == len(ids) for ids in ids_of(ruled[1]))
    assert any(len(set(ids)) < len(ids) for ids in ids_of(free[1]))
    assert seen[0] == ([[], [], []], [0, 1, 2])
    assert all(set(sentences) == {0, 1} for _, sentences in seen[1:3])


def test_an_impossible_phrase_gives_no_hypothesis():
    rules = [BannedPhrases([[4]])]
    assert search(TableModel(6), [0, 1], [3, 3], [[[4]], [[4, 1]]], beam=3, rules=rules) == [[], []]
    assert search(TableModel(6), [0], [3], [[[BOS]]], beam=3) == [[]]


@pytest.mark.parametrize("phrases", [[[4, 5], [5], [1, 1]], [[4, 5], [4, 5], [5]]], ids=str)
def test_phrases_need_room_for_all_tokens_but_those_within_others(phrases):
    assert search(TableModel(6), [0], [4], [phrases], beam=3)[0]
    refuses("^phrases of 4 tokens do not fit into 3: raise max_length", search, TableModel(6), [0], [3], [phrases])
