import pytest
import torch

from seq2seq.search.diverse import DiverseBeamSearch
from tests.unit.search.tasks import BANNED, BOS, EOS, ids_of, search


def obvious_diverse_search(model, table, limit, beam, groups, diversity, alpha):
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
                logits = model.logits(table, (BOS, *ids))
                log_probs = logits.log_softmax(-1).tolist()
                for token, log_prob in enumerate(log_probs):
                    if token not in BANNED and (position < limit or token == EOS):
                        candidates.append(((*ids, token), score + log_prob - diversity * chosen.count(token)))
            candidates.sort(key=lambda one: -one[1])
            ended[group] += [one for one in candidates[:size] if one[0][-1] == EOS]
            live[group] = [one for one in candidates if one[0][-1] != EOS][:size]
            chosen += [ids[-1] for ids, _ in live[group]]
    best = set()
    for of_group in ended:
        best |= {ids[:-1] for ids, _ in sorted(of_group, key=lambda one: -one[1] / len(one[0]) ** alpha)[:size]}
    return sorted(best, key=lambda ids: -model.score(table, list(ids)) / (len(ids) + 1) ** alpha)


@pytest.mark.parametrize(("beam", "groups"), [(6, 3), (4, 4), (6, 2), (5, 1)])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0])
def test_groups_search_as_the_paper_says(table_model, beam, groups, alpha):
    model, tables, limits = table_model(8), [*range(51, 59)], [5, 3, 4, 0, 6, 7, 1, 6]
    arguments = {"beam": beam, "groups": groups, "diversity": 0.7, "length_penalty": alpha}
    found = search(model, tables, limits, kind=DiverseBeamSearch, **arguments)
    for table, limit, best in zip(tables, limits, found, strict=True):
        expected = obvious_diverse_search(model, table, limit, beam, groups, 0.7, alpha)
        assert [tuple(one.ids) for one in best] == expected


def test_groups_stop_early_once_none_can_find_better(table_model):
    model = table_model(6)
    model.logits = lambda table, prefix: torch.tensor([-9.0, -9.0, -9.0, 5.0, -9.0, -9.0])  # ends at once
    found = search(model, [0, 1], [50, 50], beam=3, groups=3, length_penalty=0.0)
    assert [ids_of(best) for best in found] == [[[]], [[]]]
    assert model.calls == [2]


def test_one_group_is_beam_search(table_model):
    model, tables, limits = table_model(8), [51, 52, 53], [5, 3, 4]
    diverse = search(model, tables, limits, kind=DiverseBeamSearch, beam=4, diversity=3.0)
    assert diverse == search(model, tables, limits, beam=4)


def test_more_diversity_makes_first_tokens_differ(table_model):
    model = table_model(12)
    (alike,) = search(model, [54], [4], beam=4, groups=4, diversity=0.0)
    (different,) = search(model, [54], [4], beam=4, groups=4, diversity=100.0)
    assert len(alike) == 1  # all groups find the same
    assert len({tuple(one.ids[:1]) for one in different}) == 4


def test_groups_go_on_while_a_longer_hypothesis_may_be_worth_more(table_model):
    model, always_four = table_model(6), torch.tensor([-99.0, -99.0, -99.0, -99.0, 0.0, -99.0])
    start = torch.tensor([0.0, 0.05, 0.0, 0.6, 0.3, 0.05]).log()  # EOS is likelier than 4
    model.logits = lambda table, prefix: always_four if len(prefix) > 1 else start
    (found,) = search(model, [0], [30], beam=2, groups=2, diversity=0.0)
    assert ids_of(found) == [[]]  # the forced EOS at the limit costs 99 nats
    always_four[EOS] = -2.0
    (found,) = search(model, [0], [30], beam=2, groups=2, diversity=0.0)
    assert ids_of(found) == [[4] * 30]


def test_fewer_hypotheses_wanted_are_the_first_of_all(table_model):
    model, tables, limits = table_model(9), [61, 62], [5, 6]
    everything = search(model, tables, limits, beam=6, groups=3, diversity=1.0)
    assert search(model, tables, limits, beam=6, groups=3, diversity=1.0, n_best=2) == [best[:2] for best in everything]
    assert all(len(best) > 2 for best in everything)
