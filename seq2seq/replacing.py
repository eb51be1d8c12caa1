"""Files whole or absent: written beside their place, then renamed."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path, like: Path | None = None) -> Iterator[Path]:
    """Give a file to write, which takes the place of another at the end of the block, or vanishes after an error.

    A link stays, and what it points to is replaced. The permission bits are those of the file that was there
    or, without one, of like. A device or a pipe is written directly.

    Raises:
        OSError: it cannot be written.
    """
    path = resolve(path)
    if path.exists() and not path.is_file():
        yield path
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        put(temporary, path, like)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def resolve(path: Path) -> Path:
    """Follow links, also to what does not exist; a link to itself leads nowhere, and stays."""
    return Path(os.path.realpath(path))


def put(draft: Path, path: Path, like: Path | None = None) -> None:
    """Put a file in the place of another, with its permission bits, or with those of like if there was none.

    Raises:
        OSError: it cannot be renamed.
    """
    for source in (path, like):
        if source is not None and source.exists():
            with contextlib.suppress(OSError):  # some file systems have no permissions
                draft.chmod(source.stat().st_mode & 0o777)
            break
    draft.replace(path)
