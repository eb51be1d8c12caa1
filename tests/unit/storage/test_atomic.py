"""What processes that were killed while writing a folder leave, and what living ones must not lose."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from seq2seq.errors import UserError
from seq2seq.storage.atomic import WORK, claimed, complete_replacement, draft_of, is_abandoned, replacing
from seq2seq.storage.output import find_model


def write(folder: Path, text: str, own: set[str] | None = None) -> None:
    with draft_of(folder, own) as draft:
        (draft / "text").write_text(text)
        (draft / "more").write_text(text)


class Killed(BaseException):
    """What ends a process between two operations."""


def die_after(count: int, patched: pytest.MonkeyPatch) -> None:
    """Let so many renames and removals happen; the next removal is half done, and nothing is done after that."""
    done = 0

    def dying(operation: Callable[..., object]) -> Callable[..., object]:
        def do(path: Path, *arguments: object, **options: object) -> object:
            nonlocal done
            done += 1
            if done <= count:
                return operation(path, *arguments, **options)
            if done == count + 1 and operation is rmtree and path.exists():
                next(path.iterdir()).unlink()
            raise Killed

        return do

    rmtree = shutil.rmtree
    patched.setattr(shutil, "rmtree", dying(rmtree))
    patched.setattr(Path, "rename", dying(Path.rename))


def generation(folder: Path) -> str:
    """The text that both files of a folder have."""
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    assert texts.keys() == {"text", "more"}
    (text,) = set(texts.values())
    return text


def clean_up(folder: Path) -> None:
    """Remove what a killed process left if it is of no use any more, as training does in a run's folder."""
    if is_abandoned(work := folder.with_name(f".{folder.name}{WORK}")):
        shutil.rmtree(work, ignore_errors=True)
    complete_replacement(folder)


@pytest.mark.parametrize("see", [complete_replacement, find_model, clean_up])
def test_a_replacement_killed_at_any_point_is_complete_when_it_is_seen_next(tmp_path, see, monkeypatch):
    folder, texts, is_killed = tmp_path / "model", [], True
    while is_killed:
        write(folder, "before")
        with monkeypatch.context() as patched:
            die_after(len(texts), patched)
            is_killed = False
            try:
                write(folder, "after")
            except Killed:
                is_killed = True
        see(folder)
        texts.append(generation(folder))
        complete_replacement(folder)
        assert os.listdir(tmp_path) == ["model"]
    replaced = texts.index("after")
    assert (set(texts[:replaced]), set(texts[replaced:])) == ({"before"}, {"after"})
    assert len(texts) > 4  # points at which it was killed


def users_files(folder: Path) -> dict[str, object]:
    """The contents of what a user put into a folder: each file's inode and permissions, and each link's target."""
    return {
        str(path.relative_to(folder)): path.readlink()
        if path.is_symlink()
        else path.is_dir() or (path.read_bytes(), path.stat().st_mode)
        for path in sorted(folder.rglob("*"))
        if path.name not in ("text", "more") or path.parent != folder
    }


@pytest.mark.parametrize("has_hard_links", [True, False])
def test_files_of_other_names_stay_at_every_point_at_which_a_replacement_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_hard_links: bool
) -> None:
    folder, count, is_killed = tmp_path / "model", 0, True
    if not has_hard_links:
        monkeypatch.setattr(os, "link", lambda *_, **__: (tmp_path / "no").stat())
    write(folder, "before")
    (folder / "export/deep").mkdir(parents=True)
    for name in ("notes", ".hidden", "export/text", "export/deep/weights"):
        (folder / name).write_text(name)
    (folder / "notes").chmod(0o600)
    (folder / "link").symlink_to("../elsewhere")
    (folder / "to-folder").symlink_to("export")
    (folder / "old").write_text("of ours")
    before = users_files(folder)
    del before["old"]
    while is_killed:
        with monkeypatch.context() as patched:
            die_after(count, patched)
            is_killed = False
            try:
                write(folder, "after", {"text", "more", "old"})
            except Killed:
                is_killed = True
        complete_replacement(folder)
        after = users_files(folder)
        assert after.pop("old", None) is None or (folder / "text").read_text() == "before"
        assert after == before
        count += 1
    assert count > 4
    assert not (folder / "old").exists()
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_replacement_that_is_interrupted_leaves_the_folder_before(tmp_path, failing, monkeypatch):
    write(tmp_path / "model", "before")
    calls, rename = [], Path.rename

    def fail(path: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == failing:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "model", "after")
    assert generation(tmp_path / "model") == "before"
    assert os.listdir(tmp_path) == ["model"]


