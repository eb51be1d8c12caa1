import math

import pytest
import torch

from seq2seq.search.beam import BeamSearch
from seq2seq.search.driver import SearchTask
from seq2seq.settings.search import SearchConfig

ALPHAS = (0.0, 0.6, 1.0, 2.0)
BOS, EOS = 2, 3
BANNED = (0, BOS)


def search(model, tables, limits, *, beam, alpha, n_best=None, banned=BANNED, early=False):
    task = SearchTask(
        settings=SearchConfig(beam=beam, length_penalty=alpha, early_stopping=early),
        bos=BOS,
        eos=EOS,
        max_lengths=limits,
        device="cpu",
        n_best=beam if n_best is None else n_best,
        banned=banned,
    )
    return BeamSearch(task).run(model.step, model.start(tables))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("vocab_size", [5, 6])  # 5 has blocks of 1 token, 6 of 2
def test_a_wide_enough_beam_finds_what_exhaustive_search_finds(table_model, alpha, vocab_size):
    longest = 9 - vocab_size
    for table in range(5):
        model = table_model(vocab_size)
        expected = model.all_sequences(table, longest, alpha, BANNED)
        found = search(model, [table], [longest], beam=len(expected), alpha=alpha)[0]
        assert [hypothesis.ids for hypothesis in found] == expected
        for hypothesis in found:
            score = model.score(table, hypothesis.ids)
            assert hypothesis.score == pytest.approx(score, abs=1e-4)
            assert hypothesis.normalised_score == pytest.approx(score / (len(hypothesis.ids) + 1) ** alpha, abs=1e-4)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n_best", [1, 3])
def test_stopping_early_gives_the_same_best_hypotheses_as_going_on(table_model, alpha, n_best):
    tables, limits = list(range(8)), [9] * 8
    patient, hasty = table_model(7), table_model(7)
    all_of_them = search(patient, tables, limits, beam=6, alpha=alpha)
    assert search(hasty, tables, limits, beam=6, alpha=alpha, n_best=n_best) == [best[:n_best] for best in all_of_them]
    assert sum(hasty.calls) <= sum(patient.calls)


def test_stopping_early_saves_steps_once_nothing_can_be_overtaken(table_model):
    model = table_model(6)
    model.logits = lambda table, prefix: torch.tensor([-9.0, -9.0, -9.0, 5.0, -9.0, -9.0])  # ends at once
    found = search(model, [0, 1], [50, 50], beam=4, alpha=0.0, n_best=1)
    assert [best[0].ids for best in found] == [[], []]
    assert model.calls == [2]


def one_by_one(model, table, limit, beam, alpha):
    """Early stopping as written: one list of prefixes, and the k best that ended."""
    live, ended = [(0.0, ())], []
    for length in range(1, limit + 2):
        longer = []
        for score, ids in live:
            steps = model.logits(table, (BOS, *ids)).log_softmax(-1).tolist()
            tokens = [EOS] if length > limit else [token for token in range(model.vocab_size) if token not in BANNED]
            longer += [(score + steps[token], (*ids, token)) for token in tokens]
        longer.sort(reverse=True)
        ended += [(score / length**alpha, ids[:-1]) for score, ids in longer[:beam] if ids[-1] == EOS]
        ended = sorted(ended, reverse=True)[:beam]
        live = [one for one in longer if one[1][-1] != EOS][:beam]
        if not live or (len(ended) == beam and live[0][0] / length**alpha <= ended[-1][0]):
            break
    return list(ended[0][1])


@pytest.mark.parametrize("beam", [2, 3])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_early_stopping_ends_when_nothing_is_worth_more_at_its_present_length(table_model, beam, alpha):
    tables, limits = list(range(30)), [6] * 30
    hasty, patient = table_model(6), table_model(6)
    found = search(hasty, tables, limits, beam=beam, alpha=alpha, n_best=1, early=True)
    assert [best[0].ids for best in found] == [one_by_one(hasty, table, 6, beam, alpha) for table in tables]
    exact = search(patient, tables, limits, beam=beam, alpha=alpha, n_best=1)
    assert all(a[0].normalised_score <= b[0].normalised_score + 1e-6 for a, b in zip(found, exact, strict=True))
    assert sum(hasty.calls) < sum(patient.calls) or alpha == 0


