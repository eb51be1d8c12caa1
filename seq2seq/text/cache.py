"""Folders named by what went into them: written whole or not at all, and checked before use."""

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from filelock import FileLock

from seq2seq.errors import UnfinishedError, UserError

logger = logging.getLogger(__name__)
WORK = "work"  # sub-folder of a draft
DRAFT, DRAFT_END = ".", ".building"  # around the name of a folder that is being built
MANIFEST = "manifest.json"
_TICK = 2 * 10**9  # ns: the coarsest times that file systems give


def cache_root(setting: str) -> Path:
    """Find the folder of all caches: the environment's SEQ2SEQ_CACHE, else the setting."""
    return Path(os.environ.get("SEQ2SEQ_CACHE") or setting).expanduser()


def cached_folder(root: Path, key: str, build: Callable[[Path], None]) -> Path:
    """Return root/key, built if it is not there or damaged; of several processes, one builds and the others wait.

    What is there and whole may lie where nothing can be written. A build that was killed is called again with what it
    had in its sub-folder WORK; see `whole_folder`.

    Raises:
        UserError: the folder cannot be written; or what build raises.
    """
    folder = root / key
    if is_whole(folder):
        with suppress(OSError):
            os.utime(folder)  # when it was used last, for who clears the cache by age
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f"{key}.lock"):
            if is_whole(folder):  # another process has made it meanwhile
                return folder
            if folder.exists():
                logger.warning("prepared text in %s is damaged: preparing it again", folder)
                shutil.rmtree(folder)
            whole_folder(folder, build)
    except OSError as error:
        raise UserError(
            f"data.cache={root} cannot be used ({error.strerror or error}): "
            "set data.cache or the environment's SEQ2SEQ_CACHE to a folder that can be written"
        ) from error
    return folder


def digest_files(paths: Iterable[Path]) -> list[str]:
    """Hash the contents of files."""
    digests = []
    for path in paths:
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest())
    return digests


def digest_once(path: Path) -> str:
    """Hash the contents of a file, in one process not a second time unless the file has changed meanwhile."""
    status = path.stat()
    changed = max(status.st_mtime_ns, status.st_ctime_ns)
    if time.time_ns() - changed < _TICK:  # a later change might leave the same times
        return digest_files([path])[0]
    return _digest_of(path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))


@lru_cache(maxsize=100_000)
def _digest_of(path: Path, stamp: tuple[int, ...]) -> str:
    return digest_files([path])[0]


def whole_folder(folder: Path, build: Callable[[Path], None]) -> None:
    """Make a folder under its name once it is whole, with the digests of its files beside them.

    build writes into a draft beside it. What it keeps in the draft's sub-folder WORK is there again if it is killed
    and called anew, and gone in the end; after a UserError, which a second try would meet again, all of the draft goes.
    """
    draft = folder.with_name(f"{DRAFT}{folder.name}{DRAFT_END}")
    if not is_whole(draft):  # else it was killed when nothing but its name was wanting
        draft.mkdir(exist_ok=True)
        _sweep(draft)
        try:
            build(draft)
        except Exception as error:
            if isinstance(error, UserError) and not isinstance(error, UnfinishedError):
                shutil.rmtree(draft, ignore_errors=True)  # on a cluster, some may still write into it
            else:
                _sweep(draft)  # a full disk has room again
            raise
        names = sorted(path.name for path in draft.iterdir() if path.name != WORK)
        digests = digest_files(draft / name for name in names)
        (draft / MANIFEST).write_text(json.dumps(dict(zip(names, digests, strict=True))), encoding="utf-8")
    shutil.rmtree(draft / WORK, ignore_errors=True)
    draft.rename(folder)


def _sweep(draft: Path) -> None:
    """Remove what a build that was broken off left unfinished."""
    for path in draft.iterdir():
        if path.is_dir() and path.name != WORK:
            shutil.rmtree(path)
        elif path.name != WORK:
            path.unlink()


def is_whole(folder: Path) -> bool:
    """Tell whether a folder has all files that it was made with, unchanged."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return list(manifest.values()) == digest_files(folder / name for name in manifest)
    except (OSError, ValueError, AttributeError):
        return False
