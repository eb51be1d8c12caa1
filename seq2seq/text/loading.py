"""What training takes its batches from: an endless feed, read ahead where that pays, that resumes anywhere."""

import contextlib
import logging
import queue
import threading
from collections.abc import Generator, Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np

from seq2seq.text.batching import Batch, Share, collate, plan_batches
from seq2seq.text.blocks import BlockSource

logger = logging.getLogger(__name__)
ENDLESS = 1 << 40  # batches: to Lightning, training is one epoch that does not end
_AHEAD = 4  # batches
_FULL = 0.9  # of the token budget, on average


@runtime_checkable
class Loader(Protocol):
    """Gives batches, from where it stands to an epoch's end or for ever."""

    def __iter__(self) -> Iterator[Batch]: ...

    def state_dict(self) -> dict[str, Any]:
        """Tell where it stands, as plain values."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Stand there again."""
        ...


class BlockLoader:
    """Gives the batches of block after block, without end; its state is the same for every rank.

    Within a block everything is as in `BatchLoader`: drawn order, sorted by length, cut to the token budget, shuffled,
    a whole number of updates of `accumulate` batches on every rank.
    """

    def __init__(
        self,
        source: BlockSource,
        *,
        max_tokens: int,
        rank: int = 0,
        world_size: int = 1,
        accumulate: int = 1,
    ) -> None:
        self.source, self.max_tokens = source, max_tokens
        self.place, self._share = source.start(), Share(rank, world_size, accumulate)
        self._is_told = False

    def __iter__(self) -> Iterator[Batch]:
        """Go on from where it stands."""
        with contextlib.closing(self.source.blocks(self.place)) as blocks:
            for block in blocks:
                rng = np.random.default_rng(block.seed)
                order = rng.permutation(len(block.pairs))
                plan = plan_batches(block.pairs, order, self.max_tokens, rng)
                self._tell_how_full(len(plan), len(order))
                for indices in self._share.of(plan):
                    batch = collate([block.pairs[index] for index in indices])
                    self._share.advance()  # before the yield: a checkpoint taken while it is in use counts it as given
                    yield batch
                if self._share.rank == 0:
                    for line in block.told:
                        logger.info("%s", line)
                self.place, self._share.batches = block.after, 0

    def _tell_how_full(self, batches: int, pairs: int) -> None:
        """Warn, once, where equal counts for all cost much: a block too small for so many batches an update."""
        multiple = self._share.multiple
        full = batches / (batches + -batches % multiple)
        if full < _FULL and self._share.rank == 0 and not self._is_told:
            logger.warning(
                "a block of %s pairs makes %d batches of training.max_tokens=%d, and every update takes %d: they are "
                "cut to %.0f %% of that on average; data.block=%d, if there is as much text, makes it at least 90 %%",
                *(f"{pairs:,}", batches, self.max_tokens, multiple, 100 * full, 10 * multiple * pairs // batches),
            )
        self._is_told = True

    def state_dict(self) -> dict[str, Any]:
        """Where all ranks together stand, as plain values: the block's place, and the batches used of it."""
        return {"place": self.place, "batches": self._share.batches}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Stand there again."""
        self.place, self._share.batches = state["place"], state["batches"]


class Feed:
    """Batches for training, epoch after epoch without end.

    With pin, a thread makes batches ready in page-locked memory, from which a GPU fetches them while it computes. The
    state is that of the last batch given out, however many are ready.
    """

    def __init__(self, loader: Loader, *, pin: bool = False) -> None:
        self.loader, self.pin = loader, pin
        self._state = loader.state_dict()

    def __len__(self) -> int:
        """Count batches: there is no end."""
        return ENDLESS

    def __iter__(self) -> Iterator[Batch]:
        """Go on from where it stands."""
        self.loader.load_state_dict(self._state)
        for batch, state in _in_thread(self._pinned()) if self.pin else self._batches():
            self._state = state
            yield batch

    def _batches(self) -> Iterator[tuple[Batch, dict[str, Any]]]:
        while True:
            for batch in self.loader:
                yield batch, self.loader.state_dict()

    def _pinned(self) -> Generator[tuple[Batch, dict[str, Any]], None, None]:
        for batch, state in self._batches():
            yield Batch(*(side.pin_memory() for side in batch)), state

    def state_dict(self) -> dict[str, Any]:
        """Where it stands, as plain values."""
        return self._state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Stand there again."""
        self._state = state


def _in_thread(items: Generator[Any, None, None]) -> Iterator[Any]:
    """Let a thread go through items, some ahead of who takes them; it ends when nobody does any more."""
    ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(_AHEAD)
    over = threading.Event()

    def put(item: Any, error: BaseException | None) -> None:
        while not over.is_set():
            with contextlib.suppress(queue.Full):
                ready.put((item, error), timeout=0.1)
                return

    def work() -> None:
        try:
            for item in items:
                put(item, None)
                if over.is_set():
                    break
            items.close()
        except BaseException as error:
            put(None, error)

    thread = threading.Thread(target=work, name="batches", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            yield item
    finally:
        over.set()
        thread.join(timeout=10)
