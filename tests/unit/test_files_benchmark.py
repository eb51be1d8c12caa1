import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import files
from seq2seq.errors import UserError

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="memory is read from Linux's /proc"
)

# writes a line to out.partial every 10 ms, and renames it to out after 100
_WRITER = """
import os, time
with open("out.partial", "w", buffering=1) as file:
    for number in range(100):
        print(number, file=file)
        time.sleep(0.01)
os.rename("out.partial", "out")
"""


def _start(folder: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", _WRITER], cwd=folder, start_new_session=True)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "_INTERVAL", 0.01)


def test_a_command_is_killed_once_its_part_is_written_and_its_memory_is_told(tmp_path: Path):
    measured = files.Measured()
    assert files._watch(_start(tmp_path), tmp_path / "out", files.Plan(lines=100), measured, 0.5)
    assert not (tmp_path / "out").exists()
    assert 50 <= len((tmp_path / "out.partial").read_text().splitlines()) < 100
    first, second, *rest = measured.highest
    assert first > 1
    assert second > 1
    assert not any(rest[1:])


def test_a_command_that_may_end_is_not_killed(tmp_path: Path):
    process = _start(tmp_path)
    assert not files._watch(process, tmp_path / "out", files.Plan(lines=100), files.Measured(), 2.0)
    assert process.returncode == 0
    assert len((tmp_path / "out").read_text().splitlines()) == 100


def test_lines_are_drawn_from_first_columns_and_the_same_each_time(tmp_path: Path):
    text = tmp_path / "pairs.tsv"
    text.write_text("one\tuno\ntwo\tdos\n", encoding="utf-8")
    for name in ("a", "b"):
        files.write_text(tmp_path / name, [text], 50, seed=1)
    lines = (tmp_path / "a").read_text().splitlines()
    assert len(lines) == 50
    assert set(lines) == {"one", "two"}
    assert lines == (tmp_path / "b").read_text().splitlines()


def test_a_failing_translation_is_told_by_its_own_words(tmp_path: Path):
    source = tmp_path / "in"
    source.write_text("one\n", encoding="utf-8")
    with pytest.raises(UserError, match="is no folder: give runs"):
        files.translate(source, tmp_path / "out", tmp_path / "nothing", files.Plan(lines=1), 1, 0, threads=1)


def test_memory_is_that_of_a_whole_session():
    with subprocess.Popen(["sleep", "5"], start_new_session=True) as process:
        assert os.getsid(process.pid) == process.pid
        assert 0 < files._memory(process.pid) < files._memory(os.getsid(0))
        process.kill()
