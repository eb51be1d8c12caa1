"""The small corpus on disk."""

from pathlib import Path

import pytest
from preparing import TEST, TRAIN, VALIDATION, write


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEQ2SEQ_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "train.tsv", TRAIN)
    write(folder / "validation.tsv", VALIDATION)
    write(folder / "test.tsv", TEST)
    return folder
