"""Measure a function in a new process, so that the measured memory is that of the function alone."""

import multiprocessing
import resource
import time
from collections.abc import Callable
from typing import Any, NamedTuple


class Measured(NamedTuple):
    """Time, memory and result of a function."""

    seconds: float  # the start of the process excluded
    peak: float  # memory of the largest process (bytes): the new process or one of its children
    result: Any


def apart(work: Callable[..., object], *arguments: object) -> Measured:
    """Call `work` in a new process, wait for its end, and return its measurements and its result.

    Raises:
        RuntimeError: the process died.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_measured, args=(theirs, work, arguments))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError as error:
        raise RuntimeError(f"{work.__name__} died in its process") from error
    finally:
        process.join()


def _measured(pipe: Any, work: Callable[..., object], arguments: tuple[object, ...]) -> None:
    start = time.perf_counter()
    result = work(*arguments)
    seconds = time.perf_counter() - start
    of = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    pipe.send(Measured(seconds, max(resource.getrusage(one).ru_maxrss for one in of) * 1024, result))
