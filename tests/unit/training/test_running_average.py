"""The running average of the weights that `training.ema_decay` asks for."""

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch.testing import assert_close

from seq2seq.settings.config import Config
from seq2seq.text.dataset import PreparedData
from tests.unit.training.resuming import UPDATES, end_of, run

pytestmark = pytest.mark.filterwarnings("ignore:.*")


def test_the_average_moves_once_an_update_and_faster_at_the_beginning(
    config: Config, data: PreparedData, tmp_path: Path
) -> None:
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
