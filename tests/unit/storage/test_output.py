import gzip
import io
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from seq2seq.errors import UserError
from seq2seq.storage.lines import MAX_LINE
from seq2seq.storage.output import count_lines, find_model, open_output, read_lines, require_other, require_writable
from tests.refusing import refuses


def test_lines_end_with_lf_or_crlf_and_with_nothing_else(tmp_path):
    file = tmp_path / "in"
    text = "\ufeffuno\r\n\r\ndos\u2028tres\x0bcuatro\x85\rcinco\n\n\ufeffseis\0"
    lines = ["uno", "", "dos\u2028tres\x0bcuatro\x85\rcinco", "", "\ufeffseis\0"]
    file.write_bytes(text.encode())
    (tmp_path / "in.gz").write_bytes(gzip.compress(text.encode()))
    assert list(read_lines(file)) == list(read_lines(tmp_path / "in.gz")) == lines
    assert count_lines(file) == 5
    for cr_only in (b"uno\rdos", b"uno\r\ndos\rtres\r", b"uno\rdos" * MAX_LINE):
        file.write_bytes(cr_only)
        refuses(r"in:. has CR without LF, which ends no line here: convert the file", count_lines, file)


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


@pytest.mark.parametrize("provenance", [None, {"model": "a"}])
def test_the_second_command_that_writes_an_output_is_refused_and_names_the_first(tmp_path, provenance):
    (tmp_path / "link").symlink_to("out")
    mine = {tmp_path / name: f"my {name}" for name in ("out.partial", "out.progress", "out.tmp", ".out.lock")}
    for file, text in mine.items():
        file.write_text(text)
    with open_output(tmp_path / "out", provenance) as first:
        first("first")
        for other in (None, {"model": "a"}, {"model": "b"}):
            with pytest.raises(UserError, match=rf"out is being written by process {os.getpid()} on .*: wait for it"):
                open_output(tmp_path / "link", other, resume=other is not None).__enter__()
        first("too")
    assert (tmp_path / "link").read_text() == "first\ntoo\n"
    assert {file: file.read_text() for file in mine} == mine


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2", ".xz"])
@pytest.mark.parametrize("count", [0, 2, 5])
def test_an_output_is_compressed_by_its_ending_also_when_it_is_resumed(tmp_path, caplog, ending, count):
    lines = [f"línea {number}" for number in range(count)]

    def write(file: Path, stop: int, **options: bool) -> None:
        with open_output(file, {"model": "a"}, **options) as out:
            for number, line in enumerate(lines[out.inputs :], out.inputs + 1):
                if number > stop:
                    raise KeyboardInterrupt
                out(line)
                if number % 2 == 0:
                    out.commit(number)

    straight, killed = tmp_path / f"a{ending}", tmp_path / f"b{ending}"
    write(straight, count)
    for _ in range(2):  # without resume, the second one begins anew
        with suppress(KeyboardInterrupt):
            write(killed, 3)
    warning = f"{killed}: an interrupted command wrote 2 inputs, which are now written anew; --resume would go on"
    assert caplog.messages == [warning] * (count > 3)
    write(killed, count, resume=True)
    assert killed.read_bytes() == straight.read_bytes()
    assert list(read_lines(killed)) == lines
    assert ending == "" or straight.stat().st_size > 0


def test_an_output_is_none_of_the_inputs_however_it_is_called(tmp_path):
    file, other = tmp_path / "file", tmp_path / "other"
    (tmp_path / "folder").mkdir()
    for path in (file, other):
        path.touch()
    (tmp_path / "soft").symlink_to(file)
    (tmp_path / "hard").hardlink_to(file)
    for output in (file, tmp_path / "soft", tmp_path / "hard", tmp_path / "folder/../file"):
        refuses(r"would replace the input .*file: choose another name", require_other, output, other, None, file)
    require_other(file, other, tmp_path / "none")
    require_other(Path(os.devnull), Path(os.devnull))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_line_and_a_device_is_never_replaced():
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
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
    monkeypatch.setattr("seq2seq.storage.output.clone", lambda: root)
    refuses(r"there is no model under .*none: train one with", find_model, None, empty)
    (root / "data/model").mkdir(parents=True)
    assert find_model(None, empty) == root / "data" / "model"
    assert find_model(None, runs) == runs / "new" / "model"
    monkeypatch.setattr("seq2seq.storage.output.clone", lambda: None)
    refuses("there is no model", find_model, None, empty)


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
    with pytest.raises(FileNotFoundError, match="none/new'"):
        require_writable(tmp_path / "none" / "new")


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_command_killed_before_its_file_has_its_name_writes_no_line_twice(tmp_path, monkeypatch, ending):
    path, lines = tmp_path / f"out.es{ending}", ["uno", "dos", "tres"]

    def write():
        with open_output(path, {"input": "x"}, resume=True) as out:
            for number, line in enumerate(lines[out.inputs :], start=out.inputs + 1):
                out(line)
                if number == 2:
                    out.commit(number)

    with monkeypatch.context() as killed:
        killed.setattr("seq2seq.storage.output.put", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            write()
    write()
    assert list(read_lines(path)) == lines
