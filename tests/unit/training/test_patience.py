"""When early stopping counts a validation as one without improvement."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import lightning as L
import torch
from lightning.pytorch.trainer.states import TrainerFn

from seq2seq.training.callbacks import Patience


def stops_after(validations: list[tuple[float, float]]) -> int:
    """How many validations of (BLEU, loss) it takes until patience for two is out; all of them if it never is."""
    trainer = MagicMock(spec=L.Trainer, should_stop=False, fast_dev_run=False, sanity_checking=False)
    trainer.state = SimpleNamespace(fn=TrainerFn.FITTING)
    trainer.strategy = MagicMock()
    trainer.strategy.reduce_boolean_decision.side_effect = lambda stop, all: stop
    patience = Patience("val_bleu", 2, "max")
    for number, (bleu, loss) in enumerate(validations, start=1):
        trainer.callback_metrics = {"val_bleu": torch.tensor(bleu), "val_loss": torch.tensor(loss)}
        patience.on_validation_end(trainer, MagicMock(spec=L.LightningModule))
        if patience.is_out:
            return number
    return len(validations)


def test_a_falling_loss_keeps_a_run_going_whose_bleu_is_still_zero() -> None:
    assert stops_after([(0.0, 9.0), (0.0, 8.0), (0.0, 7.0), (0.0, 6.0), (0.0, 5.0)]) == 5


def test_a_run_stops_when_neither_bleu_nor_the_loss_gets_better() -> None:
    assert stops_after([(5.0, 3.0), (4.0, 3.5), (4.5, 3.2), (4.8, 3.1)]) == 3
    assert stops_after([(5.0, 3.0), (4.0, 3.5), (6.0, 3.6), (5.0, 3.7), (5.0, 3.7), (5.0, 3.7)]) == 5
