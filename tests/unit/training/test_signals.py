"""A signal stops all processes of a run, whichever of them receives it."""

import signal
from typing import Any
from unittest import mock

import lightning as L
import pytest
import torch

from seq2seq.training.callbacks import Budget


@pytest.fixture
def trainer() -> Any:
    """One of two processes."""
    strategy = mock.Mock(root_device=torch.device("cpu"))
    return mock.MagicMock(
        spec=L.Trainer, world_size=2, num_nodes=2, strategy=strategy, should_stop=False, global_step=0
    )


@pytest.fixture
def handlers() -> Any:
    """Put the handlers of signals back after a test."""
    names = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = {name: signal.getsignal(name) for name in names}
    yield
    for name, handler in before.items():
        signal.signal(name, handler)


def test_a_signal_that_another_process_received_is_named(trainer: Any, monkeypatch: pytest.MonkeyPatch):
    def all_reduce(told: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        told.copy_(torch.maximum(told, torch.tensor([0.0, signal.SIGTERM])))

    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    budget = Budget(10, None)
    assert budget.stopped_by is None
    assert budget._agree(trainer)
    assert (budget.stopped_by, budget.received) == ("SIGTERM", 0)  # its own first signal does not interrupt at once


def test_signals_are_handled_before_waiting_for_other_processes(
    trainer: Any, handlers: None, monkeypatch: pytest.MonkeyPatch
):
    seen: list[Any] = []
    monkeypatch.setattr(
        torch.distributed, "all_reduce", lambda *args, **kwargs: seen.append(signal.getsignal(signal.SIGTERM))
    )
    before = signal.getsignal(signal.SIGTERM)
    Budget(10, None).on_train_start(trainer, mock.MagicMock(spec=L.LightningModule))
    assert len(seen) == 1
    assert seen[0] is not before
