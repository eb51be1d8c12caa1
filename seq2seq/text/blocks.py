"""Blocks of some ten thousand tokenised training pairs, and the process that reads blocks ahead of training.

A block's place is a few plain integers, from which the same block can be read again. This module and its imports load
no PyTorch: the reading process does not need it.
"""

import atexit
import contextlib
import multiprocessing
import signal
import traceback
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int32

from seq2seq.errors import UserError

Place = dict[str, Any]  # plain values
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # signals that end training in good order


class TokenBlock:
    """Tokenised pairs in memory, in two flat arrays."""

    def __init__(self, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]) -> None:
        assert len(src) == len(tgt)
        self._flat, self._starts, self._lengths = zip(*map(_flatten, (src, tgt)), strict=True)

    @property
    def src_lengths(self) -> Int32[np.ndarray, " n"]:
        """Tokens of each source."""
        return self._lengths[0]

    @property
    def tgt_lengths(self) -> Int32[np.ndarray, " n"]:
        """Tokens of each target."""
        return self._lengths[1]

    def __len__(self) -> int:
        return len(self._lengths[0])

    def __getitem__(self, index: int | np.integer) -> tuple[Int32[np.ndarray, " s"], Int32[np.ndarray, " t"]]:
        src, tgt = (
            flat[starts[index] : starts[index + 1]] for flat, starts in zip(self._flat, self._starts, strict=True)
        )
        return src, tgt


def _flatten(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    lengths = np.fromiter(map(len, rows), np.int32, len(rows))
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return np.fromiter(chain.from_iterable(rows), np.int32, int(starts[-1])), starts, lengths


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
