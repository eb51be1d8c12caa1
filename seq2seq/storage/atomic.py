"""Files and folders that are complete or absent: written under a temporary name, then renamed.

An output has one writer at a time, across machines: its lock, which ends with its process and names it to others, and
its unfinished work lie in a hidden folder beside it, the work folder.
"""

import contextlib
import errno
import fcntl
import logging
import os
import shutil
import socket
from collections.abc import Collection, Iterator
from pathlib import Path

from seq2seq.errors import UserError

log = logging.getLogger(__name__)
_held: dict[Path, int] = {}  # lock file → open file, kept open as long as the lock is held
_TAKEN = (errno.EWOULDBLOCK, errno.EACCES)
WORK, _LOCK = ".seq2seq", "lock"
NEW, PARTIAL, PROGRESS, PARTS = "new", "partial", "progress.json", "parts"  # in a work folder
_OLD = "old"  # the folder that a new one replaces


def lock(file: Path, use: str, advice: str) -> bool:
    """Lock a file, made if missing in a folder that is made if missing, until `unlock` or the end of the process.

    Return whether it is locked: some file systems have no locks.
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


@contextlib.contextmanager
def claimed(output: Path, *, inside: bool = False, is_writer: bool = True) -> Iterator[Path]:
    """Lock an output for the block; yield its folder for unfinished work, which stays if it is not empty at the end.

    The work folder of `output` is `.output.seq2seq` beside it; with inside, it is `.seq2seq` in the folder `output`,
    and the lock covers all files that are directly in the output. What a killed process left is completed or removed;
    where files cannot be locked, only a writer does so.
    """
    work = output / WORK if inside else _work_of(output)
    _, folders, files = next(os.walk(work), ("", [], []))  # os.walk passes over what other processes remove
    if work.is_file() or not {_LOCK, NEW, _OLD, PARTIAL, PROGRESS, PARTS, "finished"}.issuperset([*folders, *files]):
        raise UserError(f"{work} is no work folder of this program, but has its name: move it away")
    use, advice = f"--output {output} is being written", "wait for it, or choose another --output"
    above = output.parent / WORK / _LOCK
    if not is_held(above) and (holder := holder_of(above)):
        raise UserError(f"{use} by process {holder}: {advice}")
    with _naming(output, work):
        is_locked = lock(work / _LOCK, use, advice)
        try:
            if is_locked or is_writer:
                if (work / NEW).exists() and (work / _OLD).exists() and not output.exists():  # killed between renames
                    (work / NEW).rename(output)
                for left in (work / NEW, work / _OLD):
                    _remove(left)
            yield work
        finally:
            unlock(work / _LOCK, remove=True)


@contextlib.contextmanager
def _naming(output: Path, work: Path) -> Iterator[None]:
    """Name the output in an error of the operating system that names no file, or a file of the output's work folder."""
    try:
        yield
    except OSError as error:
        is_unnamed = not error.filename or str(error.filename).startswith(str(work))
        if error.errno and is_unnamed:  # without a number, the error's text, as of a library, says what is wrong
            error.filename = str(output)
        raise


def _work_of(output: Path) -> Path:
    return output.with_name(f".{output.name}{WORK}")


def _remove(path: Path) -> None:
    """Remove a file or a folder, if it is there and may be removed."""
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink()


def is_abandoned(work: Path) -> bool:
    """Return whether no process writes in a work folder and no later one can go on with what is in it."""
    return holder_of(work / _LOCK) is None and not any((work / name).exists() for name in (PARTIAL, _OLD))


def complete_replacement(folder: Path) -> None:
    """Complete the replacement of a folder by a process that was killed, if there is one and this process may do it."""
    with contextlib.suppress(OSError, UserError):
        if _work_of(folder).exists():
            with claimed(folder, is_writer=False):
                pass


@contextlib.contextmanager
def draft_of(folder: Path, own: Collection[str] | None = None) -> Iterator[Path]:
    """Yield a folder to write to, which replaces the given one at the end of the block, or is removed after an error.

    A link stays, and its target is replaced; an existing folder keeps its permissions. With own, the names that the
    block may write, an existing folder also keeps all files and folders of other names.
    """
    folder = resolve(folder)
    if folder.parent.exists() and not folder.parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{folder.parent} is no folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with claimed(folder) as work:
        draft, old = work / NEW, work / _OLD
        try:
            draft.mkdir()
            yield draft
            for path in draft.rglob("*"):  # safetensors allows only the owner to read
                if path.is_file():
                    path.chmod(draft.stat().st_mode & 0o666)
            if folder.exists():
                draft.chmod(folder.stat().st_mode & 0o7777)
                if own is not None:
                    _keep_others(folder, draft, own)
                folder.rename(old)
            draft.rename(folder)
        except BaseException:
            if old.exists() and not folder.exists():
                old.rename(folder)
            raise
        finally:
            _remove(draft)
            if folder.exists():
                _remove(old)


def _keep_others(folder: Path, draft: Path, own: Collection[str]) -> None:
    """Give the draft second names (hard links) of a folder's files, but not of the given names; links stay links."""
    for path in folder.iterdir():
        if path.name in own:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, draft / path.name, symlinks=True, copy_function=link_or_copy)
        else:
            link_or_copy(path, draft / path.name)


def link_or_copy(source: Path | str, name: Path | str) -> None:
    """Give a file a second name, or make a copy on a file system without hard links; a link stays a link."""
    try:
        os.link(source, name, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, name, follow_symlinks=False)


@contextlib.contextmanager
def replacing(path: Path, like: Path | None = None) -> Iterator[Path]:
    """Yield the path of a file to write, which replaces path at the end of the block, or is removed after an error.

    A link stays, and its target is replaced. The file gets the permission bits of the old file or, if there is none, of
    like. A device or a pipe is written directly.
    """
    path = resolve(path)
    if path.exists() and not path.is_file():
        with _naming(path, path):
            yield path
        return
    with claimed(path) as work:
        try:
            yield work / NEW
            put(work / NEW, path, like)
        finally:
            _remove(work / NEW)


def resolve(path: Path) -> Path:
    """Return the path with all links followed, also to missing files; a link to itself is returned unchanged."""
    return Path(os.path.realpath(path))


def put(draft: Path, path: Path, like: Path | None = None) -> None:
    """Rename draft to path; it gets the permission bits of the old file or, if there is none, of like."""
    for source in (path, like):
        if source is not None and source.exists():
            with contextlib.suppress(OSError):  # some file systems have no permissions
                draft.chmod(source.stat().st_mode & 0o777)
            break
    draft.replace(path)
