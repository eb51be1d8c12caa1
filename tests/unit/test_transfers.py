"""What would make the host wait for a GPU, or copy to it: counted without one, for every update and every search."""

import warnings
from pathlib import Path

import pytest
import torch

from benchmarks import transfers
from benchmarks.meta_device import Transfer, as_on_a_gpu
from benchmarks.transfers import MODELS, SEARCHES, TRAINING
from seq2seq.settings.search import SearchConfig
from seq2seq.training import loss

# Searches choose on the host and bring what they chose to the device, and rules bring what they know in the first step,
# without waiting for it.
COPIES = {
    "beam": 1,
    "beam, early stopping": 1,
    "greedy": 1,
    "sampling": 3,
    "sampling with rules": 4,
    "diverse": 1,
    "phrases": 2,
    "rules": 2,
    "greedy with rules": 2,
    "prefix": 2,
}
ALL_MODELS = pytest.mark.parametrize(
    "model", [name if name == "transformer" else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    for message in (".*does not have many workers.*", ".*number of training batches.*", "Total length of"):
        warnings.filterwarnings("ignore", message)


@pytest.mark.parametrize("kind", TRAINING)
@ALL_MODELS
def test_an_update_waits_for_nothing_and_copies_nothing(model: str, kind: str, tmp_path: Path) -> None:
    counts = transfers.train(MODELS[model], transfers.training_config(TRAINING[kind]), tmp_path)
    assert len(counts.steps) >= 3
    assert [dict(step) for step in counts.steps] == [{}] * len(counts.steps)


def test_a_validation_waits_for_its_loss_alone(tmp_path: Path) -> None:
    counts = transfers.train(MODELS["transformer"], transfers.training_config({}), tmp_path)
    lines = {one.line.partition(":")[0] for one in counts.around if one.waits and one.line.startswith("seq2seq/")}
    assert lines == {"seq2seq/training/module.py", "seq2seq/training/monitor.py"}


@pytest.mark.parametrize("kind", SEARCHES)
@ALL_MODELS
def test_a_step_of_a_search_waits_once(model: str, kind: str) -> None:
    counts = transfers.search(MODELS[model], SearchConfig(**SEARCHES[kind]), transfers.sources(kind))
    assert len(counts.steps) == 5
    assert counts.most(waits=True) == 1
    assert counts.most(waits=False) <= COPIES[kind]


def test_the_check_notices_what_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "LEAVES_OUT_PADDING", ("meta",))  # as on the CPU
    counts = transfers.train(MODELS["transformer"], transfers.training_config({}), tmp_path)
    assert {one.what for one in counts.steps[0]} == {"index"}
    assert counts.most(waits=True) == 2


def test_every_way_to_ask_for_a_value_is_counted() -> None:
    x = torch.ones(3, device="meta")
    with as_on_a_gpu() as seen:
        x.tolist()
        x[0].item()
        float(x[0])
        bool(x[0])
        x.cpu()
        x.to("cpu")
        x[x > 0]
        torch.tensor([1.0], device="meta")
        torch.tensor([1.0])  # on the host
        torch.ones(2).to("meta", non_blocking=True)
    assert sorted(one.what for one in seen.seen if one.waits) == sorted(
        ["tolist", "item", "__float__", "__bool__", "cpu", "to", "index", "tensor"]
    )
    assert [one.what for one in seen.seen if not one.waits] == ["to"]
    assert isinstance(next(iter(seen.seen)), Transfer)
