import math

import pytest

from seq2seq.settings.training import TrainingConfig
from seq2seq.training.module import learning_rate


def config(**changes: object) -> TrainingConfig:
    values = {"learning_rate": 2.0, "warmup_steps": 100, **changes}
    return TrainingConfig(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "linear", "constant"])
def test_the_rate_rises_linearly_to_its_peak(schedule: str) -> None:
    rates = [learning_rate(config(schedule=schedule), step, 0.0) for step in range(100)]
    assert rates[49] == pytest.approx(1.0)
    assert rates[99] == pytest.approx(2.0)
    assert max(rates) == rates[99]


def test_inverse_square_root_is_the_papers() -> None:
    d_model, warmup = 512, 4000
    scaled = config(schedule="inverse_sqrt", learning_rate=(d_model * warmup) ** -0.5, warmup_steps=warmup)
    for step in (1, 10, 3999, 4000, 4001, 40_000):
        expected = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert learning_rate(scaled, step - 1, 0.9) == pytest.approx(expected)


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_the_peak_is_the_value_that_was_set_whatever_the_budget(schedule: str) -> None:
    for budget in (150, 100_000):
        rates = [learning_rate(config(schedule=schedule), step, step / budget) for step in range(150)]
        assert [rates[99], rates[100], max(rates)] == pytest.approx([2.0, 2.0, 2.0])
        assert rates[101] < 2.0


def test_cosine_and_line_fall_from_the_warm_ups_end_to_the_final_rate_at_the_budgets_end() -> None:
    for schedule, quarter in (("cosine", 0.2 + 1.8 * (1 + math.cos(math.pi / 4)) / 2), ("linear", 2 - 1.8 / 4)):
        falling = config(schedule=schedule, final_rate=0.1)
        assert learning_rate(falling, 325, 325 / 1000) == pytest.approx(quarter)
        assert learning_rate(falling, 550, 550 / 1000) == pytest.approx(1.1)
        assert learning_rate(falling, 500, 1.0) == pytest.approx(0.2)
        assert learning_rate(falling, 500, 1.3) == pytest.approx(0.2)


def test_an_automatic_warm_up_is_a_tenth_of_the_time_of_a_run_that_time_ends() -> None:
    for schedule, half in (("linear", 2 * 0.5 / 0.9), ("cosine", 1 + math.cos(math.pi * 0.4 / 0.9)), ("constant", 2.0)):
        timed = config(schedule=schedule, warmup_steps="auto")
        rates = [learning_rate(timed, step, step / 1500) for step in range(1500)]  # the time is over after 1,500
        assert [rates[75], rates[150], rates[750]] == pytest.approx([1.0, 2.0, half])
        assert max(rates) == pytest.approx(2.0)
    root = config(schedule="inverse_sqrt", warmup_steps="auto")
    assert learning_rate(root, 599, 600 / 1500) == pytest.approx(1.0, rel=2e-3)
    assert learning_rate(config(warmup_steps="auto"), 0, 0.0) > 0


def test_an_automatic_warm_up_has_at_most_4000_updates() -> None:
    long = config(schedule="constant", warmup_steps="auto")
    assert learning_rate(long, 1999, 2000 / 10**6) == pytest.approx(1.0)
    assert learning_rate(long, 3999, 4000 / 10**6) == pytest.approx(2.0)


def test_without_warm_up_the_first_update_has_the_peak_rate() -> None:
    assert learning_rate(config(warmup_steps=0), 0, 0.0) == pytest.approx(2.0)
