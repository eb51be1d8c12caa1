"""Shapes of an epoch's batches, and their positions a token: a GPU records an update for each shape."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import takewhile

import torch

from benchmarks.command import Options, Results, Table
from benchmarks.data import drawn_pairs, epochs_of
from benchmarks.ours import SEED
from seq2seq.data.dataset import Pairs
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
    values = {
        "shapes": {str(shape): count for shape, count in shapes.items()},
        "positions": positions,
        "tokens": tokens,
    }
    return values, [Table(f"An epoch, {plan.max_tokens:,} positions a batch", header, [[f"{len(pairs):,}", *row]])]


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
