"""Replace `auto` settings by numbers, by the rules of `seq2seq.settings.rules`, when the text is prepared."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from seq2seq.errors import UserError, is_out_of_memory
from seq2seq.model.build import build_model
from seq2seq.settings import rules
from seq2seq.settings.config import Config, flatten
from seq2seq.text.augment import is_random
from seq2seq.text.batching import Batch, collate
from seq2seq.text.dataset import Pairs, PreparedData
from seq2seq.text.loading import batches_an_epoch
from seq2seq.text.vocabulary import Sizes
from seq2seq.training.computation import recompute_layers
from seq2seq.training.module import TranslationModule
from seq2seq.training.processes import agree, rank, uses_gpu
from seq2seq.training.run_folder import write_config

ON_CPU = 1024  # positions a batch: memory is no limit on a CPU, and small batches train better in the same time
SMALLEST, LARGEST = 512, 131_072  # positions a batch on a GPU; larger batches make updates rarer, not faster
UPDATES_AN_EPOCH = 50  # minimum, however large the memory is
MARGIN = 0.9  # of the free memory; the rest is for NCCL and for the allocator's gaps, which differ from batch to batch
_NUMBERS = {
    "tokenizer.vocab_size",
    "model.dropout",
    "training.max_tokens",
    "training.optimizer",
    "training.learning_rate",
    "training.warmup_steps",
    "trainer.max_steps",
    "trainer.validate_every",
}


def settle_numbers(config: Config, folder: Path, data: PreparedData) -> tuple[frozenset[str], float]:
    """Replace `auto` by numbers in config and in the run's config.yaml.

    Return the keys that were `auto`, and the approximate number of updates an epoch.

    data.held_out and tokenizer.vocab_size stay `auto`: the prepared text holds their numbers, and its key in the cache
    includes `auto`. training.warmup_steps stays `auto` in a run with a time limit, whose updates nobody knows.
    training.final_weights is decided at the end of training.

    Raises:
        UserError: no batch fits into the device's memory.
    """
    training, trainer = config.training, config.trainer
    ruled = frozenset(key for key, value in flatten(config).items() if value == rules.AUTO and key in _NUMBERS)
    if config.model.dropout == rules.AUTO:
        config.model.dropout = rules.dropout(len(data.train))
    is_pre_norm = config.model.norm_position == "pre"
    if training.optimizer == rules.AUTO:
        training.optimizer = rules.optimizer(is_pre_norm=is_pre_norm)
    resolve_max_tokens(config, data.train, data.tokenizer.sizes)  # by trial updates of this optimizer
    if training.learning_rate == rules.AUTO:
        batch = training.max_tokens * _batches_an_update(config)
        training.learning_rate = rules.learning_rate(config.model.d_model, batch, is_pre_norm=is_pre_norm)
    epoch = batches_an_epoch(config, data) / _batches_an_update(config)
    trainer.max_steps = _max_steps(config, data, epoch)
    if training.warmup_steps == rules.AUTO and trainer.max_time is None:
        training.warmup_steps = rules.warmup_steps(trainer.max_steps)
    if trainer.validate_every == rules.AUTO:
        trainer.validate_every = rules.validate_every(trainer.max_steps)
    if ruled and rank() == 0:
        write_config(config, folder)
    return ruled, epoch


def _batches_an_update(config: Config) -> int:
    return config.training.accumulate * config.trainer.devices * config.trainer.num_nodes


def _max_steps(config: Config, data: PreparedData, epoch: float) -> int:
    """Return the number of updates after which training ends; epoch is the number of updates an epoch."""
    trainer = config.trainer
    limits = [] if trainer.max_steps == rules.AUTO else [trainer.max_steps]
    if trainer.max_epochs is not None:
        limits.append(math.ceil(trainer.max_epochs * epoch))
    if limits:
        return min(limits)
    positions = int(_widths(data.train).sum())
    return rules.max_steps(positions, config.training.max_tokens * _batches_an_update(config))


def _widths(pairs: Pairs) -> np.ndarray:
    """Return the positions that each pair takes on its longer side, special ids included."""
    return np.maximum(pairs.src_lengths, pairs.tgt_lengths) + 1


def resolve_max_tokens(config: Config, pairs: Pairs, sizes: Sizes) -> None:
    """Replace training.max_tokens=auto by the largest batch that fits into the device's memory, found by trial.

    Raises:
        UserError: not even the longest sentence pair fits.
    """
    if config.training.max_tokens == rules.AUTO:
        config.training.max_tokens = int(agree("max_tokens", lambda: str(_choose(config, pairs, sizes))))


def _choose(config: Config, pairs: Pairs, sizes: Sizes) -> int:
    widths, training = _widths(pairs), config.training
    is_sampled = is_random(training.subword_sampling, training.noise)
    longest = config.data.max_length + 1 if is_sampled else int(widths.max())  # the longest pair that may come
    if not uses_gpu(config.trainer):
        return max(ON_CPU, longest)
    highest = min(LARGEST, int(widths.sum()) // (UPDATES_AN_EPOCH * _batches_an_update(config)))
    device = torch.device("cuda", 0)
    available = torch.cuda.mem_get_info(device)[0] * MARGIN
    with torch.random.fork_rng([device]):
        trial = Trial(config, sizes, device, widths=(longest, int(np.median(widths))), available=available)
        return largest(trial.fits, max(SMALLEST, longest), max(highest, longest))


def largest(fits: Callable[[int], bool], lowest: int, highest: int) -> int:
    """Return the largest number that fits, of lowest · 1, 1.5, 2, 3, 4, 6, 8 … up to highest.

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
    """Trains a throw-away model on random batches of the longest and of the typical sentences."""

    def __init__(
        self, config: Config, sizes: Sizes, device: torch.device, *, widths: tuple[int, ...], available: float
    ) -> None:
        """Take widths in tokens, special ids included, and the available memory in bytes."""
        self.device, self.widths = device, widths
        self.ids = max(5, min(size for size in sizes if size is not None))  # ids below this number exist on both sides
        model = build_model(config.model, *sizes).to(device)
        if config.training.activation_checkpointing:
            recompute_layers(model)
        self.module = TranslationModule(model.train(), replace(config.training, max_tokens=ON_CPU))
        self.optimizer = self.module.configure_optimizers()
        copies = (config.training.ema_decay > 0) + (config.trainer.devices * config.trainer.num_nodes > 1)
        self.available = available - 4 * copies * sum(p.numel() for p in model.parameters())
        self.dtype = torch.bfloat16 if config.trainer.precision == "bf16-mixed" else None

    def fits(self, max_tokens: int) -> bool:
        """Return whether updates on batches of `max_tokens` positions a side stay within the memory."""
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
        """Return a batch of `rows` pairs of random ids, `width` positions on either side."""
        ids = np.random.default_rng(0).integers(4, self.ids, (2, rows, width - 1))
        return Batch(*(side.to(self.device) for side in collate(list(zip(*ids, strict=True)))))

    def update(self, batch: Batch) -> None:
        """Make an update as in training; the gradients stay until the next update."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None):
            loss = self.module.training_step(batch, 0)
        loss.backward()
        self.optimizer.step()

    def peak(self) -> int:
        """Return the largest number of bytes that were reserved on the device so far; 0 on the CPU."""
        return torch.cuda.max_memory_reserved(self.device) if self.device.type == "cuda" else 0
