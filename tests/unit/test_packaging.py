"""What the wheel holds is listed in pyproject.toml; conf/ and the bundled corpus are found wherever they lie."""

import re
import tomllib
from pathlib import Path

import yaml

import seq2seq
from seq2seq.settings import compose

REPOSITORY = Path(__file__).parents[2]
SETTINGS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]


def test_every_package_is_in_the_wheel():
    folders = {path.parent.relative_to(REPOSITORY) for path in REPOSITORY.glob("seq2seq/**/*.py")}
    shipped = {"seq2seq.shipped.conf", "seq2seq.shipped.data"}
    assert set(SETTINGS["packages"]) == {".".join(folder.parts) for folder in folders} | shipped


def test_every_file_of_a_package_is_in_the_wheel():
    """All files that are no Python have a pattern, in conf/ and in the corpus too."""
    folders = {"seq2seq": "seq2seq", **SETTINGS["package-dir"]}
    files = [path for path in REPOSITORY.glob("seq2seq/**/*.*") if path.is_file()]
    expected = {path for path in files if path.suffix not in (".py", ".pyc")}
    expected |= {*REPOSITORY.glob("conf/**/*.yaml"), *REPOSITORY.glob("data/bundled/*"), REPOSITORY / "data/README.md"}
    shipped = {
        path
        for package, patterns in SETTINGS["package-data"].items()
        for pattern in patterns
        for path in (REPOSITORY / folders[package]).glob(pattern)
    }
    assert expected - shipped == set()


def test_the_citation_and_the_changelog_name_the_version():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == seq2seq.__version__
    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    (heading,) = re.findall(rf"^## {re.escape(seq2seq.__version__)} — (.+)$", changelog, re.MULTILINE)
    assert heading == str(citation.get("date-released", "unreleased"))


def test_home_is_the_clone_or_a_folder_of_the_wheel_or_what_the_environment_names(monkeypatch, tmp_path):
    monkeypatch.delenv("SEQ2SEQ_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert compose.home() == REPOSITORY
    (tmp_path / "conf").mkdir()  # another project's, at the top of site-packages
    (tmp_path / "seq2seq" / "shipped" / "conf").mkdir(parents=True)
    monkeypatch.setattr(compose, "__file__", str(tmp_path / "seq2seq" / "settings" / "compose.py"))
    assert compose.home() == tmp_path / "seq2seq" / "shipped"
    monkeypatch.setenv("SEQ2SEQ_HOME", str(tmp_path))
    assert compose.home() == tmp_path
