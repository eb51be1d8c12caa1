"""The contestant of this project: the updates of `train.py`, without Lightning's loop."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Literal, cast

import lightning as L
import torch
from torch import Tensor

from benchmarks.command import Options
from seq2seq.data.batching import Batch
from seq2seq.settings.compose import compose
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainerConfig
from seq2seq.training.module import TranslationModule
from seq2seq.training.processes import choose_precision

Size = Literal["tiny", "small", "base", "big"]
SEED = 1


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(Options):
    """The options of commands that train."""

    size: Size = "small"  # size of the network, as model=SIZE of train.py
    vocab_size: int = 8000  # subwords of the vocabulary that both languages share
    max_tokens: int = 2048  # most positions of a batch on either side, padding included
    # precision of matrix products, as trainer.precision: auto is bf16-mixed where the device is fast in bf16
    precision: Literal["auto", "32-true", "bf16-mixed"] = "auto"


def model_config(size: Size) -> ModelConfig:
    """Return the settings of all contestants' network: post-norm, ReLU, sinusoidal positions, dropout 0.1."""
    return compose([f"model={size}", "model/style=vaswani", "model.dropout=0.1"]).model


def precision_on(device: torch.device, wanted: str) -> str:
    """Return the precision of training on the device: bf16-mixed or 32-true."""
    return choose_precision(TrainerConfig(accelerator="cpu" if device.type == "cpu" else "gpu", precision=wanted))


class Updates:
    """Trains a model batch by batch, in the order of Lightning's own loop."""

    def __init__(self, module: TranslationModule, precision: str = "bf16-mixed") -> None:
        self.is_mixed = precision == "bf16-mixed"
        self.module = module.train()
        self.module.trainer = cast(L.Trainer, SimpleNamespace(world_size=1, accumulate_grad_batches=1))
        optimizer = self.module.configure_optimizers()
        assert isinstance(optimizer, torch.optim.Optimizer)
        self.optimizer = optimizer
        self.module.start_replay()

    def update(self, batch: Batch) -> Tensor:
        """Train on one batch; return the summed smoothed loss divided by the module's constant."""
        self.module.optimizer_zero_grad(0, 0, self.optimizer)
        with torch.autocast(batch.src.device.type, torch.bfloat16, enabled=self.is_mixed):
            loss = self.module.training_step(batch, 0)
        self.module.backward(loss)
        self.module.configure_gradient_clipping(self.optimizer)
        self.optimizer.step()
        return loss.detach()
