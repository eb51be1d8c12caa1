import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from seq2seq.search.beam import BeamSearch
from seq2seq.search.driver import SearchTask
from seq2seq.search.step import Coverage
from seq2seq.settings.search import SearchConfig

BOS, EOS, WORDS = 2, 3, 4  # WORDS: source tokens, the last of sentence 1 is padding


@dataclass(frozen=True)
class Watching:
    """A table model's state that also tells how its last tokens attended."""

    inner: Any
    attention: torch.Tensor | None = None

    def reorder(self, rows, counts):
        return Watching(self.inner.reorder(rows, counts))


def attended(table, prefix):
    """What the step after a prefix attends to, a row that sums to 1."""
    draws = torch.rand(WORDS, generator=torch.Generator().manual_seed(hash((table, prefix)) % 2**31)) ** 4
    if table == 62:
        draws[-1] = 0
    return draws / draws.sum()


def watching_step(model):
    def step(last, state):
        logits, inner = model.step(last, state.inner)
        rows = [attended(table, prefix) for table, prefix in zip(inner.tables, inner.prefixes, strict=True)]
        return logits, Watching(inner, torch.stack(rows))

    return step


def search(model, tables, weight, beam, n_best=None):
    start = torch.tensor([[0.0] * 3 + [float(table == 62)] for table in tables])
    coverage = Coverage(weight, start, lambda state: state.attention)
    wanted = task(len(tables), coverage, beam, beam if n_best is None else n_best)
    return BeamSearch(wanted).run(watching_step(model), Watching(model.start(tables)))


def task(sentences, coverage, beam, n_best):
    return SearchTask(
        settings=SearchConfig(beam=beam),
        bos=BOS,
        eos=EOS,
        max_lengths=[4] * sentences,
        device="cpu",
        n_best=n_best,
        banned=(0, BOS),
        coverage=coverage,
    )


def value(model, table, ids, weight):
    total = torch.stack([attended(table, (BOS, *ids[:place])) for place in range(len(ids) + 1)]).sum(0)
    words = total[:3] if table == 62 else total
    return model.score(table, ids) / (len(ids) + 1) + weight * sum(
        math.log(min(share, 1.0)) for share in words.tolist()
    )


@pytest.mark.parametrize("weight", [0.05, 0.5])
def test_hypotheses_are_worth_their_score_and_their_coverage(table_model, weight):
    model = table_model(6)
    found = search(model, [61, 62], weight, beam=400)
    for table, best in zip((61, 62), found, strict=True):
        everything = model.all_sequences(table, 4, 1.0, (0, BOS))
        expected = sorted(everything, key=lambda ids: value(model, table, ids, weight), reverse=True)
        assert [one.ids for one in best] == expected
        for one in best[:30]:
            assert one.normalised_score == pytest.approx(value(model, table, one.ids, weight), abs=1e-4)
            assert one.score == pytest.approx(model.score(table, one.ids), abs=1e-4)
        assert expected != everything


def test_stopping_early_and_searching_together_change_nothing(table_model):
    model = table_model(6)
    patient = search(model, [61, 62, 63], 0.2, beam=5)
    assert search(model, [61, 62, 63], 0.2, beam=5, n_best=1) == [best[:1] for best in patient]
    assert patient == [search(model, [table], 0.2, beam=5)[0] for table in (61, 62, 63)]


def test_no_weight_is_no_penalty(table_model):
    model = table_model(6)
    plain = [dataclasses.replace(one) for one in search(model, [61], 0.0, beam=5)[0]]
    assert [one.ids for one in plain] == [one.ids for one in search(model, [61], 1e-9, beam=5)[0]]
    assert plain[0].normalised_score == pytest.approx(plain[0].score / (len(plain[0].ids) + 1), abs=1e-6)


def test_a_source_token_that_is_never_attended_to_costs_much_and_not_infinitely_much(table_model):
    model = table_model(6)

    def step(last, state):
        logits, watching = watching_step(model)(last, state)
        assert watching.attention is not None
        return logits, Watching(watching.inner, watching.attention * torch.tensor([1.0, 1, 1, 0]))

    coverage = Coverage(0.2, torch.zeros(1, WORDS), lambda state: state.attention)
    (found,) = BeamSearch(task(1, coverage, 3, 3)).run(step, Watching(model.start([61])))
    assert len(found) == 3
    for one in found:
        total = torch.stack([attended(61, (BOS, *one.ids[:place])) for place in range(len(one.ids) + 1)]).sum(0)
        penalty = sum(math.log(min(share, 1.0)) for share in total[:3].tolist()) + math.log(2**-126)
        assert one.score == pytest.approx(model.score(61, one.ids), abs=1e-4)
        assert one.normalised_score == pytest.approx(one.score / (len(one.ids) + 1) + 0.2 * penalty, abs=1e-4)
