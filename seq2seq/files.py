"""Inputs and outputs of commands as lines, and models' folders; knows no model and no command line."""

import errno
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO

from seq2seq.drafts import put, replacing, resolve, sweep
from seq2seq.errors import UserError
from seq2seq.extras import clone, train_command
from seq2seq.lines import Lines, refuse_bad_lines


def read_lines(path: Path | None, start: int = 0) -> Iterator[str]:
    """Read UTF-8 text line by line, without line ends (LF or CRLF) and byte order mark; path None is standard input.

    Reading begins at the first line that begins at byte `start` of a file or later.

    Raises:
        UserError: the file cannot be read, or a line is not UTF-8 or too long.
    """
    return refuse_bad_lines(Lines(path, start, allows_nul=True))


def count_lines(path: Path) -> int:
    """Count the lines of a file.

    Raises:
        UserError: the file cannot be read or is not UTF-8.
    """
    return sum(1 for _ in read_lines(path))


class Output:
    """Writes lines (UTF-8, LF) when called.

    Attributes:
        inputs: number of inputs that are recorded as fully written, also by an interrupted command.
    """

    def __init__(self, file: BinaryIO | BufferedIOBase, path: Path | None = None) -> None:
        self.file, self.path, self.inputs = file, path, 0

    def __call__(self, line: str) -> None:
        """Write one line."""
        with _naming(self.path):
            self.file.write(line.encode() + b"\n")

    def commit(self, inputs: int) -> None:
        """Record that the first `inputs` inputs are fully written; only `ResumableOutput` does."""


class ResumableOutput(Output):
    """Writes FILE.partial and records its progress in FILE.progress, so that a killed command can be resumed.

    Lines written after the last `commit` are written again.
    """

    def __init__(self, path: Path, made_of: Mapping[str, object], *, resume: bool) -> None:
        """Begin a file, or resume an unfinished file.

        Raises:
            UserError: the file cannot be written, or there is no unfinished file that depends on the same things.
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
        """Return how many inputs and bytes an earlier run had committed."""
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
        """Record that the first `inputs` inputs are fully written."""
        self.inputs = inputs
        with _naming(self.path):
            self.file.flush()
            progress = {"inputs": inputs, "bytes": self.file.tell(), "made_of": self.made_of}
            draft = self._progress.with_name(self._progress.name + ".tmp")
            draft.write_text(json.dumps(progress), encoding="utf-8")
            draft.replace(self._progress)

    def finish(self) -> None:
        """Rename the complete file to its own name, and remove FILE.progress."""
        with _naming(self.path):
            self.file.close()
            put(self.partial, self.path or self.partial)
            self._progress.unlink()


@contextmanager
def open_output(
    path: Path | None, made_of: Mapping[str, object] | None = None, *, resume: bool = False
) -> Iterator[Output]:
    """Open a file to write lines to; path None is standard output.

    A file gets its name only when all lines are written; an error leaves the old file unchanged. A link stays, and its
    target is replaced; the new file gets the old file's permissions. made_of describes everything that the lines depend
    on; only an output with made_of can be resumed after an interruption.

    Raises:
        UserError: the file cannot be written, or there is nothing to resume.
    """
    if path is None:
        yield Output(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    path = resolve(path)
    if made_of is not None and (path.is_file() or not path.exists()):  # neither a device nor a pipe
        output = ResumableOutput(path, made_of, resume=resume)
        try:
            yield output
            output.finish()
        finally:
            with suppress(OSError):
                output.file.close()
        return
    with ExitStack() as stack:
        with _naming(path):
            file = stack.enter_context(replacing(path)).open("wb")
        try:
            yield Output(file, path)
            with _naming(path):
                file.close()
                stack.close()
        finally:
            with suppress(OSError):  # the error to report is the first one
                file.close()


def require_writable(path: Path) -> None:
    """Refuse an output that cannot be written, before any work for it; this leaves no file behind.

    Raises:
        UserError: the path is a folder, or no file can be made in its folder.
    """
    with _naming(path):
        place = resolve(path)
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if place.is_file() or not place.exists():  # else a device or a pipe
            tempfile.TemporaryFile(dir=place.parent).close()


def find_model(given: Path | None, runs: Path = Path("runs"), option: str = "--model ") -> Path:
    """Return the bundle that a user means: a bundle folder, the bundle of a run folder, or (None) the newest run's.

    Without a run, None means the clone's own model (`published_model`). option is the option by which the user gave the
    folder, for the error.

    Raises:
        UserError: there is no bundle.
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
    if found:
        return max(found, key=lambda folder: folder.stat().st_mtime)
    if (published := published_model()) is not None:
        return published
    raise UserError(f"there is no model under {runs.resolve()}: train one with `{train_command()}`, or give --model")


def published_model() -> Path | None:
    """Return the bundle that a clone has before any training, or None: an installed wheel has no model."""
    root = clone()
    folder = None if root is None else root / "data" / "model"
    return folder if folder is not None and folder.is_dir() else None


def find_models(given: object) -> list[Path]:
    """Return the bundles that a call names: a path of a run or of its bundle (str or Path), or a list of paths.

    Raises:
        UserError: a folder does not exist, or a name is no path.
    """
    folders = given if isinstance(given, list | tuple) else [given]
    if not folders:
        raise UserError("the list of models is empty: give runs/NAME or runs/NAME/model")
    for one in folders:
        if not isinstance(one, str | Path):
            raise UserError(f"the model is {one!r} (of type {type(one).__name__}): give runs/NAME or runs/NAME/model")
    return [find_model(Path(str(one)), option="") for one in folders]


def _is_there(folder: Path) -> bool:
    """Return whether a folder exists, after completing a replacement that a killed process left."""
    if not folder.is_dir():
        sweep(folder)
    return folder.is_dir()


@contextmanager
def _naming(path: Path | None) -> Iterator[None]:
    """Turn an OSError into a UserError that names the output; errors of standard output (None) pass unchanged."""
    try:
        yield
    except OSError as error:
        if path is None:
            raise
        raise UserError(f"--output {path} cannot be written: {error.strerror}") from error
