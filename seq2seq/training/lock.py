"""A lock that lets one process at a time train in a folder."""

from pathlib import Path

from seq2seq import locks

_ADVICE = "wait for it, stop it, or choose another name="


def lock_folder(folder: Path) -> None:
    """Lock the folder for this process, until `release_folder` or the end of the process."""
    if not is_held(folder):
        locks.lock(folder / "lock", f"{folder} is being trained in", _ADVICE)


def release_folder(folder: Path) -> None:
    """Release the folder's lock if this process holds it."""
    locks.unlock(folder / "lock")


def is_held(folder: Path) -> bool:
    """Return whether this process has locked the folder."""
    return locks.is_held(folder / "lock")


def holder_of(folder: Path) -> str | None:
    """Return the process that holds the folder's lock, as "NUMBER on MACHINE"; None if no process holds it."""
    return locks.holder_of(folder / "lock")
