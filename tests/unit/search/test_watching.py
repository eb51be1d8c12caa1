"""What a beam search shows to whoever watches it; how it is told as text is tested in explain."""

import pytest

from seq2seq.search.beam import BeamSearch
from seq2seq.search.driver import SearchTask
from seq2seq.search.step import Step
from seq2seq.settings.search import SearchConfig

BOS, EOS = 2, 3
TABLES, LIMITS = [4, 7, 9], [3, 5, 4]


def search(model, tables, limits, watcher=None):
    settings = SearchConfig(beam=2)
    task = SearchTask(settings=settings, bos=BOS, eos=EOS, max_lengths=limits, device="cpu", n_best=2, watcher=watcher)
    return BeamSearch(task).run(model.step, model.start(tables))


def shown(model, tables, limits):
    """What was shown of each sentence: tokens, parents, scores, places and whether they live, step by step."""
    seen: dict[int, list[tuple]] = {}

    def watch(step: Step) -> None:
        for row, number in enumerate(step.sentences):
            scores = [round(score, 4) for score in step.scores[row].tolist()]
            tables = (one[row].tolist() for one in (step.tokens, step.parents, step.places, step.alive))
            seen.setdefault(number, []).append((scores, *tables))

    found = search(model, tables, limits, watch)
    assert found == search(model, tables, limits)
    return seen


def test_sentences_searched_together_are_shown_as_alone(table_model):
    model = table_model(6)
    together = shown(model, TABLES, LIMITS)
    for number, (one, limit) in enumerate(zip(TABLES, LIMITS, strict=True)):
        assert together[number] == shown(model, [one], [limit])[0]


def test_the_best_hypothesis_can_be_read_off_what_was_shown(table_model):
    model = table_model(6)
    steps = shown(model, [4], [4])[0]
    ((best, *_),) = search(model, [4], [4])
    scores, tokens, *_ = steps[len(best.ids)]
    ends = [score for score, token in zip(scores[:2], tokens[:2], strict=True) if token == EOS]
    assert best.score == pytest.approx(max(ends), abs=1e-4)
    assert not any(steps[-1][-1])
