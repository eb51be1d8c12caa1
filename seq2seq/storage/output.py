"""Inputs and outputs of commands as lines, and models' folders; knows no model and no command line."""

import errno
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO, cast

from seq2seq.errors import UserError
from seq2seq.settings.missing_packages import clone, train_command
from seq2seq.storage.atomic import NEW, PARTIAL, PROGRESS, claimed, complete_replacement, put, replacing, resolve
from seq2seq.storage.cache import digest_files
from seq2seq.storage.lines import Lines, compressing, refuse_bad_lines

log = logging.getLogger(__name__)


def read_lines(path: Path | None) -> Iterator[str]:
    """Read UTF-8 text line by line, without line ends (LF or CRLF) and byte order mark; path None is standard input."""
    return refuse_bad_lines(Lines(path, allows_nul=True))


def count_lines(path: Path) -> int:
    """Count the lines of a file."""
    return sum(1 for _ in read_lines(path))


class Output:
    """Writes lines (UTF-8, LF) when called, compressed if the file's name ends so.

    Attributes:
        inputs: number of inputs that are recorded as fully written, also by an interrupted command.
        is_complete: whether an earlier command has written the whole file, so that nothing is left to do.
    """

    is_complete = False

    def __init__(self, file: BinaryIO | BufferedIOBase, path: Path | None = None) -> None:
        self.file, self.path, self.inputs = file, path, 0
        self._member: BinaryIO | BufferedIOBase | None = None  # what is being written of a compressed file

    def __call__(self, line: str) -> None:
        """Write one line."""
        self._write(line.encode() + b"\n")

    def _write(self, data: bytes) -> None:
        if self._member is None:
            self._member = self.file if self.path is None else compressing(self.path, cast(BufferedIOBase, self.file))
        self._member.write(data)

    def end_member(self) -> None:
        """Bring all lines to the file, so that a compressed file can be read up to here."""
        if self._member is not None and self._member is not self.file:
            self._member.close()
        self._member = None
        self.file.flush()

    def commit(self, inputs: int) -> None:
        """Record that the first `inputs` inputs are fully written; only `ResumableOutput` does."""

    def finish(self) -> None:
        """Close the file when all lines are written."""
        self._write(b"")  # a compressed file without lines has one member
        self.end_member()
        self.file.close()


class ResumableOutput(Output):
    """Writes an unfinished file and its progress to a work folder, so that a killed command can be resumed.

    Lines written after the last `commit` are written again. The record of the progress stays beside the complete file.
    """

    def __init__(self, path: Path, work: Path, provenance: Mapping[str, object], *, resume: bool) -> None:
        """Begin a file; with resume, go on with an unfinished file, if there is one, or recognise a complete one."""
        self.provenance = json.loads(json.dumps(provenance))
        self._partial, self._progress = work / PARTIAL, work / PROGRESS
        inputs, size, earlier, digest = self._read_progress()
        is_begun = self._partial.is_file() and (earlier is not None or self._partial.stat().st_size > 0)
        if resume and (is_begun or path.exists()):
            self._require_same(path, earlier)
            if is_begun and self._partial.stat().st_size < size:
                raise UserError(f"{self._partial} is shorter than its progress says: leave out --resume to begin anew")
            if not is_begun and digest_files([path]) != [digest]:
                raise UserError(f"{path} has changed since it was complete: leave out --resume to begin anew")
            self.is_complete = not is_begun
        elif is_begun and inputs:
            message = "%s: an interrupted command wrote %d inputs, which are now written anew; --resume would go on"
            log.warning(message, path, inputs)
        work.mkdir(parents=True, exist_ok=True)
        file = Path(os.devnull) if self.is_complete else self._partial
        super().__init__(file.open("r+b" if resume and is_begun else "wb"), path)
        with ExitStack() as opened:
            opened.callback(self.file.close)
            if not self.is_complete:
                self.file.truncate(self.file.seek(size if resume and is_begun else 0))
                self.commit(inputs if resume and is_begun else 0)
            opened.pop_all()

    def _read_progress(self) -> tuple[int, int, dict[str, object] | None, str | None]:
        """Return an earlier command's inputs, bytes, what the file depends on, and the complete file's digest."""
        try:
            progress = json.loads(self._progress.read_text(encoding="utf-8"))
            inputs, size, provenance = int(progress["inputs"]), int(progress["bytes"]), dict(progress["made_of"])
            return inputs, size, provenance, progress.get("digest")
        except (OSError, ValueError, KeyError, TypeError):
            return 0, 0, None, None

    def _require_same(self, path: Path, earlier: Mapping[str, object] | None) -> None:
        if earlier is None:
            raise UserError(f"{path} is there, and nothing tells how it was made: leave out --resume to replace it")
        for key in earlier | self.provenance:
            was, now = earlier.get(key), self.provenance.get(key)
            if was != now:
                message = f"{path} was made with {key}={was}, not {now}"
                raise UserError(f"{message}: --resume it with the same, or leave out --resume to begin anew")

    def commit(self, inputs: int) -> None:
        """Record that the first `inputs` inputs are fully written."""
        self.inputs = inputs
        self.end_member()
        if not self.is_complete:
            os.fsync(self.file.fileno())  # before the record that counts on it
        self._bytes = self.file.tell()
        self._record()

    def _record(self, **more: object) -> None:
        progress = {"inputs": self.inputs, "bytes": self._bytes, "made_of": self.provenance, **more}
        draft = self._progress.with_name(NEW)
        draft.write_text(json.dumps(progress), encoding="utf-8")
        draft.replace(self._progress)

    def finish(self) -> None:
        """Record the complete file, and give the file its name."""
        if not self.is_complete:
            self._write(b"")
            self.end_member()
            os.fsync(self.file.fileno())
            self._record(digest=digest_files([self._partial])[0])
            put(self._partial, cast(Path, self.path))


