"""Locks that let one process at a time write, across machines, and name it to others; a lock ends with its process."""

import contextlib
import errno
import fcntl
import logging
import os
import socket
from pathlib import Path

from seq2seq.errors import UserError

log = logging.getLogger(__name__)
_held: dict[Path, int] = {}  # lock file → open file, kept open as long as the lock is held
_TAKEN = (errno.EWOULDBLOCK, errno.EACCES)


def lock(file: Path, use: str, advice: str) -> bool:
    """Lock a file, made if missing in a folder that is made if missing, until `unlock` or the end of the process.

    Return whether it is locked: some file systems have no locks.

    Raises:
        UserError: the lock is held; the message says what for (`use`), by which process and machine, and the advice.
        OSError: the file or its folder cannot be made.
    """
    handle, is_locked = None, True
    while handle is None:
        with contextlib.suppress(FileExistsError):
            file.parent.mkdir()
        with contextlib.suppress(FileNotFoundError):  # `unlock` has just removed the folder
            handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = _read(handle)
                if error.errno in _TAKEN:
                    os.close(handle)
                    raise UserError(f"{use} by process {holder}: {advice}") from error
                is_locked = False
                log.warning("%s cannot be locked (%s): let no second command write there", file, error.strerror)
            if not (file.exists() and os.path.samestat(os.fstat(handle), file.stat())):  # `unlock` removed the file
                os.close(handle)
                handle = None
    _held[file.resolve()] = handle
    with contextlib.suppress(OSError):  # a full disk: the lock holds, only without a name
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return is_locked


def unlock(file: Path, *, remove: bool = False) -> None:
    """Release a lock if this process holds it; with remove, also remove the file, and its folder if it is empty."""
    handle = _held.pop(file.resolve(), None)
    if handle is not None:
        if remove:
            with contextlib.suppress(OSError):
                file.unlink()
                file.parent.rmdir()
        os.close(handle)


def is_held(file: Path) -> bool:
    """Return whether this process holds the lock."""
    return file.resolve() in _held


def holder_of(file: Path) -> str | None:
    """Return the process that holds a lock, as "NUMBER on MACHINE"; None if no process holds it."""
    try:
        handle = os.open(file, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return _read(handle) if error.errno in _TAKEN else None
    finally:
        os.close(handle)
    return None


def _read(handle: int) -> str:
    return os.pread(handle, 200, 0).decode(errors="replace").strip() or "unknown"
