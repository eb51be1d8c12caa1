"""Standard input, output and errors of all commands: UTF-8 in every locale, and a line if stdout cannot be written."""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator

from seq2seq.errors import UserError


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """Read and write UTF-8 during the block, whatever the locale; write all of stdout before its end."""
    for name, mode in (("stdin", "r"), ("stdout", "r"), ("stderr", "w")):  # in the order of their numbers
        if getattr(sys, name) is None:  # closed; else the next file that is opened would get its number
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 (as sys opens it)
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):  # a caller of `main` has read some of stdin, or moved the stream
                stream.reconfigure(encoding="utf-8", errors="replace" if name == "stdin" else "backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        with contextlib.suppress(OSError):  # or the interpreter would try again to write the rest, and complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            sys.exit(1)
        if error.filename is not None:
            raise
        reason = error.strerror or "it is closed"
        raise UserError(f"stdout cannot be written ({reason}): free the disk, or send the output elsewhere") from error
