"""A cached folder is complete or absent, built once, and never trusted blindly."""

import errno
import hashlib
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from seq2seq.errors import UserError
from seq2seq.settings.data import cache_root
from seq2seq.storage import cache
from seq2seq.storage.cache import cached_folder
from tests.refusing import refuses


class Builder:
    """Writes two files, and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        (folder / "a").write_text("alpha")
        (folder / "b").write_text("beta")


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
def test_a_damaged_folder_is_built_again_with_a_warning(tmp_path, caplog, name, text):
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

    with monkeypatch.context() as patched:
        patched.setattr(hashlib, "file_digest", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
        refuses(rf"{folder} cannot be read \(.*run the same command again", cached_folder, tmp_path, "key", build)
    assert cached_folder(tmp_path, "key", build) == folder
    assert build.calls == 1


def test_a_finished_folder_is_used_on_a_read_only_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = cached_folder(tmp_path, "key", Builder())

    monkeypatch.setattr(cache, "FileLock", Mock(side_effect=PermissionError(13, "Permission denied")))
    assert cached_folder(tmp_path, "key", Builder()) == folder
    refuses(r"cannot be used \(Permission denied\)", cached_folder, tmp_path, "another", Builder())


@pytest.mark.parametrize("error", [UserError, OSError])
def test_a_failed_build_leaves_nothing(tmp_path: Path, error: type[Exception]):
    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise error("so")

    refuses("so", cached_folder, tmp_path, "key", fail)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


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


def test_a_place_whose_name_is_not_utf_8_names_the_setting(tmp_path: Path):
    def build(folder: Path) -> None:
        str(folder).encode()  # as libraries do that open files

    with pytest.raises(UserError, match=r"data.cache=.* cannot be used \('utf-8' codec can't encode"):
        cached_folder(tmp_path / "\udcff", "key", build)


def test_the_setting_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SEQ2SEQ_CACHE", "/somewhere")
    assert (cache_root("~/other"), cache_root()) == (Path.home() / "other", Path("/somewhere"))
    monkeypatch.setenv("SEQ2SEQ_CACHE", "")
    assert cache_root() == Path.home() / ".cache" / "seq2seq"
    refuses("~nobody-here/c: the home of this user is not known here", cache_root, "~nobody-here/c")
