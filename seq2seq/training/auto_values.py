"""Replace `auto` settings by numbers, by the rules of `seq2seq.settings.rules`, when the text is prepared."""

import math
from pathlib import Path

import torch

from seq2seq.data.dataset import Pairs, PreparedData
from seq2seq.data.loading import batches_an_epoch, is_random
from seq2seq.model.build import build_without_values
from seq2seq.settings import rules
from seq2seq.settings.config import Config, flatten
from seq2seq.text.vocabulary import Sizes
from seq2seq.training.processes import broadcast_decision, rank, uses_gpu
from seq2seq.training.run_folder import write_config

ON_CPU = 1024  # positions a batch: memory is no limit on a CPU, and small batches train better in the same time
UPDATES_AN_EPOCH = 50  # minimum, however large the memory is
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


def resolve_numbers(config: Config, folder: Path, data: PreparedData) -> tuple[frozenset[str], float]:
    """Replace `auto` by numbers in config and in the run's config.yaml.

    Return the keys that were `auto`, and the approximate number of updates an epoch.

    data.held_out and tokenizer.vocab_size stay `auto`: the prepared text holds their numbers, and its key in the cache
    includes `auto`. training.warmup_steps stays `auto` in a run with a time limit, whose updates nobody knows.
    training.final_weights is decided at the end of training.
    """
    training, trainer = config.training, config.trainer
    ruled = frozenset(key for key, value in flatten(config).items() if value == rules.AUTO and key in _NUMBERS)
    if config.model.dropout == rules.AUTO:
        config.model.dropout = rules.dropout(len(data.train))
    is_pre_norm = config.model.norm_position == "pre"
    if training.optimizer == rules.AUTO:
        training.optimizer = rules.optimizer(is_pre_norm=is_pre_norm)
    if training.max_tokens == rules.AUTO:
        decision = broadcast_decision("max_tokens", lambda: str(max_tokens(config, data.train, data.tokenizer.sizes)))
        training.max_tokens = int(decision)
    if training.learning_rate == rules.AUTO:
        batch = training.max_tokens * batches_an_update(config)
        training.learning_rate = rules.learning_rate(config.model.d_model, batch, is_pre_norm=is_pre_norm)
    epoch = batches_an_epoch(config, data) / batches_an_update(config)
    trainer.max_steps = _max_steps(config, data, epoch)
    if training.warmup_steps == rules.AUTO and trainer.max_time is None:
        training.warmup_steps = rules.warmup_steps(trainer.max_steps)
    if trainer.validate_every == rules.AUTO:
        trainer.validate_every = rules.validate_every(trainer.max_steps)
    if ruled and rank() == 0:
        write_config(config, folder)
    return ruled, epoch


def batches_an_update(config: Config) -> int:
    """Return the number of batches of an update, on all devices."""
    return config.training.accumulate * config.trainer.devices * config.trainer.num_nodes


def _max_steps(config: Config, data: PreparedData, epoch: float) -> int:
    """Return the number of updates after which training ends; epoch is the number of updates an epoch."""
    trainer = config.trainer
    limits = [] if trainer.max_steps == rules.AUTO else [trainer.max_steps]
    if trainer.max_epochs is not None:
        limits.append(math.ceil(trainer.max_epochs * epoch))
    if limits:
        return min(limits)
    positions = int((data.train.lengths.max(axis=1) + 1).sum())  # of the longer sides, special ids included
    return rules.max_steps(positions, config.training.max_tokens * batches_an_update(config))


def max_tokens(config: Config, pairs: Pairs, sizes: Sizes) -> int:
    """Return the number for training.max_tokens=auto on this machine."""
    widths, training, model = pairs.lengths.max(axis=1) + 1, config.training, config.model
    longest = config.data.max_length + 1 if is_random(config) else int(widths.max())  # the longest pair that may come
    if not uses_gpu(config.trainer):
        return max(ON_CPU, longest)
    most = rules.max_tokens(
        torch.cuda.mem_get_info(0)[0],
        sum(parameter.numel() for parameter in build_without_values(model, *sizes).parameters()),
        model.num_encoder_layers + model.num_decoder_layers,
        16 * model.d_model + 3 * model.d_ff,
        kept=model.d_model if training.activation_checkpointing else None,
    )
    most //= 2 if training.r_drop else 1  # which passes every batch twice at once
    highest = int(widths.sum()) // (UPDATES_AN_EPOCH * batches_an_update(config))
    return max(min(most, highest), rules.SMALLEST_BATCH, longest)
