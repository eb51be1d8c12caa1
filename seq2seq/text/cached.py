"""What the cache holds: how large each folder is, when it was used last and by which runs; and how to clear it."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from seq2seq.errors import UserError
from seq2seq.text.cache import DRAFT, DRAFT_END, MANIFEST

_USERS = ".runs"  # end of the name of the list of runs beside a folder


@dataclass(frozen=True)
class Entry:
    """A folder of the cache."""

    folder: Path
    kind: str
    bytes: int
    used: float  # seconds since 1970
    runs: list[Path]  # that read it and are still there


def note_run(folder: Path, run: Path) -> None:
    """Write beside a folder of the cache that a run reads it; nothing happens where the cache is read-only."""
    users, told = _users(folder), str(run.resolve())
    with contextlib.suppress(OSError):
        if told not in _lines(users):
            with users.open("a", encoding="utf-8") as file:
                file.write(f"{told}\n")


def list_entries(root: Path) -> list[Entry]:
    """All folders of the cache, the last used first; also those whose preparation was broken off or is going on."""
    return sorted(_entries(root), key=lambda entry: -entry.used)


def _entries(root: Path) -> Iterator[Entry]:
    for folder in root.iterdir() if root.is_dir() else ():
        if not folder.is_dir() or folder.is_symlink():
            continue
        is_draft = folder.name.startswith(DRAFT) and folder.name.endswith(DRAFT_END)
        names = _manifest(folder)
        if is_draft or names:  # anything else is not the cache's
            kind = "unfinished" if is_draft else "prepared text" if "train.arrow" in names else "CTranslate2 export"
            files = [path.lstat() for path in folder.rglob("*") if path.is_file()]
            used = max([folder.stat().st_mtime, *(s.st_mtime for s in files)] if is_draft else [folder.stat().st_mtime])
            runs = [Path(line) for line in _lines(_users(folder)) if (Path(line) / "config.yaml").is_file()]
            yield Entry(folder, kind, sum(s.st_size for s in files), used, runs)


def remove_entry(entry: Entry) -> bool:
    """Delete a folder of the cache; False if another process is making it at this moment.

    Raises:
        UserError: it cannot be deleted.
    """
    key = entry.folder.name.removeprefix(DRAFT).removesuffix(DRAFT_END)
    try:
        with FileLock(entry.folder.with_name(f"{key}.lock"), timeout=0):
            shutil.rmtree(entry.folder)
            _users(entry.folder).unlink(missing_ok=True)
    except Timeout:
        return False
    except OSError as error:
        raise UserError(f"{entry.folder} cannot be removed ({error.strerror}): check who owns its files") from error
    return True


def _users(folder: Path) -> Path:
    return folder.with_name(folder.name + _USERS)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []


def _manifest(folder: Path) -> list[str]:
    try:
        return list(json.loads((folder / MANIFEST).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return []
