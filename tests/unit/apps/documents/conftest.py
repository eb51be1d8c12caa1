"""Runs a document through translation with words that are easy to foresee."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from shouting import shout

from seq2seq.apps.documents.document import translate_document

Run = Callable[..., str]
Model = Callable[[Sequence[str]], Sequence[str | tuple[str, list[tuple[int, int]]]]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Translate a document given as text, by default into capitals."""

    def translate(name: str, text: str, model: Model = lambda texts: list(map(shout, texts))) -> str:
        def words(texts: Sequence[str], align: bool) -> list[tuple[str, list[tuple[int, int]] | None]]:
            return [one if isinstance(one, tuple) else (one, None) for one in model(texts)]

        path_in, path_out = tmp_path / f"in{name}", tmp_path / f"out{name}"
        path_in.write_bytes(text.encode())
        translate_document(path_in, path_out, words, "en", "es")
        return path_out.read_bytes().decode()

    return translate
