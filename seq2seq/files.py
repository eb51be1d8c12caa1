"""Lines in, lines out, and where the newest model is; knows no model and no command line."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from seq2seq.errors import UserError


def read_lines(path: Path | None) -> Iterator[str]:
    """Read UTF-8 text line by line, without line ends (LF or CRLF); path None is standard input.

    Raises:
        UserError: the file cannot be read or is not UTF-8.
    """
    name = "stdin" if path is None else str(path)
    try:
        with _open_input(path) as file:
            for number, line in enumerate(file, start=1):
                yield _decode(line.removesuffix(b"\n").removesuffix(b"\r"), f"{name}:{number}")
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror}") from error


def count_lines(path: Path) -> int:
    """Count the lines that `read_lines` gives.

    Raises:
        UserError: the file cannot be read or is not UTF-8.
    """
    return sum(1 for _ in read_lines(path))


@contextmanager
def open_output(path: Path | None) -> Iterator[Callable[[str], object]]:
    """Give a function that writes one line (UTF-8, LF); path None is standard output.

    A file appears under its name only when all lines are written; an error leaves what was there before.

    Raises:
        UserError: the file cannot be written.
    """
    if path is None:
        yield lambda line: sys.stdout.buffer.write(_encode(line))
        sys.stdout.buffer.flush()
        return
    path = path.resolve()
    is_plain = path.is_file() or not path.exists()  # devices and pipes are written directly, never replaced
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp") if is_plain else path
    with _naming(path):
        file = temporary.open("wb")

    def write(line: str) -> None:
        with _naming(path):
            file.write(_encode(line))

    try:
        yield write
        with _naming(path):
            file.close()
            if is_plain:
                temporary.replace(path)
    finally:
        with suppress(OSError):  # the error to report is the first one
            file.close()
        if is_plain:
            temporary.unlink(missing_ok=True)


def find_model(given: Path | None, runs: Path = Path("runs")) -> Path:
    """Find the bundle that a user means: a bundle folder, a run folder, or (None) the newest run's.

    Raises:
        UserError: there is none.
    """
    if given is not None:
        inner = given / "model"
        if not given.is_dir():
            raise UserError(f"--model {given} is no folder: give runs/NAME or runs/NAME/model")
        return inner if inner.is_dir() and not (given / "config.json").exists() else given
    latest = runs / "latest" / "model"
    if latest.is_dir():
        return latest
    found = [folder for folder in runs.glob("*/model") if folder.is_dir()]
    if not found:
        raise UserError(f"there is no model under {runs.resolve()}: train one with `python train.py`, or give --model")
    return max(found, key=lambda folder: folder.stat().st_mtime)


@contextmanager
def _open_input(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdin.buffer
    else:
        with path.open("rb") as file:
            yield file


def _decode(line: bytes, place: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{place}: byte {error.start + 1} (0x{line[error.start]:02x}) is not UTF-8: convert the text first, "
            "for example with iconv"
        ) from error


def _encode(line: str) -> bytes:
    return line.encode() + b"\n"


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Say which output it is that cannot be written."""
    try:
        yield
    except OSError as error:
        raise UserError(f"--output {path} cannot be written: {error.strerror}") from error
