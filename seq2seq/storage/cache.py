"""Cache folders, named by a hash of their inputs: complete or absent, and checked before use."""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from seq2seq.errors import UserError
from seq2seq.storage.atomic import draft_of

logger = logging.getLogger(__name__)
MANIFEST = "manifest.json"


def cached_folder(root: Path, key: str, build: Callable[[Path], None]) -> Path:
    """Return root/key, built if it is absent or damaged; of several processes, one builds and the others wait.

    A complete cache folder works on a read-only disk. build writes files into the folder that it is given.
    """
    folder = root / key
    if is_complete(folder):
        with suppress(OSError):
            os.utime(folder)  # the time of the last use, for `find -mtime`
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f"{key}.lock"):
            if not is_complete(folder):  # otherwise another process has built it meanwhile
                if folder.exists():
                    logger.warning("the cache entry %s is damaged: preparing it again", folder)
                write_complete(folder, build)
    except (OSError, NotImplementedError, UnicodeEncodeError) as error:  # without locks; of a path that is not UTF-8
        message = f"data.cache={root} cannot be used ({getattr(error, 'strerror', None) or error}): set data.cache"
        raise UserError(f"{message} or the environment's SEQ2SEQ_CACHE to a folder that can be written") from error
    return folder


def digest_files(paths: Iterable[Path]) -> list[str]:
    """Return a hash of the contents of each file."""
    digests = list[str]()
    for path in paths:
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest())
    return digests


def digest_once(path: Path) -> str:
    """Return a hash of a file's contents; a process hashes an unchanged file only once."""
    status = path.stat()
    return _digest_of(path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))


@lru_cache(maxsize=100_000)
def _digest_of(path: Path, stamp: tuple[int, ...]) -> str:
    return digest_files([path])[0]


def write_complete(folder: Path, build: Callable[[Path], Any]) -> None:
    """Write a folder that is complete or absent; a manifest in the folder holds the digests of its files."""
    with draft_of(folder) as draft:
        build(draft)
        names = sorted(path.name for path in draft.iterdir())
        digests = digest_files(draft / name for name in names)
        write_json(draft / MANIFEST, dict(zip(names, digests, strict=True)))


def is_complete(folder: Path) -> bool:
    """Return whether all files of a folder exist and are unchanged."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return bool(manifest) and list(manifest.values()) == digest_files(folder / name for name in manifest)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, AttributeError, RecursionError):
        return False
    except OSError as error:
        message = f"{folder} cannot be read ({error.strerror or error}): run the same command again"
        raise UserError(f"{message}, or remove this folder if its disk is damaged") from error


def identity_of(folder: Path) -> list[int]:
    """Return a value that is equal on all machines that see this complete folder; empty: there is no such folder."""
    with suppress(OSError):
        status = (folder / MANIFEST).stat()
        return [status.st_ino, status.st_mtime_ns]
    return []


def write_json(path: Path, value: object) -> None:
    """Write a value as JSON."""
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
