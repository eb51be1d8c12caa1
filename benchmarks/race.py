"""Times contestants in turns, block by block, so that other load on the machine affects all of them."""

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
        """Summarise one value per round."""
        return cls(statistics.median(values), min(values), max(values))

    def show(self, digits: int) -> str:
        """Return the median and the range of the rounds, for a table."""
        low, middle, high = (f"{value:,.{digits}f}" for value in (self.lowest, self.median, self.highest))
        return f"{middle} ({low}–{high})"


@dataclass(frozen=True)
class Race:
    """Seconds of each contestant for all blocks, one number per round."""

    seconds: dict[str, list[float]]
    work: float  # units in all blocks: tokens, sentences

    def rate(self, name: str) -> Spread:
        """Return units per second."""
        return Spread.of([self.work / seconds for seconds in self.seconds[name]])

    def ratio(self, faster: str, slower: str) -> Spread:
        """Return how many times faster one contestant is than another, by round."""
        pairs = zip(self.seconds[faster], self.seconds[slower], strict=True)
        return Spread.of([theirs / ours for ours, theirs in pairs])

    def to_dict(self, opponents: Mapping[str, str]) -> dict[str, Any]:
        """Return plain values; opponents names our contestant to compare with each rival that raced."""
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
    """Run every contestant on every block, all on one block before the next; the first contestant rotates.

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
