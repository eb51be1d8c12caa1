"""Reads lines of UTF-8 text, plain or compressed. A bad line is a value, so that a reader can skip the line."""

import bz2
import codecs
import gzip
import lzma
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from io import BufferedIOBase, BufferedReader, FileIO, RawIOBase
from pathlib import Path
from typing import Any, TypeVar, cast

from seq2seq.errors import UserError, shorten

_DECOMPRESSORS = {".bz2": bz2.BZ2Decompressor, ".xz": lzma.LZMADecompressor}
COMPRESSED = (".gz", *_DECOMPRESSORS)  # endings of files that are decompressed when read and compressed when written
MAX_LINE = 1 << 20  # bytes of a line, without its end; a longer line is a sign of a damaged file
_BLOCK = 1 << 16  # bytes of a compressed file that are read at a time
_BOM = b"\xef\xbb\xbf"
_BINARY = "is binary, not UTF-8 text (it has NUL bytes): check the file's format and its name's ending"
_UTF_16 = "is UTF-16: convert the file to UTF-8, for instance with iconv -f UTF-16 -t UTF-8"
_CARRIAGE_RETURNS = "has CR without LF, which ends no line here: convert the file, for instance with tr '\\r' '\\n'"
_DAMAGED = (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError)

Record = TypeVar("Record")


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be read or holds no pair."""

    path: Path | None  # None: standard input
    number: int
    reason: str  # the predicate of a sentence about the line

    def error(self) -> UserError:
        """Return an error that names the file and the line."""
        return UserError(f"{_name(self.path)}:{self.number} {self.reason}")


def refuse_bad_lines(records: Iterable[Record | BadLine]) -> Iterator[Record]:
    """Yield the records; raise an error for a bad line."""
    for record in records:
        if isinstance(record, BadLine):
            raise record.error()
        yield record


class Lines:
    """The lines of a UTF-8 file or of standard input, without line ends (LF or CRLF) and byte order mark.

    Attributes:
        number: number of the last line that was read.
    """

    def __init__(self, path: Path | None, *, allows_nul: bool = False) -> None:
        """Read a file, or standard input (None); a NUL byte is allowed or bad."""
        self.path, self.number, self._allows_nul = path, 0, allows_nul

    def __iter__(self) -> Iterator[str | BadLine]:
        """Yield the lines; a line that is too long, binary or not UTF-8 is a `BadLine`."""
        with open_bytes(self.path) as file:
            while line := file.readline(MAX_LINE + 2):
                self.number += 1
                text = line.removesuffix(b"\n").removesuffix(b"\r")
                if b"\r" in text.strip(b"\r") and not line.endswith(b"\n"):
                    raise self.bad(_CARRIAGE_RETURNS).error()
                is_too_long = len(text) > MAX_LINE  # with a byte order mark, which the next lines remove
                is_binary = not self._allows_nul and b"\0" in text
                if self.number == 1:
                    text = text.removeprefix(_BOM)
                    is_utf_16 = text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
                    if is_utf_16 or is_binary:
                        raise UserError(f"{_name(self.path)} {_UTF_16 if is_utf_16 else _BINARY}")
                if is_too_long:
                    while line and not line.endswith(b"\n"):
                        line = file.readline(MAX_LINE)
                    yield self.bad(f"has more than {MAX_LINE:,} bytes: check the file's format and its line ends")
                elif is_binary:
                    yield self.bad(_BINARY)
                else:
                    yield self._decode(text)

    def bad(self, reason: str, number: int | None = None) -> BadLine:
        """Return a line, by default the last line that was read, as a bad line."""
        return BadLine(self.path, number or self.number, reason)

    def _decode(self, line: bytes) -> str | BadLine:
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            position = f"byte 0x{line[error.start]:02x} at column {error.start + 1}"
            return self.bad(f"is not UTF-8 ({position}): convert the file, for instance with iconv")


@contextmanager
def open_bytes(path: Path | None) -> Iterator[BufferedIOBase]:
    """Open a file, or standard input (None), for reading bytes; decompress a file by its ending."""
    try:
        with _open(path) as file:
            yield file
    except _DAMAGED as error:
        kind = _name(path).rpartition(".")[2]
        raise UserError(f"{path} is damaged or no {kind} data ({error}): fetch it again or rename it") from error
    except OSError as error:
        raise explain_os_error(_name(path), error) from error


def _open(path: Path | None) -> AbstractContextManager[BufferedIOBase]:
    if path is None:
        return nullcontext(cast(BufferedIOBase, sys.stdin.buffer))
    if path.suffix in COMPRESSED and path.is_file() and path.stat().st_size == 0:
        raise EOFError("it has 0 bytes")
    file: Any = BufferedReader(_Counted(path), _BLOCK)
    if path.suffix == ".gz":
        unpacked = gzip.GzipFile(mode="rb", fileobj=file)
        unpacked.myfileobj = file  # is closed with it
        return unpacked
    decompressor = _DECOMPRESSORS.get(path.suffix)
    return file if decompressor is None else BufferedReader(_Streams(file, path.suffix, decompressor), _BLOCK)


@contextmanager
def counting_bytes(report: Callable[[int], object]) -> Iterator[None]:
    """Report during the block how many bytes of files are read, as stored: compressed ones before they are unpacked."""
    _reports.append(report)
    try:
        yield
    finally:
        _reports.remove(report)


_reports: list[Callable[[int], object]] = []


class _Counted(FileIO):
    def readinto(self, buffer: Any) -> int | None:
        count = super().readinto(buffer)
        for report in _reports:
            report(count or 0)
        return count


def compressing(path: Path, file: BufferedIOBase) -> BufferedIOBase:
    """Return a writer of one more member of a compressed file, by the path's ending; of a plain file, the file."""
    if path.suffix == ".gz":
        return gzip.GzipFile("", "wb", fileobj=file, mtime=0)  # without name and time, so that bytes depend on the text
    return {".bz2": bz2.open, ".xz": lzma.open}[path.suffix](file, "wb") if path.suffix in _DECOMPRESSORS else file


class _Streams(RawIOBase):
    """Decompresses all streams of a file; `lzma.open` and `bz2.open` end in silence at a stream that begins damaged."""

    def __init__(self, file: BufferedReader, ending: str, decompressor: Callable[[], Any]) -> None:
        self._file, self._new, self._stream = file, decompressor, decompressor()
        self._padding = b"\0" if ending == ".xz" else b""  # may fill the space between streams

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        text = b""
        while not text:
            packed = b""
            if self._stream.eof:
                packed = self._stream.unused_data
                while not (packed := packed.lstrip(self._padding)):
                    if not (packed := self._file.read(_BLOCK)):
                        return 0
                self._stream = self._new()
            elif self._stream.needs_input and not (packed := self._file.read(_BLOCK)):
                raise EOFError("it ends within a stream")
            try:
                text = self._stream.decompress(packed, len(buffer))
            except OSError as error:  # of bz2, which has no exception of its own
                raise lzma.LZMAError(str(error)) from error
        buffer[: len(text)] = text
        return len(text)


def _name(path: Path | None) -> str:
    return "stdin" if path is None else str(path)


def explain_os_error(name: Path | str, error: OSError) -> UserError:
    """Return an error that says in one line why a file cannot be read."""
    return UserError(f"{name} cannot be read: {error.strerror or shorten(error)}")
