import gzip
import io
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from seq2seq.errors import UserError
from seq2seq.files import count_lines, find_model, open_output, read_lines, require_writable


def test_lines_end_with_lf_or_crlf_and_with_nothing_else(tmp_path):
    file = tmp_path / "in"
    text = "\ufeffuno\r\n\r\ndos\u2028tres\x0bcuatro\x85\rcinco\n\n\ufeffseis\0"
    lines = ["uno", "", "dos\u2028tres\x0bcuatro\x85\rcinco", "", "\ufeffseis\0"]
    file.write_bytes(text.encode())
    (tmp_path / "in.gz").write_bytes(gzip.compress(text.encode()))
    assert list(read_lines(file)) == list(read_lines(tmp_path / "in.gz")) == lines
    assert count_lines(file) == 5


def test_standard_input_is_read_when_no_file_is_named(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("niño\n\n".encode()), encoding="latin-1"))
    assert list(read_lines(None)) == ["niño", ""]


def write_lines(file: Path, lines: Iterable[str]) -> None:
    with open_output(file) as write:
        for line in lines:
            write(line)


def test_output_appears_under_its_name_only_when_it_is_complete(tmp_path):
    file = tmp_path / "out.es"
    file.write_text("before\n")
    with pytest.raises(ZeroDivisionError):
        write_lines(file, (f"{1 // number}" for number in (1, 0)))
    assert file.read_text() == "before\n"
    with open_output(file) as write:
        write("niño")
        write("")
        assert file.read_text() == "before\n"
    assert file.read_bytes() == "niño\n\n".encode()
    assert os.listdir(tmp_path) == ["out.es"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_line_and_a_device_is_never_replaced():
    message = "--output /dev/full cannot be written: No space left"
    with pytest.raises(UserError, match=message):
        write_lines(Path("/dev/full"), ["a line"] * 10_000)
    assert not Path("/dev/full").is_file()


@pytest.fixture
def runs(tmp_path):
    for name, time in (("old", 1_000), ("new", 2_000), ("broken", 3_000)):
        folder = tmp_path / name / ("model" if name != "broken" else "checkpoints")
        folder.mkdir(parents=True)
        os.utime(folder, (time, time))
    return tmp_path


def test_the_newest_model_is_found_unless_latest_points_at_one(runs):
    assert find_model(None, runs) == runs / "new" / "model"
    (runs / "latest").symlink_to(runs / "old")
    assert find_model(None, runs) == runs / "latest" / "model"
    assert find_model(runs / "old") == runs / "old" / "model"
    assert find_model(runs / "old" / "model") == runs / "old" / "model"


def test_without_a_run_a_clone_has_its_own_model(runs, tmp_path, monkeypatch):
    empty, root = tmp_path / "none", tmp_path / "clone"
    monkeypatch.setattr("seq2seq.files.clone", lambda: root)
    with pytest.raises(UserError, match=r"there is no model under .*none: train one with"):
        find_model(None, empty)
    (root / "data/model").mkdir(parents=True)
    assert find_model(None, empty) == root / "data" / "model"
    assert find_model(None, runs) == runs / "new" / "model"
    monkeypatch.setattr("seq2seq.files.clone", lambda: None)
    with pytest.raises(UserError, match="there is no model"):
        find_model(None, empty)


def test_an_output_keeps_its_permissions_and_the_link_to_it(tmp_path: Path):
    target, link = tmp_path / "real", tmp_path / "link"
    target.write_text("before")
    target.chmod(0o640)
    link.symlink_to(target)
    with open_output(link) as write:
        write("after")
    assert link.is_symlink()
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("after\n", 0o640)


def test_an_output_is_tried_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("kept")
    for path in (tmp_path / "old", tmp_path / "new", Path("/dev/null")):
        require_writable(path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old", "kept")]
    with pytest.raises(UserError, match="cannot be written: No such file or directory"):
        require_writable(tmp_path / "none" / "new")
