"""The lab's experiments share weights and schedule as docs/lab.md says."""

from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from seq2seq.model.build import build_model
from seq2seq.settings.compose import compose
from seq2seq.settings.config import Config

REPOSITORY = Path(__file__).parents[4]
NAMES = sorted(path.stem for path in (REPOSITORY / "conf" / "experiment" / "lab").glob("*.yaml"))
OTHER_WEIGHTS = ("shared_query_key", "swiglu", "no_biases", "modern", "lstm_attention", "lstm_no_attention")


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
