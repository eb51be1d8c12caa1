"""What an update or a search sends to a GPU may not grow: the operations, and the shapes of batches."""

import pytest

from benchmarks import kernels, shapes
from benchmarks.kernels import BASE, MODERN, TRAININGS
from seq2seq.data.dataset import Pairs
from seq2seq.settings.model import ModelConfig


@pytest.mark.parametrize(
    ("training", "most"), [("vaswani, AdamW", 1285), ("modern, AdamW", 1371), ("modern, Muon", 1432)]
)
def test_an_update_sends_no_more_operations(training: str, most: int) -> None:
    counts = kernels.count_update(*TRAININGS[training])
    assert kernels.by_kind(counts)["attention"] == 36  # 18 forward, 18 backward
    assert most - 40 < counts.total() <= most


@pytest.mark.parametrize(("training", "most"), [("vaswani, AdamW", 40), ("modern, Muon", 95)])
def test_a_recorded_update_sends_few_operations_beside_the_graph(training: str, most: int) -> None:
    assert kernels.count_update(*TRAININGS[training], is_recorded=True).total() <= most


@pytest.mark.parametrize(
    ("model", "beam", "most"), [(BASE, 1, 176), (BASE, 5, 179), (MODERN, 1, 261), (MODERN, 5, 263)]
)
def test_a_step_of_a_search_sends_no_more_operations(model: ModelConfig, beam: int, most: int) -> None:
    counts = kernels.count_step(model, beam)
    assert kernels.by_kind(counts)["attention"] == 12  # each layer's own and that to the source
    assert most - 20 < counts.total() <= most


def test_shapes_and_padding_are_counted() -> None:
    pairs = Pairs.of([[5], [5] * 2, [5] * 3], [[6], [6] * 2, [6]])
    counts, positions, tokens = shapes.measure(pairs, 8)
    assert counts == {(2, 4, 2): 1, (1, 3, 3): 1}
    assert (positions, tokens) == ([11, 7], [9, 7])
