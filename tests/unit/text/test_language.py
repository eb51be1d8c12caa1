"""Pairs in a wrong language are dropped when that is wanted, and only what is long enough and sure."""

import sys
from importlib import metadata
from pathlib import Path

import pytest
from preparing import run

from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig
from seq2seq.text.filters import LanguageCheck, seem_to_be

pytestmark = pytest.mark.slow

EN = "The weather was so bad yesterday that nobody wanted to leave the house."
ES = "Ayer hacía tan mal tiempo que nadie quería salir de la casa."
DE = "Gestern war das Wetter so schlecht, dass niemand das Haus verlassen wollte."


@pytest.fixture(scope="module")
def check() -> LanguageCheck:
    pytest.importorskip("py3langid", reason="the extra langid is not installed")
    return LanguageCheck(DataConfig(language_filter=True))


def test_a_side_in_another_language_does_not_fit_if_it_is_long_enough_and_sure(check: LanguageCheck):
    assert check.fit(EN, ES)
    assert not check.fit(EN, EN.replace("bad", "cold"))
    assert not check.fit(DE, ES)
    assert not check.fit(EN, DE)
    assert check.fit("Guten Morgen, meine Damen", "Good morning, ladies")
    assert check.fit("x = 1; y = 2; z = 3; assert x + y == z; print(z)", "x = 1; y = 2; z = 3; assert x + y == z; (z)")
    bold = LanguageCheck(DataConfig(language_filter=True, language_characters=5))
    assert not bold.fit("Guten Morgen, meine Damen und Herren", ES)


@pytest.mark.usefixtures("check")
def test_an_unknown_language_is_refused():
    with pytest.raises(UserError, match=r"data.tgt_lang=xx is no language that py3langid knows"):
        LanguageCheck(DataConfig(tgt_lang="xx"))


def test_the_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(UserError, match=r"needs the package py3langid: pip install -e '.*\[langid\]'$"):
        LanguageCheck(DataConfig())


def test_english_and_spanish_text_are_told_apart_without_a_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    lines = (Path(__file__).parents[3] / "data/bundled/everyday.train.tsv").read_text(encoding="utf-8").splitlines()
    for start in range(0, 1000, 20):  # every twenty lines are enough
        english, spanish = zip(*(line.split("\t") for line in lines[start : start + 20]), strict=True)
        assert seem_to_be(english, "en", "es")
        assert seem_to_be(spanish, "es", "en")
        assert not seem_to_be(english, "es", "en")
        assert not seem_to_be(spanish, "en", "es")


def test_text_that_may_be_in_either_language_seems_to_be_in_none(monkeypatch: pytest.MonkeyPatch):
    assert not seem_to_be([EN], "en", "es")  # too short
    assert not seem_to_be([DE] * 9, "es", "en")
    assert not seem_to_be(["Barcelona 3, Madrid 2; https://example.org/x?y=1"] * 9, "es", "en")
    assert not seem_to_be([EN, ES] * 9, "en", "es")
    assert not seem_to_be([EN] * 9, "en-GB", "en-US")
    assert not seem_to_be([DE] * 9, "de", "xx")
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    assert not seem_to_be([DE] * 9, "de", "fr")


@pytest.mark.usefixtures("check")
def test_other_languages_are_told_apart_by_the_package():
    assert seem_to_be([DE] * 9, "de-AT", "en")
    assert not seem_to_be([DE] * 9, "en", "de")


@pytest.mark.usefixtures("check")
def test_preparation_counts_them_under_their_own_reason(root: Path):
    with (root / "train.tsv").open("a", encoding="utf-8") as file:
        file.write(f"{EN}\t{ES}\n{EN}\t{DE}\n")
    limits = {"language_filter": True, "language_characters": 55}  # made-up words are shorter
    (report,) = run(root, **limits).report["files"]
    assert report["language"] == 1
    (unfiltered,) = run(root).report["files"]
    assert "language" not in unfiltered
