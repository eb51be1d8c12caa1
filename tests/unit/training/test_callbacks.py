"""What acts beside the updates: early stopping, signals, the running average, the sample that is translated."""

import signal
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import lightning as L
import pytest
import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch.testing import assert_close

from seq2seq.settings.search import SearchConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.training.callbacks import Budget, Patience
from seq2seq.training.progress_log import TranslationValidation
from tests.unit.training.resuming import UPDATES, end_of, run

STOPPED: dict[str, tuple[list[tuple[float, float]], int | None]] = {  # BLEU and losses; the validation that stops
    "a falling loss, and BLEU that is still zero": ([(0.0, 9.0), (0.0, 8.0), (0.0, 7.0), (0.0, 6.0)], None),
    "neither is better": ([(5.0, 3.0), (4.0, 3.5), (4.5, 3.2), (4.8, 3.1)], 3),
    "a better BLEU in between": ([(5.0, 3.0), (4.0, 3.5), (6.0, 3.6), (5.0, 3.7), (5.0, 3.7), (5.0, 3.7)], 5),
}


@pytest.mark.parametrize("case", STOPPED)
def test_a_run_stops_when_neither_bleu_nor_the_loss_has_been_better_twice(case: str) -> None:
    trainer = MagicMock(spec=L.Trainer, should_stop=False, fast_dev_run=False, sanity_checking=False)
    trainer.state = SimpleNamespace(fn=TrainerFn.FITTING)
    trainer.strategy = MagicMock()
    trainer.strategy.reduce_boolean_decision.side_effect = lambda stop, all: stop
    patience, (validations, stops) = Patience("val_bleu", 2, "max"), STOPPED[case]
    for number, (bleu, loss) in enumerate(validations, start=1):
        trainer.callback_metrics = {"val_bleu": torch.tensor(bleu), "val_loss": torch.tensor(loss)}
        patience.on_validation_end(trainer, MagicMock(spec=L.LightningModule))
        assert patience.is_out == (stops is not None and number >= stops), number


@pytest.fixture
def trainer() -> Any:
    """One of two processes."""
    strategy = MagicMock(root_device=torch.device("cpu"))
    return MagicMock(spec=L.Trainer, world_size=2, num_nodes=2, strategy=strategy, should_stop=False, global_step=0)


def test_a_signal_that_another_process_received_is_named(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_reduce(values: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        values.copy_(torch.maximum(values, torch.tensor([0.0, signal.SIGTERM])))

    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    budget = Budget(10, None)
    assert budget.stopped_by is None
    assert budget._agree(trainer)
    assert (budget.stopped_by, budget.received) == ("SIGTERM", 0)  # its own first signal does not interrupt at once


def test_signals_are_handled_before_waiting_for_other_processes(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
    during: list[Any] = []
    monkeypatch.setattr(
        torch.distributed, "all_reduce", lambda *args, **kwargs: during.append(signal.getsignal(signal.SIGTERM))
    )
    try:
        Budget(10, None).on_train_start(trainer, MagicMock(spec=L.LightningModule))
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
    assert len(during) == 1
    assert during[0] is not before[signal.SIGTERM]


def test_the_translated_sample_is_spread_over_the_whole_validation_set(tokenizer: Tokenizer) -> None:
    pairs = [(f"source {number}", f"target {number}") for number in range(10)]
    for size, numbers in ((4, [0, 2, 5, 7]), (20, [*range(10)]), (0, [])):
        training = TrainingConfig(bleu_sentences=size, monitor="loss")
        validation = TranslationValidation({"news": pairs}, Tokenizers.joint(tokenizer), training, SearchConfig())
        assert validation.samples == [[pairs[number] for number in numbers]]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*")
def test_the_average_moves_once_an_update_and_faster_at_the_beginning(config, data, tmp_path):
    """An update has two batches; the share kept is min(decay, (1 + n) / (10 + n)), and 0.9 is reached at n = 80."""
    weights: list[torch.Tensor] = []  # after each update

    class Record(L.Callback):
        def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *args: Any, **kwargs: Any) -> None:
            if trainer.global_step > len(weights):
                weights.append(pl_module.model.embedding.weight.detach().clone())

    run(config, data, tmp_path, None, Record())
    assert len(weights) == UPDATES
    average = weights[0]
    for number, new in enumerate(weights[1:], start=1):
        share = (1 + number) / (10 + number)
        average = share * average + (1 - share) * new
    end = end_of(tmp_path)
    assert_close(end["state_dict"]["model.embedding.weight"], average)
    assert torch.equal(end["current_model_state"]["model.embedding.weight"], weights[-1])
    assert not torch.allclose(average, weights[-1])
