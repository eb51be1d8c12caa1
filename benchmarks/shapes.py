"""Shapes of an epoch's batches, and their positions a token; what planning an epoch of a large text costs."""

import os
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.command import Options, Results, Table
from benchmarks.data import drawn_lengths, drawn_pairs, epochs_of
from benchmarks.ours import SEED
from benchmarks.processes import read_memory
from seq2seq.data.batching import plan_block
from seq2seq.data.dataset import Pairs
from seq2seq.data.epochs import Block, BlockId
from seq2seq.data.prepare import prepare
from seq2seq.settings.compose import compose
from seq2seq.text.tokenizer import PAD

RANDOM_PAIRS = 200_000


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `shapes`."""

    # setting that chooses the text, as for train.py; may be given several times; without it, random ids in sentences of
    # everyday lengths
    setting: list[str] = field(default_factory=list)
    max_tokens: int = 16_384  # most positions of a batch on either side, padding included
    planned: int = 0  # pairs of random lengths whose epoch is planned, on Linux; 0: none


def run(plan: Plan, device: torch.device) -> Results:
    """Make the batches of one epoch without modifiers, and count their shapes and their padding."""
    if plan.setting:
        config = compose(plan.setting)
        pairs = prepare(config.data, config.tokenizer).train
    else:
        pairs = drawn_pairs(RANDOM_PAIRS, 8000, SEED)
    shapes, positions, tokens = measure(pairs, plan.max_tokens)
    row = [f"{shapes.total():,}", f"{len(shapes)}", f"{sum(count < 3 for count in shapes.values())}"]
    row += [f"{of_side / real:.3f}" for of_side, real in zip(positions, tokens, strict=True)]
    header = ["pairs", "batches", "shapes", "shapes of 1 or 2 batches", "source positions a token", "target positions"]
    values: dict[str, Any] = {
        "shapes": {str(shape): count for shape, count in shapes.items()},
        "positions": positions,
        "tokens": tokens,
    }
    tables = [Table(f"An epoch, {plan.max_tokens:,} positions a batch", header, [[f"{len(pairs):,}", *row]])]
    if plan.planned:
        seconds, peak = values["plan"] = measure_plan(plan.planned, plan.max_tokens)
        row = [f"{plan.planned:,}", f"{seconds:.1f}", f"{peak / plan.planned:.0f}"]
        tables.append(Table("Planning an epoch", ["pairs", "seconds of a core", "memory, bytes a pair"], [row]))
    return values, tables


def measure_plan(pairs: int, max_tokens: int) -> tuple[float, int]:
    """Return the seconds and the memory (bytes, at the peak) that planning an epoch of random lengths takes."""
    lengths = drawn_lengths(np.random.default_rng(SEED), pairs)
    block = Block(BlockId(0, 0), Pairs(np.empty(0, np.uint16), lengths), [SEED, 0])
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak before does not count
    before, start = max(read_memory(os.getpid(), "status", "VmRSS")), time.process_time()
    plan_block(block, max_tokens)
    return time.process_time() - start, max(read_memory(os.getpid(), "status", "VmHWM")) - before


def measure(pairs: Pairs, max_tokens: int) -> tuple[Counter[tuple[int, ...]], list[int], list[int]]:
    """Return how many batches have each shape (rows, source width, target width), and each side's positions and tokens.

    EOS is a token.
    """
    loader = epochs_of(pairs, max_tokens, SEED)
    shapes: Counter[tuple[int, ...]] = Counter()
    positions, tokens = [0, 0], [0, 0]
    for batch in takewhile(lambda _: loader.state_dict()["epoch"] == 0, loader):
        shapes[(*batch.src.shape, batch.tgt_in.shape[1])] += 1
        for side, ids in enumerate((batch.src, batch.tgt_out)):
            positions[side] += ids.numel()
            tokens[side] += int((ids != PAD).sum())
    return shapes, positions, tokens
