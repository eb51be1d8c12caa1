"""What a beam search shows of its steps; explain turns these candidates into text."""

from itertools import pairwise

import pytest

from seq2seq.interface import Candidate
from tests.unit.search.tasks import EOS, TableModel, search

BEAM = 3


def candidates_of(model, tables, limits, **settings) -> list[list[Candidate]]:
    """Return the candidates in the order of the search: step by step, sentence by sentence."""
    steps: list[list[Candidate]] = []
    settings = {"beam": BEAM, "n_best": 1, **settings}
    best = search(model, tables, limits, on_candidates=steps.append, **settings)
    assert best == search(model, tables, limits, **settings)
    return steps


@pytest.mark.parametrize(
    "settings", [{}, {"length_penalty": 0.0}, {"early_stopping": True}, {"min_lengths": [2]}], ids=str
)
def test_live_candidates_are_those_that_the_next_step_continues(settings):
    steps = candidates_of(TableModel(9), [9], [6], **settings)
    assert len(steps[0]) == 2 * BEAM
    for now, later in pairwise([*steps, []]):
        scores = [candidate.score for candidate in now]
        assert scores == sorted(scores, reverse=True)
        assert len(now) <= 2 * BEAM
        live = [candidate for candidate in now if candidate.is_live]
        assert not any(candidate.token == EOS for candidate in live)
        assert len(live) <= BEAM
        assert bool(live) == bool(later)
        assert all(candidate.score <= live[candidate.parent].score for candidate in later)


@pytest.mark.parametrize("beam", [1, BEAM])
def test_parents_and_tokens_spell_every_hypothesis_that_has_the_score(beam):
    model = TableModel(6)
    live, ended = [()], {}
    for candidates in candidates_of(model, [4], [4], beam=beam):
        continued = [((*live[candidate.parent], candidate.token), candidate) for candidate in candidates]
        for ids, candidate in continued:
            assert candidate.score == pytest.approx(model.prefix_score(4, ids), abs=1e-4)
            if candidate.token == EOS:
                ended[ids[:-1]] = candidate.score
        live = [ids for ids, candidate in continued if candidate.is_live]
    ((best,),) = search(model, [4], [4], beam=beam, n_best=1)
    assert best.score == pytest.approx(ended[tuple(best.ids)])


def test_sentences_searched_together_have_the_candidates_as_alone():
    model, tables, limits = TableModel(6), [4, 7, 9], [3, 5, 4]
    alone = [candidates_of(model, [table], [limit]) for table, limit in zip(tables, limits, strict=True)]
    by_step = [steps[i] for i in range(max(map(len, alone))) for steps in alone if i < len(steps)]
    assert candidates_of(model, tables, limits) == by_step
