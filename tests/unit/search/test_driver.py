"""What all searches do alike: forced ends, least lengths, rules, batches, and the refusal of NaN."""

import math

import pytest
import torch
from torch.testing import assert_close

from seq2seq.errors import UserError
from seq2seq.search import make_search
from seq2seq.search.driver import SearchState, force_end
from seq2seq.search.next_tokens import best_next
from seq2seq.search.rules import BannedPhrases, ForcedPrefix, NoRepeatNgram, RepetitionPenalty
from tests.unit.search.tasks import BANNED, EOS, KINDS, ids_of, make_task, search

TABLES, LIMITS = [11, 12, 13], [6, 3, 8]
each_kind = pytest.mark.parametrize("kind", KINDS)


def test_rows_forced_to_end_keep_only_eos_at_its_own_price():
    log_probs = torch.randn(3, 7).log_softmax(-1)
    forced = force_end(log_probs, torch.tensor([False, True, False]), eos=5)
    assert_close(forced[[0, 2]], log_probs[[0, 2]])
    assert forced[1, 5] == log_probs[1, 5]
    assert torch.isneginf(forced[1, [0, 1, 2, 3, 4, 6]]).all()


def test_a_search_state_is_anything_that_can_be_reordered(table_model):
    assert isinstance(table_model(5).start([1, 2]), SearchState)
    assert not isinstance([1, 2], SearchState)


def test_the_settings_and_phrases_choose_the_search():
    names = [type(make_search(make_task(LIMITS, **arguments))).__name__ for arguments in KINDS.values()]
    assert names == [*["BeamSearch"] * 3, "SampleSearch", "DiverseBeamSearch", *["ConstrainedBeamSearch"] * 2]


@each_kind
def test_scores_are_the_models_own(table_model, kind):
    model = table_model(9)
    for table, found in zip(TABLES, search(model, TABLES, LIMITS, length_penalty=0.6, **KINDS[kind]), strict=True):
        assert found
        for one in found:
            score = model.score(table, one.ids)
            assert one.score == pytest.approx(score, abs=1e-4)
            assert one.normalised_score == pytest.approx(score / (len(one.ids) + 1) ** 0.6, abs=1e-4)


def alone(model, rules, least, **arguments):
    """Every sentence searched by itself; rules(i) are the rules of sentences i."""
    given = {name: [[own] for own in arguments.pop(name)] for name in ("phrases", "keys") if name in arguments}
    return [
        search(model, [TABLES[i]], [LIMITS[i]], rules=rules([i]), min_lengths=[least[i]], **arguments,
               **{name: values[i] for name, values in given.items()})[0]
        for i in range(len(TABLES))
    ]  # fmt: skip


@each_kind
def test_sentences_searched_together_come_out_as_alone(table_model, kind):
    model, prefixes, least = table_model(9), [[6], [], [7, 7, 1]], [2, 0, 5]

    def rules(sentences):
        free = [RepetitionPenalty(1.3), NoRepeatNgram(2), BannedPhrases([[5, 8], [7, 6, 1]])]
        return [ForcedPrefix([prefixes[i] for i in sentences], free)]

    arguments = {**KINDS[kind], "keys": [1, 2, 3]}
    for of_sentences, shortest in ((lambda _: (), [0] * 3), (rules, least)):
        together = search(model, TABLES, LIMITS, rules=of_sentences(range(3)), min_lengths=shortest, **arguments)
        assert together == alone(model, of_sentences, shortest, **arguments)
        assert all(together)
    assert [one.ids[:1] for one in together[0]] == [[6]] * len(together[0])


@each_kind
def test_least_lengths_are_kept_and_need_no_rule(table_model, kind):
    model, counts = table_model(9), []
    model.logits = lambda table, prefix: table_model(9).logits(table, prefix) + 6 * torch.eye(9)[EOS]  # ends at once

    def find_best(logits, banned, count):
        counts.append(count)
        return best_next(logits, banned, count)

    arguments = {"min_lengths": [4, 0, 6], "find_best": find_best, "length_penalty": 0.0, **KINDS[kind]}
    found = search(model, TABLES, [20] * 3, **arguments)
    assert [min(len(one.ids) for one in best) for best in found] == [4, 0, 6]
    reads_all = kind == "sampling" or kind.startswith("constrained")  # these searches read the scores of all tokens
    assert len(counts) == (0 if reads_all else len(model.calls))
    assert len(model.calls) < 20


@pytest.mark.parametrize("least", [1, 3])
def test_a_wide_beam_finds_exactly_the_sequences_that_are_long_enough(table_model, least):
    model = table_model(6)
    expected = [ids for ids in model.all_sequences(31, 4, 1.0, BANNED) if len(ids) >= least]
    for n_best in (1, 100):
        assert ids_of(search(model, [31], [4], beam=200, n_best=n_best, min_lengths=[least])[0]) == expected[:n_best]
    assert ids_of(search(model, [31], [4], beam=20, n_best=1, min_lengths=[least])[0]) == expected[:1]  # fast path


@each_kind
@pytest.mark.parametrize("has_rules", [False, True])
@pytest.mark.parametrize("is_partly", [False, True])
def test_scores_that_are_nan_are_refused(table_model, kind, has_rules, is_partly):
    model, true_model = table_model(9), table_model(9)

    def damaged(table, prefix):
        logits = true_model.logits(table, prefix)
        if table == TABLES[1]:
            logits[4 if is_partly else slice(None)] = math.nan
        return logits

    model.logits = damaged
    with pytest.raises(UserError, match=r"the model's scores are not numbers \(NaN\): its weights are damaged"):
        search(model, TABLES, LIMITS, rules=[NoRepeatNgram(2)] if has_rules else (), **KINDS[kind])


@each_kind
def test_nothing_to_search_gives_nothing(table_model, kind):
    arguments = {**KINDS[kind], "phrases": [], "kind": type(make_search(make_task(LIMITS, **KINDS[kind])))}
    assert search(table_model(6), [], [], **arguments) == []


@pytest.mark.parametrize("n_best", [0, 4])
def test_more_hypotheses_than_the_beam_holds_are_refused(n_best):
    with pytest.raises(ValueError, match=f"beam=3 n_best={n_best}: needs 1 <= n_best <= beam"):
        make_task([3], beam=3, n_best=n_best)
    with pytest.raises(ValueError, match="n_best=0: needs 1 <= n_best"):
        make_task([3], sampling=True, n_best=0)
