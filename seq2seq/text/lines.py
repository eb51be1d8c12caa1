"""Lines of a UTF-8 text file, plain, .gz or .xz, with errors that name the file. Reads no columns."""

import gzip
import lzma
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from seq2seq.errors import UserError

_BOM = b"\xef\xbb\xbf"
DAMAGED = (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError)


class Lines:
    """The lines of a UTF-8 file, without line ends (LF or CRLF) and byte order mark.

    Attributes:
        number: number of the last line that was read, counted from 1.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.number = path, 0

    def __iter__(self) -> Iterator[str]:
        """Yield the lines.

        Raises:
            UserError: the file is missing, a folder, unreadable, binary, wrongly compressed or not UTF-8.
        """
        path = self.path
        try:
            with open_bytes(path) as file:
                if b"\0" in file.peek(4096)[:4096]:
                    raise _binary(path)
                for self.number, line in enumerate(file, start=1):
                    yield _decode(path, self.number, line)
        except DAMAGED as error:
            kind = path.suffix.removeprefix(".")
            raise UserError(f"{path} is damaged or no {kind} data ({error}): fetch it again or rename it") from error
        except OSError as error:
            raise explain_os_error(path, error) from error


def explain_os_error(path: Path, error: OSError) -> UserError:
    """Return an error that says in one line why a file cannot be read."""
    if isinstance(error, FileNotFoundError):
        return UserError(f"{path} does not exist: check the path and data.root")
    if isinstance(error, IsADirectoryError):
        return UserError(f"{path} is a folder: name the files in it, or a pattern such as {path}/*.tsv")
    return UserError(f"{path} cannot be read: {error.strerror or ' '.join(str(error).split())}")


def open_bytes(path: Path) -> BufferedReader | gzip.GzipFile | lzma.LZMAFile:
    """Open a file for reading bytes; decompress a .gz or .xz file."""
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
