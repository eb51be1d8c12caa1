"""Runs a document through translation with words that are easy to foresee."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from seq2seq.documents.document import translate_document

Run = Callable[..., str]


def shout(texts: Sequence[str]) -> list[str]:
    """Translate into capitals, which spoils every placeholder that is given away."""
    return [text.upper() for text in texts]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Translate a document given as text, by default into capitals."""

    def translate(name: str, text: str, model: Callable[[Sequence[str]], list[str]] = shout) -> str:
        path_in, path_out = tmp_path / f"in{name}", tmp_path / f"out{name}"
        path_in.write_bytes(text.encode())
        translate_document(path_in, path_out, model, "en", "es")
        return path_out.read_bytes().decode()

    return translate
