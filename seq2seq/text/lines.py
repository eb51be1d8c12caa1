"""Lines of a UTF-8 text file, plain, .gz or .xz, with errors that name file and line; knows no columns."""

import gzip
import lzma
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from seq2seq.errors import UserError

_BOM = b"\xef\xbb\xbf"
DAMAGED = (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line numbers from 1 and lines without their ends (LF or CRLF); a byte order mark is left out.

    Raises:
        UserError: the file is missing, a folder, unreadable, binary, wrongly compressed or not UTF-8.
    """
    try:
        with open_bytes(path) as file:
            if b"\0" in file.peek(4096)[:4096]:
                raise _binary(path)
            for number, line in enumerate(file, start=1):
                yield number, _decode(path, number, line)
    except DAMAGED as error:
        kind = path.suffix.removeprefix(".")
        raise UserError(f"{path} is damaged or no {kind} data ({error}): fetch it again or rename it") from error
    except OSError as error:
        raise explain_os_error(path, error) from error


def explain_os_error(path: Path, error: OSError) -> UserError:
    """Say in one line why a file cannot be read."""
    if isinstance(error, FileNotFoundError):
        return UserError(f"{path} does not exist: check the path and data.root")
    if isinstance(error, IsADirectoryError):
        return UserError(f"{path} is a folder: name the files in it, or a pattern such as {path}/*.tsv")
    return UserError(f"{path} cannot be read: {error.strerror or error}")


def open_bytes(path: Path) -> BufferedReader | gzip.GzipFile | lzma.LZMAFile:
    """Open a file for reading bytes, decompressed by its ending."""
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    return lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb")


def _decode(path: Path, number: int, line: bytes) -> str:
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    if number == 1:
        line = line.removeprefix(_BOM)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{line[error.start]:02x} at column {error.start + 1}"
        raise UserError(f"{path}:{number} is not UTF-8 ({found}): convert the file, for instance with iconv") from error
    if "\0" in text:
        raise _binary(path)
    return text


def _binary(path: Path) -> UserError:
    return UserError(f"{path} is binary, not UTF-8 text (it has NUL bytes): check its format and its name's ending")
