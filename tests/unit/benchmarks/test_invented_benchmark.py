"""The benchmark of invented words asks hunspell, and says so if it is not installed."""

import shutil

import pytest

from benchmarks.invented import dictionary_words
from tests.refusing import refuses


@pytest.mark.skipif(not shutil.which("hunspell"), reason="hunspell is not installed")
def test_words_of_the_dictionary_are_known_in_a_form_that_the_texts_have() -> None:
    texts = ["Madrid y MADRID, ¿o'neil?", "La casita rarucha; perrúcho 3"]
    assert dictionary_words(texts, "es_ES") == {"madrid", "y", "la", "casita"}
    refuses("no hunspell with the dictionary xx_YY: install both", dictionary_words, texts, "xx_YY")


def test_a_machine_without_hunspell_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    refuses("no hunspell with the dictionary es_ES: install both", dictionary_words, ["la"], "es_ES")
