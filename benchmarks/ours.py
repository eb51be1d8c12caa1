"""The contestant of this project: the updates of `train.py`, without Lightning's loop."""

from dataclasses import dataclass
from typing import cast

import lightning as L
import torch
from torch import Tensor

from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.batching import Batch
from seq2seq.training.module import TranslationModule


@dataclass(frozen=True)
class OneDevice:
    """The attributes of a trainer that `TranslationModule` uses in an update."""

    world_size: int = 1
    accumulate_grad_batches: int = 1


class Updates:
    """Trains a model batch by batch, in the order of Lightning's own loop."""

    def __init__(
        self,
        model: EncoderDecoder,
        config: TrainingConfig,
        precision: str = "bf16-mixed",
        *,
        is_compiled: bool = False,
    ) -> None:
        self.is_mixed = precision == "bf16-mixed"
        self.module = TranslationModule(model.train(), config, is_compiled=is_compiled)
        self.module.trainer = cast(L.Trainer, OneDevice())
        optimizer = self.module.configure_optimizers()
        assert isinstance(optimizer, torch.optim.Optimizer)
        self.optimizer = optimizer

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next updates."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def update(self, batch: Batch) -> Tensor:
        """Train on one batch; return the summed smoothed loss divided by the module's constant."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(batch.src.device.type, torch.bfloat16, enabled=self.is_mixed):
            loss = self.module.training_step(batch, 0)
        loss.backward()
        self.module.configure_gradient_clipping(self.optimizer)
        self.optimizer.step()
        return loss.detach()
