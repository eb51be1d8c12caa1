"""A cached folder is complete or absent, built once, and never trusted blindly."""

import errno
import hashlib
import logging
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from seq2seq import cache
from seq2seq.cache import WORK, cached_folder
from seq2seq.errors import UnfinishedError, UserError
from seq2seq.settings.data import cache_root


class Killed(BaseException):
    """Ends a process between two operations."""


class Builder:
    """Writes two files, on request with work beside them, and counts how often."""

    def __init__(self, *, works: bool = False) -> None:
        self.calls, self.works = 0, works

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        (folder / "a").write_text("alpha")
        (folder / "b").write_text("beta")
        if self.works:
            (folder.parent / WORK).mkdir()
            (folder.parent / WORK / "done").write_text("something")


def test_each_key_is_built_once(tmp_path: Path):
    build = Builder()
    first = cached_folder(tmp_path / "new" / "root", "key", build)
    assert cached_folder(tmp_path / "new" / "root", "key", build) == first
    assert (first / "a").read_text() == "alpha"
    assert build.calls == 1
    assert cached_folder(tmp_path / "new" / "root", "other", build) != first
    assert build.calls == 2


@pytest.mark.parametrize(
    ("name", "text"), [("b", "bet4"), ("b", None), ("manifest.json", "[1]"), ("manifest.json", None)]
)
def test_a_damaged_folder_is_built_again_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, text: str | None
):
    build = Builder()
    folder = cached_folder(tmp_path, "key", build)
    (folder / name).unlink() if text is None else (folder / name).write_text(text)
    with caplog.at_level(logging.WARNING):
        cached_folder(tmp_path, "key", build)
    assert build.calls == 2
    assert (folder / "b").read_text() == "beta"
    assert "is damaged: preparing it again" in caplog.text


def test_a_folder_that_cannot_be_read_just_now_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    build = Builder()
    folder = cached_folder(tmp_path, "key", build)

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(hashlib, "file_digest", refuse)
        with pytest.raises(UserError, match=rf"{folder} cannot be read \(.*run the same command again"):
            cached_folder(tmp_path, "key", build)
    assert cached_folder(tmp_path, "key", build) == folder
    assert build.calls == 1


def test_a_killed_build_goes_on_from_its_work_and_all_else_is_swept_away(tmp_path: Path):
    def die(folder: Path) -> None:
        (folder / "stale").write_text("half of it")
        (folder.parent / WORK).mkdir()
        (folder.parent / WORK / "done").write_text("something")
        raise Killed

    def go_on(folder: Path) -> None:
        assert (folder.parent / WORK / "done").read_text() == "something"
        Builder()(folder)

    with pytest.raises(Killed):
        cached_folder(tmp_path, "key", die)
    folder = cached_folder(tmp_path, "key", go_on)
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b", "manifest.json"]
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [folder]


@pytest.mark.parametrize("moment", ["rename", "removal of the work", "removal of the rest"])
def test_a_finished_build_killed_before_its_end_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
):
    operation = Path.rename if moment == "rename" else shutil.rmtree
    name = {"rename": "result", "removal of the work": WORK, "removal of the rest": ".key.building"}[moment]

    def killing(path: Path, *arguments: Any, **options: Any) -> object:
        if path.name != name:
            return operation(path, *arguments, **options)
        raise Killed

    build = Builder(works=True)
    with monkeypatch.context() as patched:
        patched.setattr(*((Path, "rename") if moment == "rename" else (cache.shutil, "rmtree")), killing)
        with pytest.raises(Killed):
            cached_folder(tmp_path, "key", build)
    folder = cached_folder(tmp_path, "key", build)
    assert build.calls == 1
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b", "manifest.json"]
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [folder]


def test_a_finished_folder_is_used_on_a_read_only_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = cached_folder(tmp_path, "key", Builder())

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cache, "FileLock", refuse)
    assert cached_folder(tmp_path, "key", Builder()) == folder
    with pytest.raises(UserError, match=r"cannot be used \(Permission denied\)"):
        cached_folder(tmp_path, "another", Builder())


@pytest.mark.parametrize(("error", "left"), [(UserError, False), (UnfinishedError, True), (OSError, True)])
def test_only_what_a_second_try_would_meet_again_ends_the_work(tmp_path: Path, error: type[Exception], left: bool):
    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        (folder.parent / WORK).mkdir()
        raise error("so")

    with pytest.raises((UserError, OSError), match="so"):
        cached_folder(tmp_path, "key", fail)
    draft = tmp_path / ".key.building"
    assert (draft / WORK).exists() == left
    assert not list(draft.rglob("half"))


def test_of_two_at_the_same_time_one_builds_and_the_other_waits(tmp_path: Path):
    build, begun, end = Builder(), threading.Event(), threading.Event()

    def slowly(folder: Path) -> None:
        begun.set()
        assert end.wait(60)
        build(folder)

    with ThreadPoolExecutor(3) as threads:
        folders = [threads.submit(cached_folder, tmp_path, "key", slowly) for _ in range(3)]
        assert begun.wait(60)
        end.set()
        assert len({folder.result() for folder in folders}) == build.calls == 1


def test_a_place_that_cannot_be_written_names_the_setting(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"data.cache=.*file/sub cannot be used \(Not a directory\): set data.cache"):
        cached_folder(tmp_path / "file" / "sub", "key", Builder())


def test_the_setting_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SEQ2SEQ_CACHE", "/somewhere")
    assert (cache_root("~/other"), cache_root()) == (Path.home() / "other", Path("/somewhere"))
    monkeypatch.setenv("SEQ2SEQ_CACHE", "")
    assert cache_root() == Path.home() / ".cache" / "seq2seq"
