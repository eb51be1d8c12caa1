"""The cache listed and cleared, as a user asks for it."""

import functools
import json
import os
import time
from pathlib import Path

import pytest
from filelock import FileLock
from saved_runs import make_run

from seq2seq.cache import cached_folder, note_run
from seq2seq.training.lock import lock_folder, release_folder

DAY = 86_400


def fill(*names: str):
    def build(folder: Path) -> None:
        for name in names:
            (folder / name).write_bytes(b"x" * (500_000 // len(names)))

    return build


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Text that a run read 40 days ago, an export of now, a preparation that was broken off, a stranger's folder."""
    root = tmp_path / "cache"
    monkeypatch.setenv("SEQ2SEQ_CACHE", str(root))
    text = cached_folder(root, "text", fill("tokenizer.model", "report.json"))
    note_run(text, make_run(tmp_path / "runs" / "reader", results=6))
    note_run(text, tmp_path / "runs" / "reader")  # once more
    note_run(text, tmp_path / "runs" / "gone")
    then = time.time() - 40 * DAY
    for folder in (text, cached_folder(root, "export", fill("model.bin", "tokenizer.model"))):
        os.utime(folder, (then, then))
    cached_folder(root, "export", fill("other"))  # is used again
    (root / ".half.building").mkdir()
    (root / "mine").mkdir()
    return root


@pytest.fixture
def ask(seq2seq):
    return functools.partial(seq2seq, "cache")


def folders(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir() if path.is_dir()}


def test_the_cache_is_listed_with_size_use_and_runs(cache: Path, ask, tmp_path: Path) -> None:
    status, out, err = ask("list")
    assert status == 0, err
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert lines["text"][:4] == ["prepared", "text", "0.5", "MB"]
    assert lines["text"][-1] == "reader"
    assert lines["export"][:2] == ["CTranslate2", "export"]
    assert lines[".half.building"][0] == "unfinished"
    assert out.splitlines()[-1] == f"{cache}: 1.0 MB"
    entries = {Path(entry["folder"]).name: entry for entry in json.loads(ask("list", "--json")[1])}
    assert entries.keys() == {"text", "export", ".half.building"}  # not what others put there
    assert entries["text"]["runs"] == [str(tmp_path / "runs" / "reader")]


def test_clearing_by_age_keeps_what_was_used_since(cache: Path, ask) -> None:
    status, _, err = ask("clear", "--older-than", "30d", "--yes")
    assert (status, err) == (0, "removed text (0.5 MB)\n")
    assert folders(cache) == {"export", ".half.building", "mine"}
    assert not (cache / "text.runs").exists()
    assert ask("clear", "--older-than", "4w", "--yes")[2] == f"{cache}: nothing to delete\n"
    assert "--older-than soon is no age: give hours, days or weeks" in ask("clear", "--older-than", "soon")[2]


def test_clearing_asks_and_spares_what_is_in_use(cache: Path, ask, tmp_path: Path) -> None:
    err = ask("clear")[2]
    assert f"this would delete 3 of 3 folders of {cache} (1.0 MB): add --yes, since nobody can be asked here" in err
    lock_folder(tmp_path / "runs" / "reader")
    try:
        with FileLock(cache / "half.lock"):
            status, _, err = ask("clear", stdin=b"y\n", terminal=("stdin",))
    finally:
        release_folder(tmp_path / "runs" / "reader")
    assert status == 0, err
    assert "kept .half.building: another process is preparing it" in err
    assert f"kept text: {tmp_path}/runs/reader is running and reads it" in err
    assert folders(cache) == {"text", ".half.building", "mine"}
    assert ask("clear", "--yes")[0] == 0
    assert folders(cache) == {"mine"}
