"""Training text in blocks of some ten thousand pairs, tokenised when they are read, here or in another process.

A block's place is a few plain integers, from which the same block can be read again. This module and its imports load
no PyTorch: the reading process does not need it.
"""

import atexit
import contextlib
import multiprocessing
import signal
import traceback
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from seq2seq.errors import UserError
from seq2seq.text.augment import Encoder, TokenBlock
from seq2seq.text.mixing import Mixture
from seq2seq.text.vocab import UNK

Place = dict[str, Any]  # plain values
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # signals that end training in good order


@runtime_checkable
class IdPairs(Protocol):
    """Tokenised sentence pairs, without special ids."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]: ...


class Block(NamedTuple):
    """Pairs that are shuffled and batched together."""

    pairs: TokenBlock
    seed: list[int]  # of the order of pairs and batches
    after: Place  # where the next block begins
    told: list[str]  # what to log when it is used


@runtime_checkable
class BlockSource(Protocol):
    """A source of training text in blocks, without end; pickles, so that another process can read it."""

    def start(self) -> Place:
        """Return the place of the first block."""
        ...

    def blocks(self, place: Place) -> Generator[Block, None, None]:
        """Read blocks, beginning at a place."""
        ...


@dataclass(frozen=True)
class PreparedBlocks:
    """Prepared pairs, back to text and to other ids each time: an epoch's order is drawn, then cut into blocks.

    Ids become text and text ids again without loss, since the tokenizer knows every byte; a pair with an unknown
    token, of a tokenizer without byte fallback, stays as it is.
    """

    pairs: IdPairs
    encoder: Encoder
    size: int  # pairs a block, about
    seed: int
    mixture: Mixture | None = None

    def start(self) -> Place:
        """Return the place of the first block."""
        return {"epoch": 0, "block": 0}

    def blocks(self, place: Place) -> Generator[Block, None, None]:
        """Read blocks, beginning at a place; every epoch has each pair once, or as the mixture says.

        The order of an epoch is the same as without blocks.
        """
        epoch, first = place["epoch"], place["block"]
        while True:
            rng = np.random.default_rng([self.seed, epoch])
            order = rng.permutation(len(self.pairs)) if self.mixture is None else self.mixture.draw(epoch, rng)
            parts = np.array_split(order, max(1, round(len(order) / self.size)))
            for number in range(first, len(parts)):
                is_last = number + 1 == len(parts)
                after = {"epoch": epoch + is_last, "block": 0 if is_last else number + 1}
                seed = [self.seed, epoch, number]
                yield Block(self._encode(parts[number], seed), seed, after, [])
            epoch, first = epoch + 1, 0

    def _encode(self, indices: np.ndarray, seed: list[int]) -> TokenBlock:
        plain = [tuple(ids.tolist() for ids in self.pairs[int(index)]) for index in indices]
        src_texts, tgt_texts = (self.encoder.tokenizer.decode([pair[side] for pair in plain]) for side in (0, 1))
        src, tgt = self.encoder.encode(src_texts, tgt_texts, seed)
        for i, pair in enumerate(plain):
            if UNK in pair[0] or UNK in pair[1]:
                src[i], tgt[i] = pair
        return TokenBlock(src, tgt)


@dataclass(frozen=True)
class ReadAhead:
    """A source whose blocks are read by a process of its own, which prepares the next block while one is used.

    The process ends with this one, at the latest after its current block. It ignores signals, because a terminal's
    Ctrl-C and SLURM's warnings go to both processes and this one decides what to do about them.
    """

    source: BlockSource

    def start(self) -> Place:
        """Return the place of the first block."""
        return self.source.start()

    def blocks(self, place: Place) -> Generator[Block, None, None]:
        """Read blocks, beginning at a place.

        Raises:
            UserError: the source raised it, or the process was killed.
        """
        context = multiprocessing.get_context("spawn")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_send_blocks, args=(self.source, place, sender), name="reading training text")
        with _blocked_signals():
            process.start()
        sender.close()
        atexit.register(process.kill)
        try:
            while True:
                try:
                    item = receiver.recv()
                except (EOFError, OSError) as error:
                    process.join(timeout=10)
                    raise UserError(
                        f"the process that reads the training text ended (exit code {process.exitcode}), perhaps for "
                        "want of memory: resume=runs/NAME goes on from the last checkpoint; a new run may lower "
                        "data.block"
                    ) from error
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            receiver.close()
            process.kill()
            process.join()
            atexit.unregister(process.kill)


def _send_blocks(source: BlockSource, place: Place, sender: Connection) -> None:
    for name in _STOPS:
        signal.signal(name, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    with contextlib.suppress(BrokenPipeError):  # training is over
        try:
            for block in source.blocks(place):
                sender.send(block)
        except UserError as error:
            sender.send(error)
        except BrokenPipeError:
            raise
        except Exception:
            sender.send(RuntimeError(f"reading training text failed:\n{traceback.format_exc()}"))


@contextlib.contextmanager
def _blocked_signals() -> Iterator[None]:
    """Let a process that is started now, from whatever thread, not hear signals before it ignores them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    try:
        resource_tracker.ensure_running()  # it unblocks some when it starts, so it has to run already
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
