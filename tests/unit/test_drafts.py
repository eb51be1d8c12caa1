"""What processes that were killed while writing a folder leave, and what living ones must not lose."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seq2seq.drafts import draft_of

KILLED = """
import os, signal, sys
from pathlib import Path
from seq2seq.drafts import draft_of
if sys.argv[2] == "between the names":
    rename = Path.rename
    def killing(self, target):
        if not str(target).endswith("-old"):
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(self, target)
    Path.rename = killing
with draft_of(Path(sys.argv[1])) as draft:
    (draft / "half").write_text("of it")
    if sys.argv[2] == "writing":
        os.kill(os.getpid(), signal.SIGKILL)
"""


def kill_a_process_that_writes(folder: Path, moment: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder), moment], check=False, timeout=600)
    assert done.returncode == -signal.SIGKILL


def write(folder: Path, text: str) -> None:
    with draft_of(folder) as draft:
        (draft / "text").write_text(text)


def test_the_draft_of_a_killed_process_vanishes_with_the_next_save(tmp_path: Path) -> None:
    write(tmp_path / "model", "before")
    kill_a_process_that_writes(tmp_path / "model", "writing")
    assert len(os.listdir(tmp_path)) == 2
    assert (tmp_path / "model/text").read_text() == "before"
    write(tmp_path / "model", "after")
    assert os.listdir(tmp_path) == ["model"]
    assert (tmp_path / "model/text").read_text() == "after"


def test_what_is_left_between_two_names_stays_until_there_is_a_newer_one(tmp_path: Path) -> None:
    write(tmp_path / "model", "before")
    kill_a_process_that_writes(tmp_path / "model", "between the names")
    (old,) = tmp_path.glob("*-old")
    with pytest.raises(KeyboardInterrupt), draft_of(tmp_path / "model"):
        raise KeyboardInterrupt
    assert (old / "text").read_text() == "before"
    write(tmp_path / "model", "after")
    assert os.listdir(tmp_path) == ["model"]


def test_two_who_write_at_once_do_not_take_each_others_drafts(tmp_path: Path) -> None:
    with draft_of(tmp_path / "model") as slow:
        (slow / "text").write_text("slow")
        write(tmp_path / "model", "quick")
        assert (slow / "text").read_text() == "slow"
    assert (tmp_path / "model/text").read_text() == "slow"
    assert os.listdir(tmp_path) == ["model"]


def test_a_draft_swept_up_before_it_was_locked_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import seq2seq.drafts as drafts

    lock, swept = drafts._lock, []

    def lose(draft: Path, flags: int) -> int:
        if not swept and not flags:
            swept.append(draft)
            drafts.sweep(tmp_path / "model")
        return lock(draft, flags)

    monkeypatch.setattr(drafts, "_lock", lose)
    write(tmp_path / "model", "all the same")
    assert swept
    assert not swept[0].exists()
    assert (tmp_path / "model/text").read_text() == "all the same"


def test_other_folders_of_a_like_name_are_left_alone(tmp_path: Path) -> None:
    names = [".model-2", ".model-abcdefgh", ".models-abcdefgh.draft", "model-abcdefgh.draft", ".model-abcdefg.draft"]
    for name in names:
        (tmp_path / name).mkdir()
    write(tmp_path / "model", "text")
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "model"])


def test_a_file_where_a_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADirectoryError, match="file is no folder"):
        write(tmp_path / "file/model", "text")
    assert (tmp_path / "file").read_text() == "mine"