def test_the_second_writer_of_a_folder_is_refused_and_does_not_touch_the_first_ones_draft(tmp_path: Path) -> None:
    with draft_of(tmp_path / "model") as slow:
        (slow / "text").write_text("slow")
        with pytest.raises(UserError, match=rf"model is being written by process {os.getpid()} on"):
            write(tmp_path / "model", "quick")
    assert (tmp_path / "model/text").read_text() == "slow"
    assert os.listdir(tmp_path) == ["model"]


def test_a_reader_removes_no_draft_where_files_cannot_be_locked(tmp_path, monkeypatch):
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))))
    with draft_of(tmp_path / "model") as draft:
        (draft / "text").write_text("half")
        complete_replacement(tmp_path / "model")
    assert (tmp_path / "model/text").read_text() == "half"
    write(tmp_path / "model", "again")


def test_a_file_in_place_of_the_folder_above_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADirectoryError, match="file is no folder"):
        write(tmp_path / "file/model", "text")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_link_stays_and_its_folder_keeps_its_permissions(tmp_path: Path) -> None:
    folder, link = tmp_path / "deep" / "model", tmp_path / "link"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "before").touch()
    link.symlink_to(folder)
    with draft_of(link) as draft:
        (draft / "after").touch()
    assert link.is_symlink()
    assert [path.name for path in folder.iterdir()] == ["after"]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "link"]


COUNT = """
import sys, time
from pathlib import Path
from seq2seq.storage.atomic import claimed
from seq2seq.errors import UserError
counter, done = Path("counter"), 0
while done < 50:
    try:
        with claimed(Path("out").absolute()):
            count = int(counter.read_text())
            time.sleep(1e-4)
            counter.write_text(str(count + 1))
            done += 1
    except UserError:
        time.sleep(1e-4)
"""


def test_an_output_has_one_writer_at_a_time_though_each_removes_its_lock(tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("0")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    started = [subprocess.Popen([sys.executable, "-c", COUNT], cwd=tmp_path, env=environment) for _ in range(3)]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert (tmp_path / "counter").read_text() == "150"
    assert os.listdir(tmp_path) == ["counter"]


def test_a_folder_that_another_process_writes_locks_the_files_in_it(tmp_path: Path) -> None:
    code = "from pathlib import Path; from seq2seq.storage.atomic import replacing\nwith replacing(Path('a')): pass"
    with claimed(tmp_path, inside=True):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
        with replacing(tmp_path / "b") as draft:
            draft.touch()
    assert f"a is being written by process {os.getpid()} on".encode() in result.stderr
    assert os.listdir(tmp_path) == ["b"]


@pytest.mark.parametrize("name", [".out.seq2seq", ".out.seq2seq/notes"])
def test_what_has_the_name_of_work_but_is_the_users_is_not_touched(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match=r"\.out\.seq2seq is no work folder of this program"), claimed(tmp_path / "out"):
        pass
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("writing", [draft_of, replacing, claimed])
def test_an_error_that_names_no_file_names_the_output(tmp_path, writing):
    with pytest.raises(OSError, match="No space left") as raised, writing(tmp_path / "output"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert raised.value.filename == str(tmp_path / "output")
