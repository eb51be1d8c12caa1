"""Timing side by side: contestants take turns block by block, so that whatever disturbs one disturbs all."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import torch

Block = TypeVar("Block")


@dataclass(frozen=True)
class Spread:
    """A quantity over the rounds of a race."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Sum up one value a round."""
        return cls(statistics.median(values), min(values), max(values))

    def show(self, digits: int) -> str:
        """For a table: the median, and what the rounds lay between."""
        low, middle, high = (f"{value:,.{digits}f}" for value in (self.lowest, self.median, self.highest))
        return f"{middle} ({low}–{high})"


@dataclass(frozen=True)
class Race:
    """Seconds that each contestant took for all blocks, one number a round."""

    seconds: dict[str, list[float]]
    work: float  # units in all blocks: tokens, sentences

    def rate(self, name: str) -> Spread:
        """Units a second."""
        return Spread.of([self.work / seconds for seconds in self.seconds[name]])

    def ratio(self, faster: str, slower: str) -> Spread:
        """How many times faster one is than the other, round by round."""
        pairs = zip(self.seconds[faster], self.seconds[slower], strict=True)
        return Spread.of([theirs / ours for ours, theirs in pairs])

    def to_dict(self, opponents: Mapping[str, str]) -> dict[str, Any]:
        """Give plain values; opponents: for each rival, if it raced, the contestant of ours to compare it with."""
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
    """Let every contestant do every block, all of them one block before any does the next; the first turn rotates.

    One uncounted block each comes before, for what is only done once (compiling kernels, filling caches).
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
    """Seconds that one call takes, until the device is done."""
    wait(device)
    start = time.perf_counter()
    run(block)
    wait(device)
    return time.perf_counter() - start


def wait(device: torch.device) -> None:
    """Let a GPU finish what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
