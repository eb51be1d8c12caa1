"""Fixtures of tests of whole processes."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from launcher import Launcher
from small_run import BASE

from tests.toy import write_corpus


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """A working folder with the toy corpus."""
    return write_corpus(tmp_path)


@pytest.fixture(scope="session")
def _trained(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_corpus(tmp_path_factory.mktemp("trained"))
    launcher.complete(*BASE, "name=run", "trainer.max_steps=3", cwd=folder)
    return folder


@pytest.fixture
def trained(_trained: Path, tmp_path: Path) -> Path:
    """A working folder with the toy corpus and runs/run, which is complete after three updates."""
    return shutil.copytree(_trained, tmp_path, symlinks=True, dirs_exist_ok=True)
