import pytest
import torch

from seq2seq.search.diverse import DiverseBeamSearch
from tests.unit.search.tasks import BANNED, EOS, TableModel, ids_of, search


def plain_diverse_search(model, table, limit, beam, groups, diversity, alpha):
    """Position by position, group by group, with plain lists; no search stops before the limit."""
    size = beam // groups
    start: list[tuple[tuple[int, ...], float]] = [((), 0.0)]  # ids, and their score less what diversity took off
    live = [start] * groups
    ended = [[] for _ in range(groups)]
    for position in range(limit + 1):
        chosen = []
        for group in range(groups):
            candidates = []
            for ids, score in live[group]:
                for token, log_prob in enumerate(model.log_probs(table, ids)):
                    if token not in BANNED and (position < limit or token == EOS):
                        candidates.append(((*ids, token), score + log_prob - diversity * chosen.count(token)))
            candidates.sort(key=lambda candidate: -candidate[1])
            ended[group] += [(ids, score) for ids, score in candidates[:size] if ids[-1] == EOS]
            live[group] = [(ids, score) for ids, score in candidates if ids[-1] != EOS][:size]
            chosen += [ids[-1] for ids, _ in live[group]]
    best = set()
    for of_group in ended:
        best |= {ids[:-1] for ids, _ in sorted(of_group, key=lambda end: -end[1] / len(end[0]) ** alpha)[:size]}
    return sorted(best, key=lambda ids: -model.score(table, list(ids)) / (len(ids) + 1) ** alpha)


@pytest.mark.parametrize(("beam", "groups"), [(6, 3), (4, 4), (6, 2), (5, 1)])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0])
def test_groups_search_as_the_paper_says(beam, groups, alpha):
    model, tables, limits = TableModel(8), [*range(51, 59)], [5, 3, 4, 0, 6, 7, 1, 6]
    arguments = {"beam": beam, "groups": groups, "diversity": 0.7, "length_penalty": alpha}
    results = search(model, tables, limits, kind=DiverseBeamSearch, **arguments)
    for table, limit, best in zip(tables, limits, results, strict=True):
        expected = plain_diverse_search(model, table, limit, beam, groups, 0.7, alpha)
        assert [tuple(ids) for ids in ids_of(best)] == expected


def test_one_group_is_beam_search():
    model, tables, limits = TableModel(8), [51, 52, 53], [5, 3, 4]
    diverse = search(model, tables, limits, kind=DiverseBeamSearch, beam=4, diversity=3.0)
    assert diverse == search(model, tables, limits, beam=4)


def test_groups_go_on_while_a_longer_hypothesis_may_be_worth_more():
    model, always_four = TableModel(6), torch.tensor([-99.0, -99.0, -99.0, -99.0, 0.0, -99.0])
    start = torch.tensor([0.0, 0.05, 0.0, 0.6, 0.3, 0.05]).log()  # EOS is likelier than 4
    model.logits = lambda table, prefix: always_four if len(prefix) > 1 else start
    (best,) = search(model, [0], [30], beam=2, groups=2, diversity=0.0)
    assert ids_of(best) == [[]]  # the forced EOS at the limit costs 99 nats
    always_four[EOS] = -2.0
    (best,) = search(model, [0], [30], beam=2, groups=2, diversity=0.0)
    assert ids_of(best) == [[4] * 30]


def test_the_n_best_are_the_first_of_all():
    model, tables, limits = TableModel(9), [61, 62], [5, 6]
    everything = search(model, tables, limits, beam=6, groups=3, diversity=1.0)
    assert search(model, tables, limits, beam=6, groups=3, diversity=1.0, n_best=2) == [best[:2] for best in everything]
    assert all(len(best) > 2 for best in everything)
