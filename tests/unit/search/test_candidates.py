"""What a beam search shows of its steps; explain turns these candidates into text."""

from itertools import pairwise

import pytest

from seq2seq.interface import Candidate
from tests.unit.search.tasks import EOS, prefix_score, search

TABLES, LIMITS, BEAM = [4, 7, 9], [3, 5, 4], 3


def shown(model, tables, limits, **settings) -> list[list[Candidate]]:
    """The candidates in the order in which the search shows them: step by step, sentence by sentence."""
    steps: list[list[Candidate]] = []
    settings = {"beam": BEAM, "n_best": 1, **settings}
    found = search(model, tables, limits, on_candidates=steps.append, **settings)
    assert found == search(model, tables, limits, **settings)
    return steps


@pytest.fixture(params=[{}, {"length_penalty": 0.0}, {"early_stopping": True}, {"min_lengths": [2]}], ids=str)
def steps(request, table_model) -> list[list[Candidate]]:
    return shown(table_model(9), [9], [6], **request.param)


def test_candidates_come_best_first_and_are_twice_as_many_as_the_beam(steps):
    for candidates in steps:
        scores = [one.score for one in candidates]
        assert scores == sorted(scores, reverse=True)
        assert len(candidates) <= 2 * BEAM
    assert len(steps[0]) == 2 * BEAM


def test_live_candidates_are_those_that_the_next_step_continues(steps):
    for now, later in zip(steps, [*steps[1:], []], strict=True):
        live = [one for one in now if one.is_live]
        assert {one.parent for one in later} <= set(range(len(live)))
        assert bool(live) == bool(later)
        assert not any(one.token == EOS for one in live)
        assert len(live) <= BEAM
        for one in later:
            assert one.score <= live[one.parent].score


def test_every_live_hypothesis_is_a_parent_of_candidates_when_all_candidates_are_shown(table_model):
    steps = shown(table_model(5), [4], [3], beam=50)
    for now, later in pairwise(steps):
        assert {one.parent for one in later} == set(range(sum(one.is_live for one in now)))


@pytest.mark.parametrize("beam", [1, BEAM])
def test_parents_and_tokens_spell_every_hypothesis_that_has_the_score(table_model, beam):
    model = table_model(6)
    live, ended = [()], {}
    for candidates in shown(model, [4], [4], beam=beam):
        continued = [(*live[one.parent], one.token) for one in candidates]
        for ids, one in zip(continued, candidates, strict=True):
            assert one.score == pytest.approx(prefix_score(model, 4, ids), abs=1e-4)
            if one.token == EOS:
                ended[ids[:-1]] = one.score
        live = [ids for ids, one in zip(continued, candidates, strict=True) if one.is_live]
    ((best,),) = search(model, [4], [4], beam=beam, n_best=1)
    assert best.score == pytest.approx(ended[tuple(best.ids)])


def test_sentences_searched_together_are_shown_as_alone(table_model):
    model = table_model(6)
    together = shown(model, TABLES, LIMITS)
    alone = [shown(model, [table], [limit]) for table, limit in zip(TABLES, LIMITS, strict=True)]
    by_step = [steps[i] for i in range(max(map(len, alone))) for steps in alone if i < len(steps)]
    assert together == by_step
