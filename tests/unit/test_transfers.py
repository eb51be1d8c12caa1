"""What makes the host wait for a GPU, or copy to it: counted without one, for every update and every search."""

import warnings
from pathlib import Path

import pytest
import torch

from benchmarks import transfers
from benchmarks.meta_device import as_on_a_gpu
from benchmarks.transfers import MODELS, SEARCHES, TRAINING
from seq2seq.settings.search import SearchConfig
from seq2seq.training import loss
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


@pytest.mark.parametrize("kind", thin(SEARCHES, ["beam", "sampling with rules"]))
@pytest.mark.parametrize("model", thin(MODELS, ["transformer"]))
def test_a_step_of_a_search_waits_once(model: str, kind: str) -> None:
    counts = transfers.search(MODELS[model], SearchConfig(**SEARCHES[kind]), transfers.sources(kind))
    assert len(counts.steps) == 5
    assert counts.most(waits=True) == 1
    assert counts.most(waits=False) < 5


@pytest.mark.slow
def test_the_count_includes_every_request_for_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(3, device="meta")
    with as_on_a_gpu() as counted:
        x.tolist()
        float(x[0])
        x.to("cpu")
        x[x > 0]
        torch.tensor([1.0], device="meta")
        torch.tensor([1.0])  # on the host
        torch.ones(2).to("meta", non_blocking=True)
    waits = sorted(transfer.what for transfer in counted.seen if transfer.waits)
    assert waits == ["__float__", "index", "tensor", "to", "tolist"]
    assert [transfer.what for transfer in counted.seen if not transfer.waits] == ["to"]
    monkeypatch.setattr(loss, "LEAVES_OUT_PADDING", ("meta",))  # as on the CPU
    counts = transfers.train(MODELS["transformer"], transfers.training_config({}), tmp_path)
    assert counts.most(waits=True) > 0
