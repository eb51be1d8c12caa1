"""What tests of whole processes share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from launcher import Launcher
from small_run import write_corpus


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return write_corpus(tmp_path)
