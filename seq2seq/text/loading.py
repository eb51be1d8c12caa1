"""The batches of training and validation, from prepared or streamed text, as the settings say; they resume anywhere."""

import contextlib
import logging
import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.text.augment import Encoder, PreparedBlocks
from seq2seq.text.batching import Batch, BatchLoader, Share, collate, plan_batches
from seq2seq.text.blocks import BlockSource, ReadAhead
from seq2seq.text.corpus import open_splits
from seq2seq.text.dataset import PreparedData
from seq2seq.text.mixing import Mixture, tempered_shares, weighted_shares
from seq2seq.text.overlap import OverlapIndex, name_held_out
from seq2seq.text.streaming import StreamBlocks

logger = logging.getLogger(__name__)
ENDLESS = 1 << 40  # batches: to Lightning, training is one epoch that does not end
_AHEAD = 4  # batches
_FULL = 0.9  # of the token budget, on average


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

    def __init__(self, loader: BatchLoader | BlockLoader, *, pin: bool = False) -> None:
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


def make_mixture(config: Config, data: PreparedData) -> Mixture | None:
    """Give the mixture that data.weights or data.temperature ask for; None: every pair comes once an epoch.

    Raises:
        UserError: a weight names no corpus, or nothing would be drawn.
    """
    settings = config.data
    if settings.streaming or (not settings.weights and settings.temperature == 1):
        return None
    names, sizes = _corpora(data)
    assert sum(sizes) == len(data.train)
    shares = weighted_shares(names, settings.weights)
    if not settings.weights:
        shares = tempered_shares(sizes, settings.temperature)
    return Mixture(sizes, shares, config.seed)


def mixture_table(config: Config, data: PreparedData) -> Table | None:
    """Show what an epoch holds of each corpus, where that is not just all of it."""
    mixture = make_mixture(config, data)
    return None if mixture is None else mixture.table(_corpora(data)[0])


def _corpora(data: PreparedData) -> tuple[Sequence[str], Sequence[int]]:
    """Name the training corpora in the order of their pairs, and count those."""
    files = data.report["files"]
    return [file["name"] for file in files], [file.get("kept", 0) for file in files]


def training_feed(config: Config, data: PreparedData, *, rank: int, world_size: int, pin: bool) -> Feed:
    """Give this rank's training batches, without end; pin is for training on a GPU.

    Raises:
        UserError: a corpus, a weight or the token budget does not fit.
    """
    settings, training = config.data, config.training
    encoder = Encoder(data.tokenizer, settings.max_length, training.subword_sampling, training.noise)
    mixture = make_mixture(config, data)
    if settings.streaming:
        overlap = OverlapIndex(name_held_out(data.validation_pairs, data.tests))
        source = StreamBlocks(open_splits(settings)["train"], settings, encoder, overlap, config.seed)
    elif encoder.is_random:
        source = PreparedBlocks(data.train, encoder, settings.block, config.seed, mixture)
    else:
        loader = BatchLoader(
            data.train,
            max_tokens=training.max_tokens,
            seed=config.seed,
            rank=rank,
            world_size=world_size,
            accumulate=training.accumulate,
            mixture=mixture,
        )
        return Feed(loader, pin=pin)
    if training.max_tokens <= settings.max_length:
        raise UserError(
            f"training.max_tokens={training.max_tokens} cannot hold data.max_length={settings.max_length} tokens and "
            "an end mark, and a pair of that length may come at any time: raise it, or lower data.max_length"
        )
    loader = BlockLoader(
        ReadAhead(source),
        max_tokens=training.max_tokens,
        rank=rank,
        world_size=world_size,
        accumulate=training.accumulate,
    )
    return Feed(loader, pin=pin)


def validation_loader(config: Config, data: PreparedData, *, rank: int, world_size: int) -> BatchLoader:
    """Give this rank's validation batches, by length; their budget is at least the longest pair."""
    longest = int(max(data.validation.src_lengths.max(), data.validation.tgt_lengths.max())) + 1
    tokens = max(config.training.max_tokens, longest)
    return BatchLoader(data.validation, max_tokens=tokens, shuffle=False, rank=rank, world_size=world_size)
