"""Pairs in a wrong language are dropped when that is wanted, and only what is long enough and sure."""

from importlib import metadata
from pathlib import Path

import pytest
from preparing import run

from seq2seq.data.clean import LanguageCheck
from seq2seq.settings.data import DataConfig
from tests.refusing import refuses

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
    refuses(r"data.tgt_lang=xx is no language that py3langid knows", LanguageCheck, DataConfig(tgt_lang="xx"))


def test_the_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    refuses(r"needs the package py3langid: pip install -e '.*\[langid\]'$", LanguageCheck, DataConfig())


@pytest.mark.usefixtures("check")
def test_preparation_counts_them_under_their_own_reason(root: Path):
    with (root / "train.tsv").open("a", encoding="utf-8") as file:
        file.write(f"{EN}\t{ES}\n{EN}\t{DE}\n")
    limits = {"language_filter": True, "language_characters": 55}  # made-up words are shorter
    (report,) = run(root, **limits).report["files"]
    assert report["language"] == 1
    (unfiltered,) = run(root).report["files"]
    assert "language" not in unfiltered
