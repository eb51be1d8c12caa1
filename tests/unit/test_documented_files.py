"""Every file of the project that README.md and docs/ name is there."""

import re
from pathlib import Path

import pytest

from tests.documented import PAGES

REPOSITORY = Path(__file__).parents[2]
ROOMS = "|".join(path.name for path in (REPOSITORY / "seq2seq").iterdir() if path.is_dir())
NAMED = re.compile(rf"`((?:seq2seq|tests|conf|benchmarks|data|docs|{ROOMS})/[\w/.-]+?\.(?:py|yaml|md|json|tsv))`")
TEXTS = [REPOSITORY / "README.md", REPOSITORY / "data/README.md", *PAGES]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.relative_to(REPOSITORY).as_posix())
def test_files_that_are_named_are_there(text: Path):
    missing = [
        name
        for name in NAMED.findall(text.read_text(encoding="utf-8"))
        if not any((folder / name).exists() for folder in (REPOSITORY, REPOSITORY / "seq2seq"))
    ]
    assert missing == []
