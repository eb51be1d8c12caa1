"""Modifiers: pairs in unusual forms to read, pairs a second, and the speed of training with and without them."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import torch

from benchmarks.command import Options, Results, Table
from benchmarks.data import BUNDLED, to_device
from benchmarks.ours import SEED, Size, Updates, model_config, precision_on
from benchmarks.race import race, timed
from seq2seq.data.batching import Batch
from seq2seq.data.dataset import PreparedData
from seq2seq.data.epochs import BlockId, PreparedEpochs
from seq2seq.data.loading import make_encoder, training_feed
from seq2seq.data.modifiers import FAMILIES, Modifiers
from seq2seq.data.prepare import prepare
from seq2seq.errors import UserError
from seq2seq.model.build import build_model
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig
from seq2seq.settings.training import ModifiersConfig, TrainingConfig
from seq2seq.training.module import TranslationModule

_TURN = 10  # updates before the other contestant's turn
_BLOCK = 2000  # pairs of a block in training, so that each round needs several


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `modifiers`."""

    data: Path = BUNDLED / "everyday.train.tsv"  # file of pairs, English first
    families: str = ",".join(FAMILIES)  # names of the families that are used, separated by commas
    pairs: int = 20  # modified pairs that are shown
    seed: int = SEED  # seed of the pairs and of their forms
    share: float = 0.25  # training.modifiers.share, for the measurements of speed
    updates: int = 0  # updates of training in each of three rounds; 0: only the pairs a second are measured
    size: Size = "small"  # size of the network, as model=SIZE of train.py


def run(plan: Plan, device: torch.device) -> Results:
    """Show modified pairs, and measure."""
    chosen = plan.families.split(",")
    if unknown := [name for name in chosen if name not in FAMILIES]:
        raise UserError(f"--families has {unknown[0]}: choose from {', '.join(FAMILIES)}")
    weights = {name: 0.0 for name in FAMILIES if name not in chosen}
    settings = TrainingConfig(max_tokens=1024, modifiers=replace(ModifiersConfig(share=plan.share), **weights))
    config = Config(data=DataConfig(train=[str(plan.data)]), training=settings)
    data = prepare(config.data, config.tokenizer)
    rows = modified_pairs(plan, config, data)
    rates = {f"share {share}": block_rate(config, data, share) for share in (plan.share, 1.0)}
    tables = [
        Table("Modified pairs", ["source", "target"], rows),
        Table("Blocks", ["", "pairs/s"], [[name, f"{rate:,.0f}"] for name, rate in rates.items()]),
    ]
    values = {"pairs": rows, "rates": rates}
    if plan.updates:
        seconds, table = training_speed(plan, config, data, device)
        return {**values, "seconds": seconds}, [*tables, table]
    return values, tables


def modified_pairs(plan: Plan, config: Config, data: PreparedData) -> list[list[str]]:
    """Return forms of random training pairs."""
    rng, tokenizer = random.Random(plan.seed), data.tokenizer
    modifiers = Modifiers(config.training.modifiers, (config.data.src_lang, config.data.tgt_lang), tokenizer)
    ids = [data.train[rng.randrange(len(data.train))] for _ in range(plan.pairs)]
    src = tokenizer.source.decode([src.tolist() for src, _ in ids])
    texts = list(zip(src, tokenizer.target.decode([tgt.tolist() for _, tgt in ids]), strict=True))
    return [list(modifiers.modify(pair, rng.choice(texts), rng)) for pair in texts]


def block_rate(config: Config, data: PreparedData, share: float) -> float:
    """Return how many pairs a second a process encodes anew in the second epoch."""
    training = replace(config.training, modifiers=replace(config.training.modifiers, share=share))
    encoder = make_encoder(replace(config, training=training), data)
    blocks = PreparedEpochs(data.train, config.seed, None, encoder, config.data.block)(BlockId(0, 0))
    next(blocks)
    block, seconds = timed(partial(next, blocks), torch.device("cpu"))
    return len(block.pairs) / seconds


def training_speed(
    plan: Plan, config: Config, data: PreparedData, device: torch.device
) -> tuple[dict[str, list[float]], Table]:
    """Train with modifiers and without them in turns, with the batches of training."""
    contestants: dict[str, Callable[[int], object]] = {}
    for name, share in (("without modifiers", 0.0), (f"share {plan.share}", plan.share)):
        modifiers = replace(config.training.modifiers, share=share)
        training = replace(config.training, learning_rate=1e-4, modifiers=modifiers)
        changed = replace(config, data=replace(config.data, block=_BLOCK), training=training)
        batches = iter(training_feed(changed, data, rank=0, world_size=1, pin=False))
        torch.manual_seed(SEED)
        model = build_model(model_config(plan.size), data.tokenizer.sizes[0]).to(device)
        updates = Updates(TranslationModule(model, changed.training), precision_on(device, "auto"))

        contestants[name] = partial(_train, updates, batches, device)
    turns = [_TURN] * max(1, plan.updates // _TURN)
    result = race(contestants, turns, work=sum(turns), rounds=3, device=device)
    rows = [[name, result.rate(name).show(2)] for name in result.seconds]
    return result.seconds, Table("Training", ["", "updates/s (range)"], rows)


def _train(updates: Updates, batches: Iterator[Batch], device: torch.device, count: int) -> None:
    for batch in islice(batches, count):
        updates.update(to_device(batch, str(device)))
