"""Whoever does the work, and however often it is broken off, the prepared files are the same to the byte."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from preparing import SMALL, TEST, TRAIN, config, files, run, write

from seq2seq import cache
from seq2seq.errors import UnfinishedError
from seq2seq.settings.data import DataConfig
from seq2seq.text import pipeline, shards
from seq2seq.text.corpus import open_corpora
from seq2seq.text.prepare import prepare
from seq2seq.workers import Processes, Workers, is_stopping
from tests.thin import thin

pytestmark = pytest.mark.slow

REPEATED = [*TRAIN, TEST[0], ("", "x"), *TRAIN[10:20], ("same", "same")]
SPLITS: dict[str, dict[str, Any]] = {"given": {}, "held out": {"validation": [], "test": []}}


class Killed(BaseException):
    """Ends a preparation as a kill does: nothing in the package catches it."""


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut little text into many shards."""
    monkeypatch.setattr(shards, "SHARD", 50)
    monkeypatch.setattr(shards, "SHARD_BYTES", 4000)
    monkeypatch.setattr(shards, "PART", 100)
    monkeypatch.setattr(shards, "_CHUNK", 40)


@pytest.fixture
def corpus(root: Path) -> Path:
    write(root / "train.tsv", REPEATED)
    write(root / "more.tsv", TRAIN[:70] + [(f"{src} more", f"{tgt} más") for src, tgt in TRAIN[:60]])
    return root


