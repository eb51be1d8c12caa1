"""Compute the cost of a large corpus, and the largest corpus for each method, from measured slopes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.profile import products
from benchmarks.slopes import Slopes
from benchmarks.tables import Table
from seq2seq.settings.model import ModelConfig
from seq2seq.text.batching import Batch

HOUR, DAY = 3600, 86_400


@dataclass(frozen=True, kw_only=True)
class Case:
    """A user's corpus, model and machines."""

    pairs: Sequence[int] = (10_000_000, 100_000_000, 1_000_000_000)
    tokens: int = 30  # tokens per sentence on each side
    epochs: float = 3.0
    vocab_size: int = 32_000
    cores: int = 16  # cores for preparation
    devices: int = 1  # devices for training and translation
    memory: float = 64e9  # bytes per machine
    disk: float = 1e12  # free bytes


def training_flops(model: ModelConfig, case: Case) -> int:
    """Return multiplications and additions per pair in one update, without attention's products of activations."""
    ids = torch.ones(1, case.tokens, dtype=torch.long)
    return sum(product.flops for product in products(model, case.vocab_size, Batch(ids, ids, ids)))


def run(model: ModelConfig, case: Case, slopes: Slopes) -> dict[str, Any]:
    """Return the cost of each corpus size, and the largest corpus for each method."""
    flops = training_flops(model, case)
    costs = {size: costs_of(size, flops, case, slopes) for size in case.pairs}
    names = list(costs[case.pairs[0]])
    rows = [[name, *(_told(costs[size][name]) for size in case.pairs)] for name in names]
    machine = f"{case.cores} cores, {case.devices} devices of {slopes.reached / 1e12:g} TFLOP/s reached in training"
    cost_table = Table(machine, ["pairs", *(f"{size:,}" for size in case.pairs)], rows)
    limits = limits_of(flops, case, slopes)
    told = [[way, f"{size:,.0f}", then] for way, size, then in limits]
    limit_table = Table("Enough up to so many pairs", ["way", "pairs", "for more"], told)
    return {
        "case": asdict(case),
        "slopes": asdict(slopes),
        "flops": flops,
        "costs": costs,
        "limits": limits,
        "tables": [asdict(cost_table), asdict(limit_table)],
    }


def costs_of(pairs: int, flops: int, case: Case, slopes: Slopes) -> dict[str, float]:
    """Return the cost of this number of pairs in hours and gigabytes; flops are per pair in one update."""
    alone, shared = pairs * slopes.alone / 1e6, pairs * slopes.shared / 1e6  # seconds
    rate = slopes.reached * case.devices  # FLOP/s
    return {
        "text, GB": pairs * slopes.text / 1e9,
        "prepared text, GB": pairs * slopes.prepared / 1e9,
        "disk while preparing, GB": pairs * slopes.work / 1e9,
        "memory of the largest process, GB": (slopes.memory + pairs * slopes.memory_a_pair) / 1e9,
        "preparation by one process, hours": (slopes.fixed + alone + shared) / HOUR,
        "preparation by all cores, hours": (slopes.fixed + alone + shared / case.cores) / HOUR,
        "training, hours": pairs * case.epochs * flops / rate / HOUR,
        "devices to train in a day": pairs * case.epochs * flops / slopes.reached / DAY,
        "translating it, hours": pairs / slopes.translated / case.devices / HOUR,
        "devices to translate it in a day": pairs / slopes.translated / DAY,
    }


def limits_of(flops: int, case: Case, slopes: Slopes) -> list[tuple[str, float, str]]:
    """Return each method, the largest number of pairs for this method, and the method for more pairs."""
    alone, shared = slopes.alone / 1e6, slopes.shared / 1e6  # seconds
    trained = slopes.reached * case.devices / flops / case.epochs  # pairs per second, all epochs included
    limits = [
        ("a disk for preparation", case.disk / slopes.work, "a larger disk"),
        ("training for a day", DAY * trained, "more devices"),
        ("translating for a day", DAY * slopes.translated * case.devices, "seq2seq bulk-translate --ray"),
    ]
    if slopes.memory_a_pair > 0:
        most = max(0.0, case.memory - slopes.memory) / slopes.memory_a_pair
        limits.insert(0, ("the memory for preparation", most, "more memory"))
    if shared > 0:  # a second machine halves the shared part, and Ray has to start
        saved = shared / case.cores / 2
        limits.insert(0, ("one machine, faster than two", slopes.ray / saved, "seq2seq prepare --ray"))
    if alone + shared > 0:
        most = max(0.0, HOUR - slopes.fixed) / (alone + shared)
        limits.insert(0, ("one process, for an hour", most, f"data.num_proc={case.cores}"))
    return limits


def _told(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