@pytest.mark.parametrize("beam", [1, 2, 3, 7])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_sentences_searched_together_come_out_as_alone(table_model, beam, alpha):
    tables, limits = [11, 12, 13, 14, 15], [4, 0, 9, 2, 6]
    model = table_model(9)
    together = search(model, tables, limits, beam=beam, alpha=alpha)
    alone = [
        search(model, [table], [limit], beam=beam, alpha=alpha)[0] for table, limit in zip(tables, limits, strict=True)
    ]
    assert together == alone


def test_finished_sentences_leave_the_batch(table_model):
    model = table_model(6)
    model.logits = lambda table, prefix: torch.tensor([0.0, 9.0, 0.0, -20.0, 0.0, 0.0])  # hardly ever ends
    search(model, [1, 2, 3], [1, 3, 5], beam=3, alpha=1.0)
    assert model.calls == [3, 9, 6, 6, 3, 3]  # at first one row a sentence: all its hypotheses are still the same


def test_a_hypothesis_at_the_limit_is_ended_at_the_price_of_eos(table_model):
    model = table_model(6)
    (found,) = search(model, [4], [3], beam=5, alpha=1.0)
    assert max(len(hypothesis.ids) for hypothesis in found) == 3
    for hypothesis in found:
        assert hypothesis.score == pytest.approx(model.score(4, hypothesis.ids), abs=1e-4)


def test_a_limit_of_no_tokens_gives_the_empty_hypothesis(table_model):
    model = table_model(6)
    (found,) = search(model, [4], [0], beam=3, alpha=1.0)
    assert [hypothesis.ids for hypothesis in found] == [[]]


def test_banned_tokens_and_impossible_ones_are_never_produced(table_model):
    model = table_model(6)
    true_logits = model.logits

    def impossible_five(table, prefix):
        logits = true_logits(table, prefix)
        logits[5] = -math.inf
        return logits

    model.logits = impossible_five
    found = search(model, [0, 1], [4, 4], beam=200, alpha=1.0)
    for best in found:
        assert len(best) == 1 + 2 + 4 + 8 + 16  # tokens 1 and 4 remain
        assert {token for hypothesis in best for token in hypothesis.ids} == {1, 4}
        assert all(hypothesis.score > -math.inf for hypothesis in best)


def test_banning_a_token_leaves_the_scores_of_the_others_as_they_are(table_model):
    model = table_model(6)
    (found,) = search(model, [3], [4], beam=5, alpha=1.0, banned=(0, 1, 2))
    assert found[0].score == pytest.approx(model.score(3, found[0].ids), abs=1e-4)


def test_fewer_hypotheses_come_where_fewer_exist(table_model):
    model = table_model(6)
    (found,) = search(model, [3], [1], beam=50, alpha=1.0)
    assert len(found) == 1 + 3  # nothing, or one of the tokens 1, 4 and 5


def test_equal_scores_come_out_in_the_same_order_every_time(table_model):
    model = table_model(8)
    model.logits = lambda table, prefix: torch.zeros(8)
    first, second = (search(model, tables, [3] * len(tables), beam=5, alpha=1.0) for tables in ([0], [0, 1, 2]))
    assert second == first * 3


def test_nothing_to_search_gives_nothing(table_model):
    assert search(table_model(6), [], [], beam=3, alpha=1.0) == []


def test_scores_that_are_no_numbers_give_no_hypothesis_and_no_endless_loop(table_model):
    model = table_model(6)
    model.logits = lambda table, prefix: torch.full((6,), math.nan)
    assert search(model, [0, 1], [3, 5], beam=2, alpha=1.0) == [[], []]


@pytest.mark.parametrize("n_best", [0, 4])
def test_more_hypotheses_than_the_beam_holds_are_refused(table_model, n_best):
    with pytest.raises(ValueError, match=f"beam=3 n_best={n_best}: needs 1 <= n_best <= beam"):
        search(table_model(6), [0], [3], beam=3, alpha=1.0, n_best=n_best)


@pytest.mark.parametrize("beam", [1, 3])
def test_a_sentence_with_a_score_that_is_no_number_finds_nothing(table_model, beam):
    model = table_model(6)
    true_logits = model.logits

    def damaged(table, prefix):
        logits = true_logits(table, prefix)
        logits[4] = math.nan if table == 1 else logits[4]
        return logits

    model.logits = damaged
    found = search(model, [0, 1, 2], [4, 4, 4], beam=beam, alpha=1.0)
    assert [len(best) for best in found] == [beam, 0, beam]
