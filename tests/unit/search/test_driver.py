"""What all searches do alike: scores, least lengths, rules, batches, and the refusal of NaN."""

import math

import pytest
import torch
from torch.testing import assert_close

from seq2seq.errors import UserError
from seq2seq.search.constrained import make_search
from seq2seq.search.driver import NextTokens, best_next, next_log_probs
from seq2seq.search.rules import BannedPhrases, ForcedPrefix, NoRepeatNgram
from tests.unit.search.tasks import EOS, KINDS, TableModel, ids_of, make_task, search

TABLES, LIMITS = [11, 12, 13], [6, 3, 8]
each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
def test_scores_are_the_models_own(kind):
    model = TableModel(9)
    for table, best in zip(TABLES, search(model, TABLES, LIMITS, length_penalty=0.6, **KINDS[kind]), strict=True):
        assert best
        for hypothesis in best:
            score = model.score(table, hypothesis.ids)
            assert hypothesis.score == pytest.approx(score, abs=1e-4)
            assert hypothesis.normalised_score == pytest.approx(score / (len(hypothesis.ids) + 1) ** 0.6, abs=1e-4)


@each_kind
@pytest.mark.parametrize("has_rules", [False, True])
def test_sentences_searched_together_come_out_as_alone(kind, has_rules):
    model, prefixes, least = TableModel(9), [[6], [], [7, 7, 1]], [2, 0, 5] if has_rules else [0, 0, 0]

    def rules(sentences):
        free = [NoRepeatNgram(2), BannedPhrases([[5, 8], [7, 6, 1]])]
        return [ForcedPrefix([prefixes[i] for i in sentences], free)] if has_rules else []

    of_all = {**KINDS[kind], "keys": [1, 2, 3]}
    of_sentence = {name: of_all.pop(name) for name in ("phrases", "keys") if name in of_all}
    together = search(model, TABLES, LIMITS, rules=rules(range(3)), min_lengths=least, **of_all, **of_sentence)
    for i, best in enumerate(together):
        of_this = {name: [values[i]] for name, values in of_sentence.items()}
        alone = search(model, [TABLES[i]], [LIMITS[i]], rules=rules([i]), min_lengths=[least[i]], **of_all, **of_this)
        assert best
        assert [best] == alone
    assert not has_rules or {hypothesis.ids[0] for hypothesis in together[0]} == {6}


@each_kind
def test_least_lengths_are_kept(kind):
    model = TableModel(9)
    model.logits = lambda table, prefix: TableModel(9).logits(table, prefix) + 6 * torch.eye(9)[EOS]  # ends at once

    arguments = {"min_lengths": [4, 0, 6], "length_penalty": 0.0, **KINDS[kind]}
    lengths = [[len(ids) for ids in ids_of(best)] for best in search(model, TABLES, [20] * 3, **arguments)]
    assert list(map(min, lengths)) == [4, 0, 6]
    assert len(model.calls) < 20


@pytest.mark.parametrize("least", [1, 3])
def test_a_wide_beam_finds_exactly_the_sequences_that_are_long_enough(least):
    model = TableModel(6)
    expected = [ids for ids in model.all_sequences(31, 4) if len(ids) >= least]
    for n_best in (1, 100):
        assert ids_of(search(model, [31], [4], beam=200, n_best=n_best, min_lengths=[least])[0]) == expected[:n_best]
    assert ids_of(search(model, [31], [4], beam=20, n_best=1, min_lengths=[least])[0]) == expected[:1]  # fast path


@pytest.mark.parametrize("phrases", [[], [[[4, 6]], [[5], [1, 1]], [], [[6]], [[1]], [[5, 5]]]], ids=["none", "some"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("n_best", [1, 3])
def test_dropping_hopeless_hypotheses_saves_work_and_changes_no_result(alpha, n_best, phrases):
    tables, limits, patient, hasty = list(range(6)), [7] * 6, TableModel(7), TableModel(7)
    arguments = {"phrases": phrases, "beam": 6, "length_penalty": alpha}
    expected = search(patient, tables, limits, **arguments)
    best = search(hasty, tables, limits, n_best=n_best, **arguments)
    assert best == [all_best[:n_best] for all_best in expected]
    assert sum(hasty.calls) <= sum(patient.calls)


@each_kind
@pytest.mark.parametrize("rules", [(), [NoRepeatNgram(2)]], ids=["plain", "with a rule"])
@pytest.mark.parametrize("tokens", [4, slice(None)], ids=["one", "all"])
def test_scores_that_are_nan_are_refused(kind, rules, tokens):
    model, true_model = TableModel(9), TableModel(9)

    def damaged(table, prefix):
        logits = true_model.logits(table, prefix)
        if table == TABLES[1]:
            logits[tokens] = math.nan
        return logits

    model.logits = damaged
    with pytest.raises(UserError, match=r"the model's scores are not numbers \(NaN\): its weights are damaged"):
        search(model, TABLES, LIMITS, rules=rules, **KINDS[kind])


@each_kind
def test_nothing_to_search_gives_nothing(kind):
    arguments = {**KINDS[kind], "phrases": [], "kind": type(make_search(make_task(LIMITS, **KINDS[kind])))}
    assert search(TableModel(6), [], [], **arguments) == []


def forbidding(rows: int, size: int, *tokens: int) -> torch.Tensor:
    return torch.zeros(rows, size, dtype=torch.bool).index_fill_(1, torch.tensor(tokens), True)


def test_log_probabilities_of_allowed_tokens_are_the_models_own():
    logits = torch.randn(3, 7, dtype=torch.float64)
    before, expected = logits.clone(), logits.log_softmax(-1)
    expected[:, [0, 4]] = -torch.inf
    assert_close(next_log_probs(logits, forbidding(3, 7, 0, 4)), expected)
    assert_close(logits, before)  # the model's tensor is not changed


@pytest.mark.parametrize("count", [1, 5, 300])
def test_the_best_tokens_are_those_of_a_sort(count):
    logits, forbidden = torch.randn(4, 130), forbidding(4, 130, 0, 5)
    forbidden[1, 7:] = True
    values, tokens = NextTokens(logits, forbidden, best_next).best(count)
    expected = next_log_probs(logits, forbidden).sort(-1, descending=True)
    assert_close(torch.tensor(values), expected.values[:, :count])
    is_allowed = torch.tensor(values) > -torch.inf
    assert torch.equal(torch.tensor(tokens)[is_allowed], expected.indices[:, :count][is_allowed])