@contextmanager
def open_output(
    path: Path | None, provenance: Mapping[str, object] | None = None, *, resume: bool = False
) -> Iterator[Output]:
    """Open a file to write lines to; path None is standard output.

    A file gets its name only when all lines are written; an error leaves the old file unchanged. A link stays, and its
    target is replaced; the new file gets the old file's permissions. provenance is everything that the lines depend
    on; only an output with provenance can be resumed after an interruption.
    """
    if path is None:
        yield Output(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    path = resolve(path)
    with ExitStack() as stack:
        if provenance is not None and (path.is_file() or not path.exists()):  # neither a device nor a pipe
            work = stack.enter_context(claimed(path))
            output = ResumableOutput(path, work, provenance, resume=resume)
        else:
            output = Output(stack.enter_context(replacing(path)).open("wb"), path)
        try:
            yield output
            output.finish()
        finally:
            for close in (output.end_member, output.file.close):
                with suppress(OSError, ValueError):  # the error to report is the first one
                    close()


@contextmanager
def output_folder(folder: Path) -> Iterator[None]:
    """Make a folder, and lock it while the block writes files in it."""
    folder.mkdir(parents=True, exist_ok=True)
    with claimed(resolve(folder), inside=True):
        yield


def require_other(output: Path | None, *inputs: Path | None) -> None:
    """Refuse an output that is one of the inputs, also by a link."""
    for path in inputs:
        if output and output.is_file() and path and path.exists() and path.samefile(output):
            raise UserError(f"--output {output} would replace the input {path}: choose another name")


def require_writable(path: Path) -> None:
    """Refuse an output that cannot be written, before any work for it; this leaves no file behind."""
    target = resolve(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if target.is_file() or not target.exists():  # else a device or a pipe
        with claimed(target):
            pass


def find_model(path: Path | None, runs: Path = Path("runs"), option: str = "--model ") -> Path:
    """Return the bundle that a user means: a bundle folder, the bundle of a run folder, or (None) the newest run's.

    Without a run, None means the clone's own model (`published_model`). option is the option by which the user gave the
    folder, for the error.
    """
    if path is not None:
        inner = path / "model"
        if not _is_there(path):
            raise UserError(f"{option}{path} is no folder: give runs/NAME or runs/NAME/model")
        return inner if not (path / "config.json").exists() and _is_there(inner) else path
    latest = runs / "latest" / "model"
    if _is_there(latest):
        return latest
    bundles = [folder / "model" for folder in runs.glob("*/") if _is_there(folder / "model")]
    if bundles:
        return max(bundles, key=lambda folder: folder.stat().st_mtime)
    if (published := published_model()) is not None:
        return published
    raise UserError(f"there is no model under {runs.resolve()}: train one with `{train_command()}`, or give --model")


def published_model() -> Path | None:
    """Return the bundle that a clone has before any training, or None: an installed wheel has no model."""
    root = clone()
    folder = None if root is None else root / "data" / "model"
    return folder if folder is not None and folder.is_dir() else None


def find_models(models: str | Path | Sequence[str | Path]) -> list[Path]:
    """Return the bundles that a call names: a path of a run or of its bundle, or several such paths."""
    folders = [models] if isinstance(models, str | Path) else models
    if not folders:
        raise UserError("the list of models is empty: give runs/NAME or runs/NAME/model")
    return [find_model(Path(folder), option="") for folder in folders]


def _is_there(folder: Path) -> bool:
    """Return whether a folder exists, after completing a replacement that a killed process left."""
    if not folder.is_dir():
        complete_replacement(folder)
    return folder.is_dir()
