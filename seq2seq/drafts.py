"""Files and folders that are complete or absent: written as drafts in the same folder, then renamed.

An output has one writer at a time: its lock and its unfinished work lie in a hidden folder beside it.
"""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from seq2seq.errors import UserError
from seq2seq.locks import holder_of, is_held, lock, unlock

_DRAFT, _OLD = ".seq2seq-draft", "-old"
WORK, _LOCK = ".seq2seq", "lock"
NEW, PARTIAL, PROGRESS, PARTS = "new", "partial", "progress.json", "parts"  # in a work folder


@contextlib.contextmanager
def claimed(output: Path, *, inside: bool = False) -> Iterator[Path]:
    """Lock an output for the block; yield its folder for unfinished work, which stays if it is not empty at the end.

    The work folder of `output` is `.output.seq2seq` beside it; with inside, it is `.seq2seq` in the folder `output`,
    and the lock covers all files that are directly in the output.

    Raises:
        UserError: another command writes the output, or the work folder's name is taken by something else.
        OSError: the work folder cannot be made.
    """
    work = output / WORK if inside else output.with_name(f".{output.name}{WORK}")
    _, folders, files = next(os.walk(work), ("", [], []))  # os.walk passes over what other processes remove
    if work.is_file() or not {_LOCK, NEW, PARTIAL, PROGRESS, PARTS, "finished"}.issuperset([*folders, *files]):
        raise UserError(f"{work} is no work folder of this program, but has its name: move it away")
    use, advice = f"--output {output} is being written", "wait for it, or choose another --output"
    above = output.parent / WORK / _LOCK
    if not is_held(above) and (holder := holder_of(above)):
        raise UserError(f"{use} by process {holder}: {advice}")
    lock(work / _LOCK, use, advice)
    try:
        yield work
    finally:
        unlock(work / _LOCK, remove=True)


def is_abandoned(work: Path) -> bool:
    """Return whether no process writes in a work folder and no later one can go on with what is in it."""
    return holder_of(work / _LOCK) is None and not (work / PARTIAL).exists()


@contextlib.contextmanager
def draft_of(folder: Path, own: Collection[str] | None = None) -> Iterator[Path]:
    """Yield a folder to write to, which replaces the given one at the end of the block, or is removed after an error.

    The next process removes the drafts of killed processes; if a process was killed between the two renames of a
    replacement, the next process completes the replacement. A draft is locked as long as its process lives; on a file
    system without locks, only its own process removes a draft.

    A link stays, and its target is replaced; an existing folder keeps its permissions. With own, the names that the
    block may write, an existing folder also keeps all files and folders of other names.

    Raises:
        OSError: the folder cannot be written.
    """
    folder = resolve(folder)
    if folder.parent.exists() and not folder.parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{folder.parent} is no folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    with _locked_draft(folder) as draft:
        try:
            yield draft
            _share(draft)
            if folder.exists():
                draft.chmod(stat.S_IMODE(folder.stat().st_mode))
                if own is not None:
                    _keep_others(folder, draft, own)
            _put(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    sweep(folder)  # another process may have been killed between its renames


def _keep_others(folder: Path, draft: Path, own: Collection[str]) -> None:
    """Give the draft second names (hard links) of a folder's files, but not of the given names; links stay links."""
    for path in folder.iterdir():
        if path.name in own:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, draft / path.name, symlinks=True, copy_function=_link)
        else:
            _link(path, draft / path.name)


def _link(source: Path | str, name: Path | str) -> None:
    try:
        os.link(source, name, follow_symlinks=False)
    except OSError:  # a file system without hard links
        shutil.copy2(source, name, follow_symlinks=False)


def _share(draft: Path) -> None:
    """Give a draft and its files the permissions of new files; mkdtemp and safetensors allow only the owner."""
    probe = draft / ".permissions"
    probe.touch()
    mode = stat.S_IMODE(probe.stat().st_mode)
    probe.unlink()
    for path in draft.rglob("*"):
        if path.is_file():
            path.chmod(mode)
    draft.chmod(mode | (mode & 0o444) >> 2)  # readers may also enter the folder


