"""training.max_tokens=auto: the largest batches that the device's memory holds, found by trying."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from seq2seq.device import is_out_of_memory
from seq2seq.errors import UserError
from seq2seq.model.build import build_model
from seq2seq.settings.config import Config
from seq2seq.text.augment import is_random
from seq2seq.text.batching import Batch, collate
from seq2seq.text.dataset import Pairs
from seq2seq.training.module import TranslationModule
from seq2seq.training.processes import agree
from seq2seq.training.recompute import recompute_layers

ON_CPU = 1024  # there memory is no limit, and small batches train better in the same time
SMALLEST, LARGEST = 512, 131_072  # beyond it updates get rarer without getting quicker
UPDATES_AN_EPOCH = 50  # at least, however large the memory is
MARGIN = 0.9  # of the free memory; the rest is for the allocator's gaps, which differ from batch to batch, and NCCL


def resolve_max_tokens(config: Config, pairs: Pairs, vocab_size: int) -> None:
    """Put a number where training.max_tokens says auto, the same for all processes.

    Raises:
        UserError: not even the longest sentence pair fits.
    """
    if config.training.max_tokens != "auto":
        return
    found = int(agree("max_tokens", lambda: str(_choose(config, pairs, vocab_size))))
    config.training.max_tokens = found


def _choose(config: Config, pairs: Pairs, vocab_size: int) -> int:
    widths = np.maximum(pairs.src_lengths, pairs.tgt_lengths) + 1
    training = config.training
    if config.data.streaming or is_random(training.subword_sampling, training.noise):
        longest = config.data.max_length + 1  # such a pair may come yet
    else:
        longest = int(widths.max())
    if config.trainer.accelerator == "cpu" or not torch.cuda.is_available():
        return max(ON_CPU, longest)
    updates = UPDATES_AN_EPOCH * config.training.accumulate * config.trainer.devices * config.trainer.num_nodes
    highest = min(LARGEST, int(widths.sum()) // updates)
    device = torch.device("cuda", 0)
    available = torch.cuda.mem_get_info(device)[0] * MARGIN
    with torch.random.fork_rng([device]):
        trial = Trial(config, vocab_size, device, widths=(longest, int(np.median(widths))), available=available)
        return largest(trial.fits, max(SMALLEST, longest), max(highest, longest))


def largest(fits: Callable[[int], bool], lowest: int, highest: int) -> int:
    """The largest number that fits, of lowest · 1, 1.5, 2, 3, 4, 6, 8 … up to highest; larger ones fit ever less.

    Raises:
        UserError: the lowest does not fit.
    """
    found = 0
    candidate, following = lowest, lowest * 3 // 2
    while candidate <= max(lowest, highest) and fits(candidate):
        found, candidate, following = candidate, following, candidate * 2
    if not found:
        raise UserError(
            f"not even {lowest} positions a batch fit into the device's memory: take a smaller model or "
            "data.max_length, or set training.activation_checkpointing=true"
        )
    return found


class Trial:
    """Trains a throw-away model on drawn batches of the longest and of the typical sentences."""

    def __init__(
        self, config: Config, vocab_size: int, device: torch.device, *, widths: tuple[int, ...], available: float
    ) -> None:
        """Widths are in tokens, special ids included, available in bytes."""
        self.device, self.widths, self.vocab_size = device, widths, vocab_size
        model = build_model(config.model, vocab_size).to(device)
        if config.training.activation_checkpointing:
            recompute_layers(model)
        self.module = TranslationModule(model.train(), replace(config.training, max_tokens=ON_CPU))
        optimizer = self.module.configure_optimizers()
        assert isinstance(optimizer, torch.optim.Optimizer)
        self.optimizer = optimizer
        copies = (config.training.ema_decay > 0) + (config.trainer.devices * config.trainer.num_nodes > 1)
        self.available = available - 4 * copies * sum(p.numel() for p in model.parameters())
        self.dtype = torch.bfloat16 if config.trainer.precision == "bf16-mixed" else None

    def fits(self, max_tokens: int) -> bool:
        """Whether updates on batches of so many positions a side stay within the memory."""
        try:
            for width in self.widths:
                self.update(self.draw(max(1, max_tokens // width), width))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return False
        finally:
            self.optimizer.zero_grad(set_to_none=True)
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
                torch.cuda.empty_cache()
        return self.peak() <= self.available

    def draw(self, rows: int, width: int) -> Batch:
        """A batch of drawn ids, of so many positions on either side."""
        ids = np.random.default_rng(0).integers(4, max(5, self.vocab_size), (2, rows, width - 1))
        return Batch(*(side.to(self.device) for side in collate(list(zip(*ids, strict=True)))))

    def update(self, batch: Batch) -> None:
        """As in training; gradients stay until the next one."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None):
            loss = self.module.training_step(batch, 0)
        loss.backward()
        self.optimizer.step()

    def peak(self) -> int:
        """The most bytes that were taken from the device so far."""
        return torch.cuda.max_memory_reserved(self.device) if self.device.type == "cuda" else 0
