"""A lock that lets one process at a time train in a folder, across machines; the lock ends with its process."""

import errno
import fcntl
import logging
import os
import socket
from pathlib import Path

from seq2seq.errors import UserError

log = logging.getLogger(__name__)
_held: dict[Path, int] = {}  # folder → open file, kept open as long as this process lives


def lock_folder(folder: Path) -> None:
    """Lock the folder for this process, until `release_folder` or the end of the process.

    Raises:
        UserError: another process holds the lock; the message names the process's number and machine.
    """
    if folder.resolve() in _held:
        return
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(handle, 200).decode(errors="replace").strip()
        os.close(handle)
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            log.warning("%s cannot be locked (%s): see to it that no second run writes there", folder, error.strerror)
            return
        raise UserError(
            f"{folder} is being trained in by process {holder or 'unknown'}: "
            "wait for it, stop it, or choose another name="
        ) from error
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    _held[folder.resolve()] = handle


def release_folder(folder: Path) -> None:
    """Release the folder's lock if this process holds it."""
    handle = _held.pop(folder.resolve(), None)
    if handle is not None:
        os.close(handle)


def is_held(folder: Path) -> bool:
    """Return whether this process has locked the folder."""
    return folder.resolve() in _held


def holder_of(folder: Path) -> str | None:
    """Return the process that holds the folder's lock, as "NUMBER on MACHINE"; None if no process holds it."""
    try:
        handle = os.open(folder / "lock", os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        is_taken = error.errno in (errno.EWOULDBLOCK, errno.EACCES)
        return (os.read(handle, 200).decode(errors="replace").strip() or "unknown") if is_taken else None
    finally:
        os.close(handle)
    return None