def _put(draft: Path, folder: Path) -> None:
    """Rename a complete draft to folder; an error leaves the folder as it was."""
    old = _old_of(draft)
    try:
        if folder.exists():
            folder.rename(old)
        draft.rename(folder)
    except BaseException:
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise
    if old.exists():
        _remove_old(old, draft)


def _old_of(draft: Path) -> Path:
    """Return the name to which the old folder is renamed while its draft replaces it."""
    return draft.with_name(draft.name + _OLD)


def _remove_old(old: Path, draft: Path) -> None:
    """Remove an old folder that a draft has replaced; rename it first, so that a folder named `-old` is complete."""
    with contextlib.suppress(OSError):
        old.rename(draft)
    shutil.rmtree(draft, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Clean up after killed processes: complete a replacement of the folder that was interrupted, and remove drafts."""
    pattern = re.compile(rf"({re.escape(f'.{folder.name}-')}[a-z0-9_]{{8}}{re.escape(_DRAFT)})(?:{_OLD})?")
    names: list[str] = []
    with contextlib.suppress(OSError):  # the user may be allowed to write here but not to list the folder
        names = os.listdir(folder.parent)
    for name in sorted({found[1] for name in names if (found := pattern.fullmatch(name))}):
        draft = folder.with_name(name)
        old = _old_of(draft)
        try:
            handle = _lock(draft, fcntl.LOCK_NB)
        except FileNotFoundError:
            handle = None  # the draft has been renamed, and its process was killed before it removed the old folder
        except OSError:
            continue  # the draft's process lives, or the file system has no locks
        try:
            if old.exists() and not folder.exists():  # killed between the two renames
                with contextlib.suppress(OSError):  # the user may only be allowed to read here
                    (draft if draft.exists() else old).rename(folder)
            if folder.exists() or not old.exists():
                shutil.rmtree(draft, ignore_errors=True)
            if folder.exists() and old.exists():
                _remove_old(old, draft)
        finally:
            if handle is not None:
                os.close(handle)


@contextlib.contextmanager
def _locked_draft(folder: Path) -> Iterator[Path]:
    """Make a draft and lock it for the block."""
    while True:
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", suffix=_DRAFT, dir=folder.parent))
        handle = None
        with contextlib.suppress(OSError):
            handle = _lock(draft, 0)
        try:
            if draft.exists():  # else another process removed it before it was locked
                yield draft
                return
        finally:
            if handle is not None:
                os.close(handle)


def _lock(draft: Path, flags: int) -> int:
    """Open and lock a folder; a lock ends with its process, killed or not."""
    handle = os.open(draft, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | flags)
    except OSError:
        os.close(handle)
        raise
    return handle


@contextlib.contextmanager
def replacing(path: Path, like: Path | None = None) -> Iterator[Path]:
    """Yield the path of a file to write, which replaces path at the end of the block, or is removed after an error.

    A link stays, and its target is replaced. The file gets the permission bits of the old file or, if there is none, of
    like. A device or a pipe is written directly.

    Raises:
        UserError: another command writes the file.
        OSError: the file cannot be written.
    """
    path = resolve(path)
    if path.exists() and not path.is_file():
        yield path
        return
    with claimed(path) as work:
        try:
            yield work / NEW
            put(work / NEW, path, like)
        finally:
            with contextlib.suppress(OSError):
                (work / NEW).unlink(missing_ok=True)


def resolve(path: Path) -> Path:
    """Return the path with all links followed, also to missing files; a link to itself is returned unchanged."""
    return Path(os.path.realpath(path))


def put(draft: Path, path: Path, like: Path | None = None) -> None:
    """Rename draft to path; it gets the permission bits of the old file or, if there is none, of like.

    Raises:
        OSError: the draft cannot be renamed.
    """
    for source in (path, like):
        if source is not None and source.exists():
            with contextlib.suppress(OSError):  # some file systems have no permissions
                draft.chmod(source.stat().st_mode & 0o777)
            break
    draft.replace(path)
