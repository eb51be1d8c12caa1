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


def test_bytes_that_are_not_utf8_are_named_by_file_and_line(tmp_path, monkeypatch):
    file = tmp_path / "in.en"
    file.write_bytes(b"one\ntwo\nni\xf1o\n")
    with pytest.raises(UserError, match=r"in\.en:3 is not UTF-8 \(byte 0xf1 at column 3\)"):
        list(read_lines(file))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n")))
    with pytest.raises(UserError, match=r"stdin:1 is not UTF-8 \(byte 0xff at column 1\)"):
        list(read_lines(None))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match=r"missing\.en cannot be read: No such file"):
        list(read_lines(tmp_path / "missing.en"))
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        list(read_lines(tmp_path))


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


def test_output_that_cannot_be_written_is_named(tmp_path):
    for file, reason in ((tmp_path / "no" / "out.es", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(UserError, match=f"--output .* cannot be written: {reason}"), open_output(file):
            pytest.fail("the output was opened")


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


def test_no_model_says_how_to_get_one(tmp_path):
    with pytest.raises(UserError, match=r"no model under .*nowhere: train one with `python train.py`, or give --model"):
        find_model(None, tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"--model .*nothing is no folder: give runs/NAME or runs/NAME/model"):
        find_model(tmp_path / "nothing")


@pytest.mark.parametrize("made_of", [None, {"model": "x"}])
def test_an_output_keeps_its_permissions_and_the_link_to_it(tmp_path: Path, made_of: dict[str, str] | None):
    target, link = tmp_path / "real", tmp_path / "link"
    target.write_text("before")
    target.chmod(0o640)
    link.symlink_to(target)
    with open_output(link, made_of) as write:
        write("after")
    assert link.is_symlink()
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("after\n", 0o640)


def test_a_link_to_itself_is_no_traceback(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "link")
    with open_output(tmp_path / "link") as write:
        write("after")
    assert (tmp_path / "link").read_text() == "after\n"


def test_an_output_is_tried_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("kept")
    for path in (tmp_path / "old", tmp_path / "new", Path("/dev/null")):
        require_writable(path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old", "kept")]
    with pytest.raises(UserError, match="cannot be written: No such file or directory"):
        require_writable(tmp_path / "none" / "new")
