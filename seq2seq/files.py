"""Lines in, lines out, and where the newest model is; knows no model and no command line."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO

from seq2seq.drafts import put, resolve, sweep
from seq2seq.errors import UserError
from seq2seq.extras import train_command


def read_lines(path: Path | None, start: int = 0, first_line: int = 1) -> Iterator[str]:
    """Read UTF-8 text line by line, without line ends (LF or CRLF); path None is standard input.

    A file can be read from byte `start` on, where its line number `first_line` begins.

    Raises:
        UserError: the file cannot be read or is not UTF-8.
    """
    name = "stdin" if path is None else str(path)
    try:
        with _open_input(path) as file:
            if start:
                file.seek(start)
            for number, line in enumerate(file, start=first_line):
                yield _decode(line.removesuffix(b"\n").removesuffix(b"\r"), f"{name}:{number}")
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror}") from error


def count_lines(path: Path) -> int:
    """Count the lines that `read_lines` gives.

    Raises:
        UserError: the file cannot be read or is not UTF-8.
    """
    return sum(1 for _ in read_lines(path))


class Output:
    """Writes lines (UTF-8, LF) when called.

    Attributes:
        inputs: how many inputs' lines were there before, from a run that was broken off.
    """

    def __init__(self, file: BinaryIO | BufferedIOBase, path: Path | None = None) -> None:
        self.file, self.path, self.inputs = file, path, 0

    def __call__(self, line: str) -> None:
        """Write one line."""
        with _naming(self.path):
            self.file.write(_encode(line))

    def commit(self, inputs: int) -> None:
        """Hear that all lines of so many inputs, from the beginning, are written."""


class ResumableOutput(Output):
    """Remembers how far it is, in FILE.progress beside FILE.partial, so that a killed run can go on.

    Lines count when `commit` has returned after them.
    """

    def __init__(self, path: Path, made_of: Mapping[str, object], *, resume: bool) -> None:
        """Begin, or with resume go on.

        Raises:
            UserError: the file cannot be written, there is nothing to go on from, or that was made of something else.
        """
        self.made_of = json.loads(json.dumps(made_of))
        self.partial, self._progress = path.with_name(path.name + ".partial"), path.with_name(path.name + ".progress")
        inputs, size = self._begun() if resume else (0, 0)
        with _naming(path):
            file = self.partial.open("r+b" if resume else "wb")
            file.truncate(size)
            file.seek(size)
        super().__init__(file, path)
        self.commit(inputs)

    def _begun(self) -> tuple[int, int]:
        """How many inputs and bytes an earlier run had committed."""
        try:
            progress = json.loads(self._progress.read_text(encoding="utf-8"))
            inputs, size, made_of = int(progress["inputs"]), int(progress["bytes"]), dict(progress["made_of"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"nothing to resume: {self._progress} cannot be read; leave out --resume") from error
        for key in made_of | self.made_of:
            was, now = made_of.get(key), self.made_of.get(key)
            if was != now:
                raise UserError(
                    f"{self.partial} was made with {key}={was}, not {now}: "
                    "--resume it with the same, or leave out --resume to begin anew"
                )
        if not self.partial.is_file() or self.partial.stat().st_size < size:
            raise UserError(f"{self.partial} is shorter than {self._progress} says: leave out --resume to begin anew")
        return inputs, size

    def commit(self, inputs: int) -> None:
        """Put on record that all lines of so many inputs, from the beginning, are written."""
        self.inputs = inputs
        with _naming(self.path):
            self.file.flush()
            progress = {"inputs": inputs, "bytes": self.file.tell(), "made_of": self.made_of}
            draft = self._progress.with_name(self._progress.name + ".tmp")
            draft.write_text(json.dumps(progress), encoding="utf-8")
            draft.replace(self._progress)

    def finish(self) -> None:
        """Put the file under its name."""
        with _naming(self.path):
            self.file.close()
            put(self.partial, self.path or self.partial)
            self._progress.unlink()


@contextmanager
def open_output(
    path: Path | None, made_of: Mapping[str, object] | None = None, *, resume: bool = False
) -> Iterator[Output]:
    """Give what writes lines to a file; path None is standard output.

    A file appears under its name only when all lines are written; an error leaves what was there before. A link stays,
    and what it points to is replaced; a file that was there keeps its permissions. With made_of,
    which says what the lines depend on, a run that was broken off can go on with resume.

    Raises:
        UserError: the file cannot be written, or there is nothing to go on with.
    """
    if path is None:
        yield Output(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    path = resolve(path)
    is_plain = path.is_file() or not path.exists()  # devices and pipes are written directly, never replaced
    if made_of is not None and is_plain:
        output = ResumableOutput(path, made_of, resume=resume)
        try:
            yield output
            output.finish()
        finally:
            with suppress(OSError):
                output.file.close()
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp") if is_plain else path
    with _naming(path):
        file = temporary.open("wb")
    try:
        yield Output(file, path)
        with _naming(path):
            file.close()
            if is_plain:
                put(temporary, path)
    finally:
        with suppress(OSError):  # the error to report is the first one
            file.close()
        if is_plain:
            temporary.unlink(missing_ok=True)


def find_model(given: Path | None, runs: Path = Path("runs"), option: str = "--model ") -> Path:
    """Find the bundle that a user means: a bundle folder, a run folder, or (None) the newest run's.

    option is what the user gave it by, for the error.

    Raises:
        UserError: there is none.
    """
    if given is not None:
        inner = given / "model"
        if not _is_there(given):
            raise UserError(f"{option}{given} is no folder: give runs/NAME or runs/NAME/model")
        return inner if not (given / "config.json").exists() and _is_there(inner) else given
    latest = runs / "latest" / "model"
    if _is_there(latest):
        return latest
    found = [folder / "model" for folder in runs.glob("*/") if _is_there(folder / "model")]
    if not found:
        raise UserError(
            f"there is no model under {runs.resolve()}: train one with `{train_command()}`, or give --model"
        )
    return max(found, key=lambda folder: folder.stat().st_mtime)


def find_models(given: object) -> list[Path]:
    """Find the bundles that a call names: a path of a run or of its bundle (str or Path), or a list of them.

    Raises:
        UserError: one is not there, or is no path.
    """
    folders = given if isinstance(given, list | tuple) else [given]
    if not folders:
        raise UserError("the list of models is empty: give runs/NAME or runs/NAME/model")
    for one in folders:
        if not isinstance(one, str | Path):
            raise UserError(f"the model is {one!r} (of type {type(one).__name__}): give runs/NAME or runs/NAME/model")
    return [find_model(Path(str(one)), option="") for one in folders]


def _is_there(folder: Path) -> bool:
    """Whether there is such a folder, if need be after what a killed process left of its replacement is completed."""
    if not folder.is_dir():
        sweep(folder)
    return folder.is_dir()


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
def _naming(path: Path | None) -> Iterator[None]:
    """Say which output it is that cannot be written; None, standard output, is the shell's matter."""
    try:
        yield
    except OSError as error:
        if path is None:
            raise
        raise UserError(f"--output {path} cannot be written: {error.strerror}") from error
