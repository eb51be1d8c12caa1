"""Numbers for settings that say `auto`, once the text is prepared: the rules of `seq2seq.settings.rules` applied."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seq2seq.errors import UserError
from seq2seq.settings import rules
from seq2seq.settings.choices import flatten
from seq2seq.settings.config import Config, to_plain
from seq2seq.text.batching import plan_batches
from seq2seq.text.dataset import PreparedData
from seq2seq.training.capacity import resolve_max_tokens
from seq2seq.training.folder import write_config
from seq2seq.training.processes import rank

_NUMBERS = frozenset(
    f"{group}.{key}"
    for group, keys in {
        "tokenizer": ("vocab_size",),
        "model": ("dropout",),
        "training": ("max_tokens", "learning_rate", "warmup_steps"),
        "trainer": ("max_steps", "validate_every"),
    }.items()
    for key in keys
)


@dataclass(frozen=True)
class Plan:
    """What the rules gave.

    Attributes:
        ruled: keys of the settings that said `auto`.
        updates_per_epoch: about how many updates read the text once; None for streamed text.
    """

    ruled: frozenset[str]
    updates_per_epoch: float | None


def settle_numbers(config: Config, folder: Path, data: PreparedData) -> Plan:
    """Put numbers where config says `auto`, in the run's config.yaml too.

    data.held_out and tokenizer.vocab_size stay as they are: the prepared text has their numbers, and `auto` is part of
    its key in the cache. training.final_weights is decided at the end.

    Raises:
        UserError: trainer.max_epochs is given for streamed text, or no batch fits into the device's memory.
    """
    training, trainer = config.training, config.trainer
    ruled = frozenset(key for key, value in flatten(to_plain(config)).items() if value == rules.AUTO) & _NUMBERS
    if config.model.dropout == rules.AUTO:
        config.model.dropout = rules.dropout(None if config.data.streaming else len(data.train))
    if training.learning_rate == rules.AUTO:
        training.learning_rate = rules.learning_rate(config.model.d_model)
    resolve_max_tokens(config, data.train, data.tokenizer.vocab_size)
    batches = training.accumulate * trainer.devices * trainer.num_nodes  # of an update
    epoch = None if config.data.streaming else count_batches(data, training.max_tokens) / batches
    trainer.max_steps = _max_steps(config, data, epoch)
    if training.warmup_steps == rules.AUTO:
        training.warmup_steps = rules.warmup_steps(trainer.max_steps)
    if trainer.validate_every == rules.AUTO:
        trainer.validate_every = rules.validate_every(trainer.max_steps)
    if ruled and rank() == 0:
        write_config(config, folder)
    return Plan(ruled, epoch)


def _max_steps(config: Config, data: PreparedData, epoch: float | None) -> int:
    """Return the updates after which training ends; epoch is the number that reads the text once."""
    trainer = config.trainer
    limits = [] if trainer.max_steps == rules.AUTO else [trainer.max_steps]
    if trainer.max_epochs is not None:
        if epoch is None:
            raise UserError(
                f"trainer.max_epochs={trainer.max_epochs} counts passes over a text, and a streamed one has no known "
                "end: give trainer.max_steps, or data.streaming=false"
            )
        limits.append(math.ceil(trainer.max_epochs * epoch))
    if limits:
        return min(limits)
    if epoch is None:
        return rules.STREAMED_UPDATES
    positions = int((np.maximum(data.train.src_lengths, data.train.tgt_lengths) + 1).sum())
    batches = config.training.accumulate * trainer.devices * trainer.num_nodes
    return rules.max_steps(positions, config.training.max_tokens * batches)


def count_batches(data: PreparedData, max_tokens: int) -> int:
    """Return the number of batches that hold every training pair once."""
    return len(plan_batches(data.train, np.arange(len(data.train)), max_tokens, None))
