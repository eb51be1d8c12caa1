"""What makes the host wait for a GPU, or copy to it: counted without one, for every update and every search."""

import warnings
from pathlib import Path

import pytest

from benchmarks import transfers
from benchmarks.transfers import MODELS, SEARCHES, TRAINING
from seq2seq.settings.search import SearchConfig
from tests.thin import thin

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _quiet() -> None:
    for message in (".*does not have many workers.*", ".*number of training batches.*", "Total length of"):
        warnings.filterwarnings("ignore", message)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRAINING)
@pytest.mark.parametrize("model", MODELS)
def test_an_update_waits_for_nothing_and_copies_nothing(model: str, kind: str, tmp_path: Path) -> None:
    counts = transfers.train(MODELS[model], transfers.training_config(TRAINING[kind]), tmp_path)
    assert len(counts.steps) >= 3
    assert [dict(step) for step in counts.steps] == [{}] * len(counts.steps)


def test_a_replayed_update_waits_for_nothing_after_the_first_was_compared(tmp_path: Path) -> None:
    training = transfers.training_config({"accumulate": 2})
    counts = transfers.train(MODELS["modern"], training, tmp_path, recorder=lambda compute: compute)
    assert [dict(step) for step in counts.steps[1:]] == [{}] * (len(counts.steps) - 1)
    assert counts.steps[0].total() == 1


@pytest.mark.parametrize("kind", thin(SEARCHES, ["beam", "sampling with rules"]))
@pytest.mark.parametrize("model", thin(MODELS, ["transformer"]))
def test_a_step_of_a_search_waits_once(model: str, kind: str) -> None:
    counts = transfers.search(MODELS[model], SearchConfig(**SEARCHES[kind]), transfers.sources(kind))
    assert len(counts.steps) == 5
    assert counts.most(waits=True) == 1
    assert counts.most(waits=False) < 5
