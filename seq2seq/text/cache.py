"""Folders named by what went into them: written whole or not at all, and checked before use."""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from filelock import FileLock

from seq2seq.errors import UserError

logger = logging.getLogger(__name__)
_MANIFEST = "manifest.json"


def cache_root(setting: str) -> Path:
    """Find the folder of all caches: the environment's SEQ2SEQ_CACHE, else the setting."""
    return Path(os.environ.get("SEQ2SEQ_CACHE") or setting).expanduser()


def cached_folder(root: Path, key: str, build: Callable[[Path], None]) -> Path:
    """Return root/key, built if it is not there or damaged; of several processes, one builds and the others wait.

    Raises:
        UserError: the folder cannot be written; or what build raises.
    """
    folder = root / key
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f"{key}.lock"):
            if folder.exists():
                if _is_whole(folder):
                    return folder
                logger.warning("prepared text in %s is damaged: preparing it again", folder)
                shutil.rmtree(folder)
            _build(root, folder, build)
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


def _build(root: Path, folder: Path, build: Callable[[Path], None]) -> None:
    temporary = root / f".{folder.name}.building"
    shutil.rmtree(temporary, ignore_errors=True)  # of a build that was killed; the lock says none is running
    temporary.mkdir()
    try:
        build(temporary)
        names = sorted(path.name for path in temporary.iterdir())
        digests = digest_files(temporary / name for name in names)
        (temporary / _MANIFEST).write_text(json.dumps(dict(zip(names, digests, strict=True))), encoding="utf-8")
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _is_whole(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return list(manifest.values()) == digest_files(folder / name for name in manifest)
    except (OSError, ValueError, AttributeError):
        return False
