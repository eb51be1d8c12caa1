import errno
import os
from pathlib import Path
from typing import Any

import pytest

from seq2seq.training.checkpoints import _link


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "step=0000008.ckpt"
    path.write_bytes(b"weights")
    return path


def test_a_name_that_is_there_already_leaves_no_draft(saved: Path):
    best = saved.with_name("best-step=0000008.ckpt")
    for _ in range(2):  # a validation that is made again after a kill names its checkpoint again
        _link(saved, best)
    assert sorted(path.name for path in saved.parent.iterdir()) == [best.name, saved.name]
    assert best.samefile(saved)


def test_without_hard_links_a_copy_is_made_and_a_full_disk_leaves_no_draft(
    saved: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*args: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    best = saved.with_name("best-step=0000008.ckpt")
    monkeypatch.setattr(os, "link", refuse)
    _link(saved, best)
    assert best.read_bytes() == b"weights"
    assert not best.samefile(saved)

    def fill(source: Path, target: Path) -> None:
        Path(target).write_bytes(b"wei")
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("shutil.copyfile", fill)
    with pytest.raises(OSError, match="full"):
        _link(saved, best)
    assert sorted(path.name for path in saved.parent.iterdir()) == [best.name, saved.name]
    assert best.read_bytes() == b"weights"
