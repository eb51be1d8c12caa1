"""Measure contestants in turns, block by block, so that other load on the machine affects all of them."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

Block = TypeVar("Block")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Spread:
    """Median and range of a quantity over the rounds of a race."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the median and the range of one value per round."""
        return cls(statistics.median(values), min(values), max(values))

    @classmethod
    def of_ratios(cls, numerators: Sequence[float], denominators: Sequence[float]) -> "Spread":
        """Return the median and the range of the ratios of each round."""
        return cls.of([a / b for a, b in zip(numerators, denominators, strict=True)])

    def show(self, digits: int) -> str:
        """Return the median and the range as text for a table."""
        low, middle, high = (f"{value:,.{digits}f}" for value in (self.lowest, self.median, self.highest))
        return f"{middle} ({low}–{high})"


@dataclass(frozen=True)
class Race:
    """Results of a race, by contestant."""

    seconds: dict[str, list[float]]  # seconds for all blocks, one number per round
    work: float  # number of units, such as tokens or sentences, in all blocks
    outputs: dict[str, list[Any]]  # what the contestant returned for each block in the last round

    def rate(self, name: str) -> Spread:
        """Return the units per second of a contestant."""
        return Spread.of([self.work / seconds for seconds in self.seconds[name]])

    def ratio(self, faster: str, slower: str) -> Spread:
        """Return how many times faster one contestant is than another, by round."""
        return Spread.of_ratios(self.seconds[slower], self.seconds[faster])


def race(
    contestants: Mapping[str, Callable[[Block], object]],
    blocks: Sequence[Block],
    *,
    work: float,
    rounds: int,
    device: torch.device,
) -> Race:
    """Run every contestant on every block, and return the seconds.

    All contestants run on a block before the next block begins. Each block begins with another contestant. First, each
    contestant runs one block as a warm-up, which does not count (compiling kernels, filling caches).
    """
    names = list(contestants)
    for name in names:
        contestants[name](blocks[0])
    seconds = {name: [0.0] * rounds for name in names}
    outputs: dict[str, list[Any]] = {name: [None] * len(blocks) for name in names}
    turn = 0
    for number in range(rounds):
        for index, block in enumerate(blocks):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                outputs[name][index], taken = timed(lambda n=name, b=block: contestants[n](b), device)
                seconds[name][number] += taken
            turn += 1
    return Race(seconds, work, outputs)


def timed(work: Callable[[], Result], device: torch.device) -> tuple[Result, float]:
    """Return the result of `work` and its seconds, until the device has finished."""
    _wait(device)
    start = time.perf_counter()
    result = work()
    _wait(device)
    return result, time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
