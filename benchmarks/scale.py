"""Cost of a large corpus in time, memory and devices, and the largest corpus for each method, from measured slopes."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from benchmarks.command import Options, Results, Table
from benchmarks.ours import Size, model_config
from benchmarks.profile import products
from benchmarks.slopes import Slopes, read_slopes
from seq2seq.settings.model import ModelConfig
from seq2seq.text.batching import Batch

HOUR, DAY = 3600, 86_400
MEMORY, DISK = 64e9, 1e12  # bytes of memory, and free bytes of the disk, of a machine


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `scale`: a user's corpus, model and machines."""

    # sentence pairs of the corpus; may be given several times
    pairs: list[int] = field(default_factory=lambda: [10_000_000, 100_000_000, 1_000_000_000])
    size: Size = "base"  # size of the network, as model=SIZE of train.py
    vocab_size: int = 32_000  # subwords of the vocabulary that both languages share
    tokens: int = 30  # tokens of a sentence, on either side
    epochs: float = 3.0  # times that training reads the corpus
    cores: int = 16  # CPU cores that prepare the corpus
    devices: int = 1  # devices, such as GPUs, that train and translate
    # 10¹² FLOP/s of a device in training (see `profile`); without it, as in docs/preparation.md
    tflops: float | None = None
    # lines a second that a device translates (see `files`); without it, as in docs/preparation.md
    lines: float | None = None
    slopes: Path | None = None  # JSON file that `slopes` wrote; without it, the slopes of docs/preparation.md


def run(plan: Plan, device: torch.device) -> Results:
    """Compute the cost of each corpus size, and the largest corpus for each method; nothing is measured.

    Raises:
        UserError: the file of slopes cannot be read, or has invalid slopes.
    """
    slopes = read_slopes(plan.slopes)
    reached = slopes.reached if plan.tflops is None else plan.tflops * 1e12
    slopes = replace(slopes, reached=reached, translated=plan.lines or slopes.translated)
    flops = training_flops(model_config(plan.size), plan)
    costs = {size: costs_of(size, flops, plan, slopes) for size in plan.pairs}
    rows = [[name, *(_shown(costs[size][name]) for size in plan.pairs)] for name in costs[plan.pairs[0]]]
    machine = f"{plan.cores} cores, {plan.devices} devices of {slopes.reached / 1e12:g} TFLOP/s reached in training"
    limits = limits_of(flops, plan, slopes)
    limit_rows = [[way, f"{size:,.0f}", then] for way, size, then in limits]
    return {"slopes": vars(slopes), "flops": flops, "costs": costs, "limits": limits}, [
        Table(machine, ["pairs", *(f"{size:,}" for size in plan.pairs)], rows),
        Table("Enough up to so many pairs", ["way", "pairs", "for more"], limit_rows),
    ]


def training_flops(model: ModelConfig, plan: Plan) -> int:
    """Return multiplications and additions per pair in one update, without attention's products of activations."""
    ids = torch.ones(1, plan.tokens, dtype=torch.long)
    return sum(product.flops for product in products(model, plan.vocab_size, Batch(ids, ids, ids)))


def costs_of(pairs: int, flops: int, plan: Plan, slopes: Slopes) -> dict[str, float]:
    """Return the cost of this number of pairs in hours and gigabytes; flops are per pair in one update."""
    alone, shared = pairs * slopes.alone / 1e6, pairs * slopes.shared / 1e6  # seconds
    rate = slopes.reached * plan.devices  # FLOP/s
    return {
        "text, GB": pairs * slopes.text / 1e9,
        "prepared text, GB": pairs * slopes.prepared / 1e9,
        "disk while preparing, GB": pairs * slopes.work / 1e9,
        "memory of the largest process, GB": (slopes.memory + pairs * slopes.memory_a_pair) / 1e9,
        "preparation by one process, hours": (slopes.fixed + alone + shared) / HOUR,
        "preparation by all cores, hours": (slopes.fixed + alone + shared / plan.cores) / HOUR,
        "training, hours": pairs * plan.epochs * flops / rate / HOUR,
        "devices to train in a day": pairs * plan.epochs * flops / slopes.reached / DAY,
        "translating it, hours": pairs / slopes.translated / plan.devices / HOUR,
        "devices to translate it in a day": pairs / slopes.translated / DAY,
    }


def limits_of(flops: int, plan: Plan, slopes: Slopes) -> list[tuple[str, float, str]]:
    """Return each method, the largest number of pairs for this method, and the method for more pairs."""
    alone, shared = slopes.alone / 1e6, slopes.shared / 1e6  # seconds
    trained = slopes.reached * plan.devices / flops / plan.epochs  # pairs per second, all epochs included
    limits = [
        ("a disk for preparation", DISK / slopes.work, "a larger disk"),
        ("training for a day", DAY * trained, "more devices"),
        ("translating for a day", DAY * slopes.translated * plan.devices, "seq2seq bulk-translate --ray"),
    ]
    if slopes.memory_a_pair > 0:
        most = max(0.0, MEMORY - slopes.memory) / slopes.memory_a_pair
        limits.insert(0, ("the memory for preparation", most, "more memory"))
    if shared > 0:  # a second machine halves the shared part, and Ray has to start
        saved = shared / plan.cores / 2
        limits.insert(0, ("one machine, faster than two", slopes.ray / saved, "seq2seq prepare --ray"))
    if alone + shared > 0:
        most = max(0.0, HOUR - slopes.fixed) / (alone + shared)
        limits.insert(0, ("one process, for an hour", most, f"data.num_proc={plan.cores}"))
    return limits


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
