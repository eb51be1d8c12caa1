"""Progress of long work on stderr: a log line for each phase and, on a terminal, a bar with the time left."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, Task

Advance = Callable[..., None]  # takes a number of units and, optionally, a text instead of the count
log = logging.getLogger(__name__)
_RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")  # variables with a process's number in a run of several
_is_enabled = True
_bars: list["Progress"] = []  # the one on the terminal, if there is one


@lru_cache
def console() -> "Console":
    """Return the console of stderr. What it prints while bars are shown appears above them."""
    from rich.console import Console

    return Console(file=cast(IO[str], _Terminal()))


class _Terminal:
    """Writes to stderr, and nowhere once the terminal is closed: a run in the background goes on."""

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(sys.stderr, "rich_proxied_file", sys.stderr), name)  # not rich's own redirection

    def write(self, text: str) -> None:
        with suppress(OSError):
            self.__getattr__("write")(text)

    def flush(self) -> None:
        with suppress(OSError):
            self.__getattr__("flush")()


def log_handler() -> logging.Handler:
    """Return a handler that writes log lines with their times to stderr, on a terminal above the bars."""
    handler = _TerminalLines() if sys.stderr.isatty() else logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    return handler


class _TerminalLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        console().print(self.format(record), markup=False, emoji=False, soft_wrap=True)  # so that paths can be copied


def is_shown() -> bool:
    """Return whether bars are shown: they are enabled, stderr is a terminal, and no other process shows them."""
    return _is_enabled and _is_first() and sys.stderr.isatty() and console().is_interactive


def _is_first() -> bool:
    """Return whether this is the first process of a run, also before PyTorch is loaded."""
    return all(os.environ.get(name, "0") == "0" for name in _RANKS)


def enable(is_enabled: bool) -> None:
    """Show bars from now on, or never."""
    global _is_enabled
    _is_enabled = is_enabled


@contextmanager
def phase(name: str, total: float | int | None = None, unit: str = "") -> Iterator[Advance]:
    """Log that a phase begins, and show a bar during the block."""
    if _is_first():
        log.info("%s%s", name, f": {total:,} {unit}" if total else "")
    with bar(name, total, unit) as advance:
        yield advance


@contextmanager
def bar(name: str, total: float | int | None = None, unit: str = "", done: float | int = 0) -> Iterator[Advance]:
    """Show a bar during the block, below those of the blocks around it; yield the function that advances the bar.

    The bar has the time left; without a total, or before the second advance, the time since its beginning.
    """
    if not is_shown():
        yield lambda units=1, text=None: None
        return
    if not _bars:
        _bars.append(_new_bars())
    bars, count, of = _bars[0], done, f" of {total:,}" if total else ""
    task = bars.add_task(name, total=total, completed=done, text="")  # pyright: ignore[reportArgumentType]

    def advance(units: float | int = 1, text: str | None = None) -> None:
        nonlocal count
        count += units
        bars.update(task, completed=count, text=f"{count:,}{of} {unit}" if text is None else text)

    try:
        bars.start()
        console().show_cursor()  # a signal may end the process
        bars.refresh()
        yield advance
    finally:
        bars.remove_task(task)
        if not bars.tasks:
            _bars.clear()
            bars.stop()


def _new_bars() -> "Progress":
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Time(ProgressColumn):
        def render(self, task: "Task") -> Text:
            left, elapsed = task.time_remaining, task.elapsed or 0.0
            seconds = timedelta(seconds=int(elapsed if left is None else left))
            return Text(f"{seconds}{'' if left is None else ' left'}", "progress.remaining")

    name, text = (TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[text]"))
    columns = (name, BarColumn(12), Time(Column(no_wrap=True)), text)
    is_tty = sys.stdout.isatty()  # else what the program prints to a file would go to the terminal
    return Progress(*columns, console=console(), transient=True, redirect_stdout=is_tty, speed_estimate_period=3600)
