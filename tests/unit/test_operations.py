"""A step of a search stays as short as it was made: a bound on the operations that it dispatches."""

import pytest

from benchmarks.operations import per_step

PER_LAYER, AROUND = 34, 18  # of the model


@pytest.mark.parametrize(("beam", "of_search"), [(5, 16), (1, 4)])
def test_a_step_dispatches_no_more_operations_than_it_did(beam: int, of_search: int) -> None:
    counts = per_step(beam)
    assert 40 < counts["model"] <= 4 * PER_LAYER + AROUND
    assert 0 < counts["search"] <= of_search


@pytest.mark.parametrize("beam", [5, 1])
def test_few_operations_remain_beside_a_recorded_step(beam: int) -> None:
    assert 0 < per_step(beam, is_recorded=True)["model"] <= 25