def prepare_into(cache: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> dict[str, bytes]:
    monkeypatch.setenv("SEQ2SEQ_CACHE", str(cache))
    run(corpus, train=["train.tsv", "more.tsv"], max_length=20, **changes)
    return files(cache)


class Here(Processes):
    """Works in this process, but divides the work as three processes would."""

    def __init__(self, size: int = 3) -> None:
        self.size = size

    def __enter__(self) -> Workers:
        self._pool = None
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("splits", thin(SPLITS, ["held out"]))
def test_shards_of_any_size_for_any_number_of_workers_give_the_same_bytes(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest, splits: str
):
    expected = prepare_into(tmp_path / "one", corpus, monkeypatch, **SPLITS[splits])
    request.getfixturevalue("small_steps")
    in_steps = prepare_into(tmp_path / "steps", corpus, monkeypatch, **SPLITS[splits])
    monkeypatch.setattr("seq2seq.text.prepare.Processes", lambda _: Here())
    assert prepare_into(tmp_path / "several", corpus, monkeypatch, **SPLITS[splits]) == in_steps == expected
    assert b'"duplicate": 10' in expected["report.json"]
    assert b'"duplicate": 70' in expected["report.json"]


@pytest.mark.slow
def test_processes_give_the_same_bytes(corpus: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(shards, "SHARD_BYTES", 4000)
    one = prepare_into(tmp_path / "one", corpus, monkeypatch)
    assert prepare_into(tmp_path / "two", corpus, monkeypatch, num_proc=2) == one


@pytest.fixture
def finished_steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders of the steps that were really run."""
    made: list[str] = []
    make = cache.write_complete

    def counting(folder: Path, build: Callable[[Path], None]) -> None:
        make(folder, build)
        if cache.WORK in folder.parts:
            made.append(f"{folder.parent.name}/{folder.name}")

    monkeypatch.setattr(cache, "write_complete", counting)
    return made


@pytest.mark.slow
@pytest.mark.usefixtures("small_steps")
def test_a_preparation_killed_after_every_step_gives_the_same_bytes_and_runs_no_step_twice(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, finished_steps: list[str]
):
    expected = prepare_into(tmp_path / "straight", corpus, monkeypatch, validation=[])
    straight = list(finished_steps)
    finished_steps.clear()
    counting = cache.write_complete

    def killing(folder: Path, build: Callable[[Path], None]) -> None:
        def half(draft: Path) -> None:
            build(draft)
            raise Killed

        if cache.WORK in folder.parts and folder not in killed:
            killed.append(folder)
            if len(killed) % 2:
                counting(folder, half)
            counting(folder, build)
            raise Killed  # just after this step, or else just before its end
        counting(folder, build)

    killed: list[Path] = []
    monkeypatch.setattr(cache, "write_complete", killing)
    kills = 0
    while True:
        try:
            prepared = prepare_into(tmp_path / "killed", corpus, monkeypatch, validation=[])
            break
        except Killed:
            kills += 1
    assert prepared == expected
    assert kills == len(straight) > 25
    assert sorted(finished_steps) == sorted(straight)


@pytest.mark.usefixtures("small_steps")
def test_a_damaged_step_is_run_again(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, finished_steps: list[str]
):
    expected = prepare_into(tmp_path / "straight", corpus, monkeypatch)

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "learn_tokenizers", die)
        with pytest.raises(Killed):
            prepare_into(tmp_path / "killed", corpus, monkeypatch)
    (damaged, *_) = sorted((tmp_path / "killed").glob(".*.building/work/cleaned/*/pairs.tsv"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    finished_steps.clear()
    assert prepare_into(tmp_path / "killed", corpus, monkeypatch) == expected
    assert [name for name in finished_steps if name.startswith("cleaned/")] == [f"cleaned/{damaged.parent.name}"]


PROGRAM = """
import os, signal, sys
sys.path[:0] = sys.argv[1:3]
from pathlib import Path
from preparing import run
from seq2seq import cache
from seq2seq.text import shards
shards.SHARD_BYTES = 4000
make = cache.write_complete
def killing(folder, build):
    if sys.argv[4] in str(folder):
        make(folder, lambda draft: (build(draft), os.kill(os.getpid(), signal.SIGKILL)))
    make(folder, build)
cache.write_complete = killing
run(Path(sys.argv[3]), train=["train.tsv", "more.tsv"], max_length=20)
"""


@pytest.mark.slow
@pytest.mark.parametrize("inside", ["cleaned/00000-000003", "tokens/00000-000000"])
def test_a_killed_process_is_gone_on_from(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, finished_steps: list[str], inside: str
):
    monkeypatch.setattr(shards, "SHARD_BYTES", 4000)
    expected = prepare_into(tmp_path / "straight", corpus, monkeypatch)
    straight = len(finished_steps)
    finished_steps.clear()
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[3]), str(corpus)]
    environment = {**os.environ, "SEQ2SEQ_CACHE": str(tmp_path / "killed")}
    killed = subprocess.run([sys.executable, "-c", PROGRAM, *paths, inside], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    done = len(list((tmp_path / "killed").glob(".*.building/work/*/*/manifest.json")))
    done += len(list((tmp_path / "killed").glob(".*.building/work/*/manifest.json")))
    assert done >= 3
    assert prepare_into(tmp_path / "killed", corpus, monkeypatch) == expected
    assert len(finished_steps) == straight - done


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


@pytest.mark.slow
def test_tasks_at_work_hear_that_nobody_waits_any_more(tmp_path: Path):
    with Processes(2) as workers:
        assert next(workers.map(wait_for_the_end, ((number, tmp_path) for number in range(9)))) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_dies_is_one_line_and_nothing_done_is_lost(corpus: Path, monkeypatch: pytest.MonkeyPatch):
    with Processes(2) as workers, pytest.raises(UnfinishedError, match=r"one of 2 processes died.*lower data.num_proc"):
        list(workers.map(die, range(4)))

    class Broken(Here):
        def map(self, function: Any, tasks: Any) -> Any:
            for task in tasks:
                if task.func is shards.select:
                    raise UnfinishedError("died")
                yield function(task)

    with pytest.raises(UnfinishedError):
        prepare(config(corpus), SMALL, Broken())
    assert list((corpus.parent / "cache").glob(".*.building/work/cleaned/*"))


def test_duplicates_can_be_kept(corpus: Path):
    assert len(run(corpus, drop_duplicates=False).train) == len(TRAIN) + 10


def test_cleaning_ends_soon_when_nobody_waits_for_it(corpus: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Else Ctrl-C would wait until the whole corpus is clean."""
    folder = tmp_path / "cleaned"
    monkeypatch.setattr(shards, "is_stopping", lambda: len(list(folder.glob("*"))) >= 2)
    (text,) = open_corpora("train.tsv", str(corpus), DataConfig())
    shards.clean_stripe(folder / "0", text, DataConfig(), 4000, range(1 << 40))
    assert len(list(folder.glob("*"))) == 2
