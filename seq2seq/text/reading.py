"""Blocks of training text, read here or ahead in a process of its own; loads no PyTorch, which that has no use for."""

import atexit
import contextlib
import multiprocessing
import signal
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection

from seq2seq.errors import UserError
from seq2seq.text.blocks import Block, BlockSource, Place

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # what training ends in good order at

ReadBlocks = Callable[[BlockSource, Place], Iterator[Block]]


def read_here(source: BlockSource, place: Place) -> Iterator[Block]:
    """Read blocks in this process, when they are needed."""
    return source.blocks(place)


def read_ahead(source: BlockSource, place: Place) -> Iterator[Block]:
    """Read blocks in a process of its own, which makes the next one ready while one is used.

    The process cannot outlive this one for longer than a block. It leaves signals to this process, which decides what
    to do about them: a terminal's Ctrl-C and SLURM's warnings go to both.

    Raises:
        UserError: what reading raised, or the process was killed.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_blocks, args=(source, place, sender), name="reading training text")
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
                    f"the process that reads the training text ended (exit code {process.exitcode}), perhaps for want "
                    "of memory: resume=runs/NAME goes on from the last checkpoint; a new run may lower data.block"
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
