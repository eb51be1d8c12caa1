import math

import pytest
import torch

from tests.unit.search.tasks import BANNED, EOS, TableModel, ids_of, search

each_alpha = pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])


def plain_beam_search(model, table, limit, beam, alpha, *, is_early=False):
    """Beam search as written, one list of prefixes and the k best that ended; by default it never stops early."""
    live, ended = [(0.0, ())], []
    for length in range(1, limit + 2):
        longer = []
        for score, ids in live:
            steps = model.log_probs(table, ids)
            tokens = [EOS] if length > limit else [token for token in range(model.vocab_size) if token not in BANNED]
            longer += [(score + steps[token], (*ids, token)) for token in tokens]
        longer.sort(reverse=True)
        ended += [(score / length**alpha, ids[:-1]) for score, ids in longer[:beam] if ids[-1] == EOS]
        ended = sorted(ended, reverse=True)[:beam]
        live = [(score, ids) for score, ids in longer if ids[-1] != EOS][:beam]
        has_won = len(ended) == beam and bool(live) and live[0][0] / length**alpha <= ended[-1][0]
        if (beam == 1 and ended) or (is_early and has_won):
            break
    return [list(ids) for _, ids in ended]


@each_alpha
@pytest.mark.parametrize("vocab_size", [5, 6])  # 5 has blocks of 1 token, 6 of 2
def test_a_wide_enough_beam_finds_what_exhaustive_search_finds(alpha, vocab_size):
    model, longest = TableModel(vocab_size), 9 - vocab_size
    for table in range(5):
        expected = model.all_sequences(table, longest, alpha)
        assert ids_of(search(model, [table], [longest], beam=len(expected), length_penalty=alpha)[0]) == expected


@each_alpha
@pytest.mark.parametrize("beam", [1, 2, 3, 7])
def test_a_narrow_beam_finds_what_a_search_that_never_stops_finds(beam, alpha):
    model, tables, limits = TableModel(9), [11, 12, 13, 14, 15], [4, 0, 9, 2, 6]
    expected = [
        plain_beam_search(model, table, limit, beam, alpha) for table, limit in zip(tables, limits, strict=True)
    ]
    assert [ids_of(best) for best in search(model, tables, limits, beam=beam, length_penalty=alpha)] == expected


def test_a_search_ends_once_no_hypothesis_can_be_overtaken():
    model = TableModel(6)
    model.logits = lambda table, prefix: torch.tensor([-9.0, -9.0, -9.0, 5.0, -9.0, -9.0])  # ends at once
    results = search(model, [0, 1], [50, 50], length_penalty=0.0, beam=4, n_best=1)
    assert [ids_of(best) for best in results] == [[[]], [[]]]
    assert model.calls == [2]


@each_alpha
@pytest.mark.parametrize("beam", [2, 3])
def test_early_stopping_ends_when_no_hypothesis_has_a_higher_value_at_its_present_length(beam, alpha):
    tables, limits = list(range(30)), [6] * 30
    hasty, patient = TableModel(6), TableModel(6)
    early = search(hasty, tables, limits, beam=beam, length_penalty=alpha, n_best=1, early_stopping=True)
    expected = [plain_beam_search(hasty, table, 6, beam, alpha, is_early=True)[:1] for table in tables]
    assert [ids_of(best) for best in early] == expected
    exact = search(patient, tables, limits, beam=beam, length_penalty=alpha, n_best=1)
    assert all(a[0].normalised_score <= b[0].normalised_score + 1e-6 for a, b in zip(early, exact, strict=True))
    assert sum(hasty.calls) < sum(patient.calls) or alpha == 0


def test_a_hypothesis_at_the_limit_is_ended_at_the_price_of_eos():
    model = TableModel(6)
    (best,) = search(model, [4], [3], beam=5)
    assert max(len(hypothesis.ids) for hypothesis in best) == 3
    for hypothesis in best:
        assert hypothesis.score == pytest.approx(model.score(4, hypothesis.ids), abs=1e-4)
    assert ids_of(search(model, [4], [0], beam=3)[0]) == [[]]
    assert len(search(model, [3], [1], beam=50)[0]) == 1 + 3  # nothing, or one of the tokens 1, 4 and 5


def test_banned_tokens_and_impossible_tokens_are_never_produced():
    model, true_model = TableModel(6), TableModel(6)
    no_five = torch.tensor([0, 0, 0, 0, 0, -math.inf])
    model.logits = lambda table, prefix: true_model.logits(table, prefix) + no_five
    for best in search(model, [0, 1], [4, 4], beam=200):
        assert len(best) == 1 + 2 + 4 + 8 + 16  # tokens 1 and 4 remain
        assert {token for hypothesis in best for token in hypothesis.ids} == {1, 4}
        assert all(hypothesis.score > -math.inf for hypothesis in best)
    (best,) = search(true_model, [3], [4], beam=5, banned=(0, 1, 2))  # the others keep their scores
    assert best[0].score == pytest.approx(true_model.score(3, best[0].ids), abs=1e-4)


def test_equal_scores_come_out_in_the_same_order_every_time():
    model = TableModel(8)
    model.logits = lambda table, prefix: torch.zeros(8)
    first, second = (search(model, tables, [3] * len(tables), beam=5) for tables in ([0], [0, 1, 2]))
    assert second == first * 3


@pytest.mark.parametrize(("beam", "calls"), [(1, [3, 3, 2, 2, 1, 1]), (3, [3, 9, 6, 6, 3, 3])])
def test_finished_sentences_leave_the_batch(beam, calls):
    model = TableModel(6)
    model.logits = lambda table, prefix: torch.tensor([0.0, 9.0, 0.0, -20.0, 0.0, 0.0])  # hardly ever ends
    search(model, [1, 2, 3], [1, 3, 5], beam=beam)
    assert model.calls == calls  # first one row for each sentence: all its hypotheses are still the same
