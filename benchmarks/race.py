"""Measure contestants in turns, block by block, so that other load on the machine affects all of them."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import torch

Block = TypeVar("Block")


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

    def show(self, digits: int) -> str:
        """Return the median and the range as text for a table."""
        low, middle, high = (f"{value:,.{digits}f}" for value in (self.lowest, self.median, self.highest))
        return f"{middle} ({low}–{high})"


@dataclass(frozen=True)
class Race:
    """Results of a race: for each contestant, the seconds for all blocks, one number per round."""

    seconds: dict[str, list[float]]
    work: float  # number of units, such as tokens or sentences, in all blocks

    def rate(self, name: str) -> Spread:
        """Return the units per second of a contestant."""
        return Spread.of([self.work / seconds for seconds in self.seconds[name]])

    def ratio(self, faster: str, slower: str) -> Spread:
        """Return how many times faster one contestant is than another, by round."""
        pairs = zip(self.seconds[faster], self.seconds[slower], strict=True)
        return Spread.of([theirs / ours for ours, theirs in pairs])

    def to_dict(self, opponents: Mapping[str, str]) -> dict[str, Any]:
        """Return JSON values; opponents names, for each rival, the contestant of ours to compare."""
        return {
            "work": self.work,
            "seconds": self.seconds,
            "rates": {name: asdict(self.rate(name)) for name in self.seconds},
            "ratios": {
                rival: asdict(self.ratio(ours, rival)) for rival, ours in opponents.items() if rival in self.seconds
            },
        }


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
    turn = 0
    for number in range(rounds):
        for block in blocks:
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                seconds[name][number] += timed(contestants[name], block, device)
            turn += 1
    return Race(seconds, work)


def timed(run: Callable[[Block], object], block: Block, device: torch.device) -> float:
    """Return the seconds of one call, until the device has finished."""
    wait(device)
    start = time.perf_counter()
    run(block)
    wait(device)
    return time.perf_counter() - start


def wait(device: torch.device) -> None:
    """Wait until a GPU has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
