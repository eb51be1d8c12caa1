"""However the work is cut and whoever does it, the prepared files are the same to the byte."""

import os
import signal
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from preparing import TEST, TRAIN, files, run, write

from seq2seq.data import cleaned
from seq2seq.data.processes import Processes, is_stopping
from seq2seq.errors import UserError
from tests.thin import thin

pytestmark = pytest.mark.slow

REPEATED = [*TRAIN, TEST[0], ("", "x"), *TRAIN[10:20], ("same", "same")]
SPLITS: dict[str, dict[str, Any]] = {
    "given": {},
    "held out": {"validation": [], "test": []},
    "of one corpus": {"held_out_from": ["more.tsv"]},
}


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut little text into many batches, and its digests into four ranges."""
    monkeypatch.setattr(cleaned, "TASK", 9000)
    monkeypatch.setattr(cleaned, "BATCH", 40)
    monkeypatch.setattr(cleaned, "PART", 110)


@pytest.fixture
def corpus(root: Path) -> Path:
    write(root / "train.tsv", REPEATED)
    write(root / "more.tsv", TRAIN[:70] + [(f"{src} more", f"{tgt} más") for src, tgt in TRAIN[:60]])
    return root


def prepare_into(cache: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> dict[str, bytes]:
    monkeypatch.setenv("SEQ2SEQ_CACHE", str(cache))
    run(corpus, train=["train.tsv", "more.tsv"], max_length=20, **changes)
    return files(cache)


@pytest.mark.parametrize("splits", thin(SPLITS, ["held out"]))
def test_batches_of_any_size_for_one_or_two_processes_give_the_same_bytes(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest, splits: str
):
    expected = prepare_into(tmp_path / "o::ne", corpus, monkeypatch, **SPLITS[splits])
    request.getfixturevalue("small_batches")
    assert prepare_into(tmp_path / "batches", corpus, monkeypatch, **SPLITS[splits]) == expected
    assert prepare_into(tmp_path / "two", corpus, monkeypatch, num_proc=2, **SPLITS[splits]) == expected
    assert b'"duplicate": 10' in expected["report.json"]
    assert b'"duplicate": 70' in expected["report.json"]


def die(task: int) -> int:
    if task == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def wait_for_the_end(task: tuple[int, Path]) -> int:
    number, folder = task
    deadline = time.monotonic() + 30
    while number and not is_stopping():
        if time.monotonic() > deadline:
            (folder / "nobody said so").touch()
            break
        time.sleep(0.01)
    return number


def test_tasks_at_work_hear_that_nobody_waits_any_more(tmp_path: Path):
    with Processes(2) as workers:
        assert next(workers.map(wait_for_the_end, ((number, tmp_path) for number in range(9)))) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_dies_is_one_line():
    with Processes(2) as workers, pytest.raises(UserError, match=r"one of 2 processes died.*lower data.num_proc"):
        list(workers.map(die, range(4)))


def test_the_disk_being_full_names_the_cache(corpus: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(
        "datasets.arrow_writer.ArrowWriter.write_batch", Mock(side_effect=OSError(28, "No space left on device"))
    )
    with pytest.raises(UserError, match=r"data.cache=.* cannot be used \(No space left on device\)"):
        prepare_into(tmp_path / "cache", corpus, monkeypatch)


def test_duplicates_can_be_kept(corpus: Path):
    assert len(run(corpus, drop_duplicates=False).train) == len(TRAIN) + 10
