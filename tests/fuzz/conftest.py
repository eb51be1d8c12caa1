"""A folder with a file that no reader may open, and what tells which files are opened."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fuzz.mutating import SECRET
from tests.unit.conftest import bundle_folder, tokenizer

__all__ = ["bundle_folder", "tokenizer"]  # fixtures

_opened: list[str] | None = None


def _listen(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _opened is not None:
        _opened.append(str(arguments[0]))


@pytest.fixture(scope="session")
def watched_files() -> Callable[[], contextlib.AbstractContextManager[list[str]]]:
    """Collect the names of the files that Python opens."""
    sys.addaudithook(_listen)  # stays for as long as the process lives

    @contextlib.contextmanager
    def watch() -> Iterator[list[str]]:
        global _opened
        _opened = []
        try:
            yield _opened
        finally:
            _opened = None

    return watch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to work in, with the secret beside it."""
    folder = tmp_path_factory.mktemp("fuzz")
    (folder.parent / "secret.po").write_text(f'msgid ""\nmsgstr ""\n\nmsgid "{SECRET}"\nmsgstr ""\n', encoding="utf-8")
    return folder
