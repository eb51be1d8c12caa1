"""Compiles `decoding.c` for this processor with the machine's C compiler, and keeps the result in the cache."""

import ctypes
import hashlib
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from seq2seq.errors import UserError, shorten
from seq2seq.settings.data import cache_root

_SOURCE = Path(__file__).with_name("decoding.c")
# Not -ffast-math, which rounds tiny numbers to zero in the whole process and assumes that no number is NaN; and not
# -fassociative-math, which undoes the two-part subtraction in `exponential`. decoding.c itself orders sums for vectors.
_FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math")


def load_library() -> ctypes.CDLL:
    """Load the compiled code from the cache, or compile it; a process tries this only once."""
    library = library_or_error()
    if isinstance(library, UserError):
        raise library
    return library


@cache
def library_or_error() -> ctypes.CDLL | UserError:
    """Return the compiled code, or the error for which there is none."""
    try:
        return _load()
    except (OSError, ValueError, AttributeError) as error:
        needed = "it needs gcc or clang (CC), and a folder to keep the code (SEQ2SEQ_CACHE)"
        return UserError(f"no compiled code ({shorten(error)}): {needed}; or use --compile off")


def _load() -> ctypes.CDLL:
    command = [*(shlex.split(os.environ.get("CC", "")) or ["cc"]), *_FLAGS]
    key = hashlib.sha256(
        b"\0".join([_SOURCE.read_bytes(), _run([command[0], "--version"]), _processor(), *map(str.encode, command)])
    )
    stem = f"decoding-{key.hexdigest()[:20]}-"
    folder = cache_root()
    whole = [path for path in folder.glob(f"{stem}*.so") if path.name == _name(stem, path)]
    library = ctypes.CDLL(str(whole[0] if whole else _compile(command, folder, stem)))
    library.block_size.restype = ctypes.c_int64
    integer, address = ctypes.c_int64, ctypes.c_void_p
    library.best_next.argtypes = (integer, integer, integer, address, address, address, address)
    library.best_next.restype = None
    library.exponentials.argtypes, library.exponentials.restype = (address, integer, ctypes.c_float), ctypes.c_float
    return library


def _compile(command: list[str], folder: Path, stem: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    print("compiling the search for this processor: once, a few seconds", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        draft = Path(temporary, "decoding.so")
        _run([*command, "-shared", "-fPIC", "-o", str(draft), str(_SOURCE), "-lm"])
        ctypes.CDLL(str(draft)).block_size()  # fails if the library is for another processor
        return draft.replace(folder / _name(stem, draft))


def _run(command: list[str]) -> bytes:
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip() or f"status {done.returncode}"
        raise OSError(f"{command[0]}: {reason}")
    return done.stdout


def _name(stem: str, library: Path) -> str:
    """Return a library's name in the cache, which ends with its digest: a damaged library could end the process."""
    return f"{stem}{hashlib.sha256(library.read_bytes()).hexdigest()[:20]}.so"


def _processor() -> bytes:
    """Return a description of this processor: its code may not run on another processor that uses the same cache."""
    about = Path("/proc/cpuinfo")
    lines = about.read_bytes().splitlines() if about.exists() else [platform.processor().encode()]
    fixed = (b"model name", b"flags", b"CPU implementer", b"CPU part", b"Features")
    return b"\n".join(sorted({line for line in lines if line.startswith(fixed) or not about.exists()}))
