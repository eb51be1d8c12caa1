import math

import pytest
import torch

from seq2seq.search.beam import BeamSearch
from seq2seq.search.driver import SearchTask
from seq2seq.search.greedy import GreedySearch
from seq2seq.settings.search import SearchConfig

TABLES, LIMITS = [21, 22, 23, 24, 25, 26], [5, 0, 12, 3, 30, 7]


def task(limits, alpha=1.0):
    settings = SearchConfig(beam=1, length_penalty=alpha)
    return SearchTask(settings=settings, bos=2, eos=3, max_lengths=limits, device="cpu", banned=(0, 2))


def obvious_greedy(model, table, limit):
    ids = []
    while len(ids) < limit:
        logits = model.logits(table, (2, *ids))
        logits[[0, 2]] = -math.inf
        token = int(logits.argmax())
        if token == 3:
            break
        ids.append(token)
    return ids


def test_greedy_search_follows_the_likeliest_token(table_model):
    model = table_model(7)
    found = GreedySearch(task(LIMITS)).run(model.step, model.start(TABLES))
    assert [best[0].ids for best in found] == [
        obvious_greedy(model, table, limit) for table, limit in zip(TABLES, LIMITS, strict=True)
    ]
    for table, (best,) in zip(TABLES, found, strict=True):
        assert best.score == pytest.approx(model.score(table, best.ids), abs=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
def test_a_beam_of_one_is_greedy_search(table_model, alpha):
    model = table_model(7)
    greedy = GreedySearch(task(LIMITS, alpha)).run(model.step, model.start(TABLES))
    beam = BeamSearch(task(LIMITS, alpha)).run(model.step, model.start(TABLES))
    assert greedy == beam
    assert len({len(best[0].ids) for best in greedy}) > 2


def test_greedy_search_takes_finished_sentences_out_of_the_batch(table_model):
    model = table_model(7)
    model.logits = lambda table, prefix: torch.tensor([0.0, 9.0, 0.0, 1.0, 0.0, 0.0, 0.0])  # always token 1
    GreedySearch(task([1, 2, 3, 3, 3, 5])).run(model.step, model.start(TABLES))
    assert model.calls == [6, 6, 5, 4, 1, 1]


def test_scores_that_are_no_numbers_give_no_hypothesis(table_model):
    model = table_model(7)
    model.logits = lambda table, prefix: torch.full((7,), math.nan)
    found = GreedySearch(task(LIMITS)).run(model.step, model.start(TABLES))
    assert found == [[]] * 6
