"""Texts in object storage, on the web and on the hub: local copies of the files that an address names, by fsspec."""

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any, cast

from filelock import FileLock

from seq2seq.errors import UserError

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")


def is_address(path: str) -> bool:
    """Return whether a path is an address such as s3://bucket/a.tsv."""
    return _ADDRESS.match(path) is not None


@cache
def fetch(address: str, folder: Path) -> list[tuple[Path, str]]:
    """Return a copy in the folder, and the address, of each file of an address or pattern; none if nothing is there.

    A copy is made anew if the file has changed. A process asks once.
    """
    import fsspec  # pyright: ignore[reportMissingTypeStubs]

    found = list[tuple[Path, str]]()
    try:
        system, pattern = cast(Any, fsspec).core.url_to_fs(address)
        is_pattern = re.search(r"[*\[]", pattern) is not None
        for path in sorted(system.glob(pattern)) if is_pattern else [pattern] * system.exists(pattern):
            file = system.unstrip_protocol(path)
            digest = hashlib.blake2b(file.rpartition("/")[0].encode(), digest_size=8).hexdigest()
            copies = {"cache_storage": str(folder / "remote" / digest), "same_names": True, "check_files": True}
            with FileLock(f"{copies['cache_storage']}.lock"):  # fsspec writes a copy in place
                found.append((Path(cast(Any, fsspec).open_local(f"filecache::{file}", filecache=copies)), file))
    except ImportError as error:  # which says what to install
        raise UserError(f"{address}: {error}") from error
    except Exception as error:  # each storage raises its own
        raise UserError(
            f"{address} cannot be read ({type(error).__name__}): check the address, the connection, and the "
            "credentials that the environment has for it"
        ) from error
    return found
