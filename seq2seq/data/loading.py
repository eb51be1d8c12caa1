"""The batches of training and validation, from prepared text, as the settings say."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.table import Table

from seq2seq.data.batching import (
    BatchLoader,
    FixedBatches,
    count_batches,
    pad_to_multiple,
    plan_batches,
    require_budget,
)
from seq2seq.data.dataset import Pairs, PreparedData
from seq2seq.data.epochs import Encoder, Mixture, PreparedEpochs, all_indices, tempered_shares, weighted_shares
from seq2seq.settings.config import Config

SHARED_PAIRS = 1_000_000  # from here on, the plan of an epoch is worth a file


def make_mixture(config: Config, data: PreparedData) -> Mixture | None:
    """Return the mixture of data.weights or data.temperature; None if an epoch has each pair once."""
    settings = config.data
    if not settings.weights and settings.temperature == 1:
        return None
    names, sizes = _corpora(data)
    assert sum(sizes) == len(data.train)
    if settings.weights:
        shares = weighted_shares(names, sizes, settings.weights)
    else:
        shares = tempered_shares(sizes, settings.temperature)
    return Mixture(sizes, shares, config.seed)


def mixture_table(config: Config, data: PreparedData) -> Table | None:
    """Return a table of the pairs that an epoch draws from each corpus; None without a mixture."""
    mixture = make_mixture(config, data)
    return None if mixture is None else mixture.table(_corpora(data)[0])


def _corpora(data: PreparedData) -> tuple[Sequence[str], Sequence[int]]:
    """Return the names and sizes (pairs) of the training corpora, in the order of their pairs."""
    files = data.report["files"]
    return [file["name"] for file in files], [file.get("kept", 0) for file in files]


def is_random(config: Config) -> bool:
    """Return whether the settings give a pair different ids in each epoch."""
    return config.training.subword_sampling.alpha > 0 or config.training.modifiers.share > 0


def make_encoder(config: Config, data: PreparedData) -> Encoder:
    """Return what gives the training pairs new ids in each epoch."""
    settings, training = config.data, config.training
    longest = min(settings.max_length, training.max_tokens - 1)  # a longer form would not fit into a batch
    languages = settings.src_lang, settings.tgt_lang
    return Encoder(data.tokenizer, longest, training.subword_sampling, training.modifiers, languages)


def training_feed(
    config: Config, data: PreparedData, *, rank: int, world_size: int, pin: bool, plans: Path | None = None
) -> BatchLoader:
    """Return this rank's endless batches; pin is for a GPU, plans a folder that the machine's processes share."""
    settings, training = config.data, config.training
    mixture = None if config.trainer.overfit_batches else make_mixture(config, data)
    is_drawn = True if mixture is None else mixture.is_drawn()[:, None]  # a rare corpus may come in a later epoch
    require_budget(training.max_tokens, int(data.train.lengths.max(initial=0, where=is_drawn)) + 1)
    source = PreparedEpochs(data.train, config.seed, mixture)
    is_encoded_anew = is_random(config)
    if is_encoded_anew:
        readers = max(1, settings.num_proc // world_size)
        source = replace(source, encoder=make_encoder(config, data), size=settings.block, readers=readers)
    is_large = len(data.train) >= SHARED_PAIRS and not is_encoded_anew
    return BatchLoader(
        source,
        max_tokens=training.max_tokens,
        start=data.tokenizer.start,
        rank=rank,
        world_size=world_size,
        accumulate=training.accumulate,
        pin=pin,
        warn_of_small_blocks=is_encoded_anew,
        plans=plans if is_large and world_size > 1 and world_size > config.trainer.num_nodes else None,
    )


def first_batches(config: Config, data: PreparedData) -> PreparedData:
    """Return data whose training and validation pairs are those of the first trainer.overfit_batches batches alone."""
    mixture, rng = make_mixture(config, data), np.random.default_rng([config.seed, 0])
    order = all_indices(len(data.train)) if mixture is None else mixture.draw(0)
    rng.shuffle(order)
    plan = plan_batches(data.train, order, config.training.max_tokens, rng)[: config.trainer.overfit_batches]
    src, tgt = zip(*(data.train[index] for indices in plan for index in indices), strict=True)
    pairs, sides = Pairs.of(src, tgt, data.train.ids.dtype), (data.tokenizer.source, data.tokenizer.target)
    texts = (side.decode([ids.tolist() for ids in of_side]) for side, of_side in zip(sides, (src, tgt), strict=True))
    sizes = {"train": len(pairs), "validation_sets": {"overfit": len(pairs)}}
    report = data.report | {"sizes": data.report["sizes"] | sizes}
    return replace(
        data, train=pairs, validation=pairs, validation_pairs=list(zip(*texts, strict=True)), tests={}, report=report
    )


def batches_an_epoch(config: Config, data: PreparedData) -> int:
    """Return the number of training batches of the first epoch, counted without planning the batches.

    The number is exact for one rank, but an estimate if subword sampling or modifiers give pairs new ids.
    """
    mixture = make_mixture(config, data)
    return count_batches(data.train, config.training.max_tokens, None if mixture is None else mixture.draw(0))


def validation_loaders(config: Config, data: PreparedData, *, rank: int, world_size: int) -> list[FixedBatches]:
    """Return this rank's batches of each validation set, sorted by length; the token budget fits the longest pair."""
    longest = int(data.validation.lengths.max(initial=0)) + 1
    tokens = max(config.training.max_tokens, longest)
    plans = [plan_batches(data.validation, np.asarray(rows), tokens) for rows in data.validation_sets.values()]
    start = data.tokenizer.start
    return [FixedBatches(data.validation, pad_to_multiple(plan, world_size)[rank::world_size], start) for plan in plans]
