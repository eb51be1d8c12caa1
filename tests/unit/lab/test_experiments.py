"""The lab's experiments share weights and schedule as docs/lab.md says."""

from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from seq2seq.model.build import build_model
from seq2seq.settings.compose import compose
from seq2seq.settings.config import Config
from seq2seq.training.module import learning_rate

REPOSITORY = Path(__file__).parents[3]
NAMES = sorted(path.stem for path in (REPOSITORY / "conf" / "experiment" / "lab").glob("*.yaml"))
OTHER_WEIGHTS = ("shared_query_key", "modern", "lstm_attention", "lstm_no_attention")


@cache
def configured(name: str) -> Config:
    return compose([f"experiment=lab/{name}", "seed=1"])


def drawn(config: Config) -> dict[str, Tensor]:
    torch.manual_seed(config.seed)
    return dict(build_model(config.model, 300).state_dict())


@pytest.mark.parametrize("name", NAMES)
def test_experiments_with_the_baselines_parameters_start_from_its_weights(name: str) -> None:
    weights, expected = drawn(configured(name)), drawn(configured("baseline"))
    is_same = all(name in weights and torch.equal(weights[name], weight) for name, weight in expected.items())
    assert is_same == (name not in OTHER_WEIGHTS)


def test_without_warm_up_the_decay_starts_at_once_from_the_same_peak() -> None:
    rates = []
    for name in ("baseline", "no_warmup"):
        training = configured(name).training
        rates.append([learning_rate(training, step, step / 3000) for step in range(3000)])
    with_rise, without = rates
    assert without[0] == with_rise[299] == max(with_rise + without)
    assert all(rise < full for rise, full in zip(with_rise[:270], without[:270], strict=True))
    assert all(full > fallen for full, fallen in zip(with_rise[300:], without[300:], strict=True))
    assert with_rise[-1] == pytest.approx(0, abs=1e-8)
    assert without[-1] == pytest.approx(0, abs=1e-8)
