import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.explain.lab.welch import Difference, student_t, welch


@pytest.mark.parametrize(
    ("freedom", "t"),
    [(1.0, 12.7062), (2.0, 4.30265), (3.0, 3.18245), (4.0, 2.77645), (10.0, 2.22814), (1000.0, 1.96234)],
)
def test_students_t_is_that_of_the_printed_tables(freedom: float, t: float) -> None:
    assert student_t(0.95, freedom) == pytest.approx(t, rel=1e-5)


def test_students_t_of_two_degrees_has_a_closed_form() -> None:
    for share in (0.5, 0.9, 0.99):
        assert student_t(share, 2.0) == pytest.approx(math.sqrt(2) * share / math.sqrt(1 - share**2), rel=1e-4)


def test_welchs_interval_is_scipys() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    ours, theirs = [71.2, 69.8, 72.9], [75.1, 78.3, 80.4, 77.0]
    expected = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    found = welch(ours, theirs)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-5)
    assert found.direction() == "lower"


def test_few_or_equal_numbers() -> None:
    assert welch([1.0], [2.0, 3.0]) is None
    assert welch([0.0, 0.0], [2.0, 2.0]) == Difference(-2.0, -2.0, -2.0)
    same = welch([2.0, 2.0], [2.0, 2.0])
    assert same is not None
    assert same.direction() == "open"


values = st.lists(st.floats(0, 100).map(lambda x: round(x, 2)), min_size=2, max_size=5)


@given(values, values)
def test_who_is_compared_with_whom_only_turns_the_sign(ours: list[float], theirs: list[float]) -> None:
    there, back = welch(ours, theirs), welch(theirs, ours)
    assert there is not None
    assert back is not None
    assert (there.value, there.low, there.high) == pytest.approx((-back.value, -back.high, -back.low), abs=1e-6)
    assert there.low <= there.value <= there.high
