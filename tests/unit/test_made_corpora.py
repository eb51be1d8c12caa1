"""The programs of data/ that make corpora of downloads, and the table of their sources."""

import bz2
import json
import lzma
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpora
import polib
import pytest
import tatoeba
import yaml

from seq2seq.settings.compose import compose
from tests.documented import REPOSITORY

PAIRS = [(f"Sentence {number}.", f"Oración {number}.") for number in range(100)]


def write_export(folder: Path, pairs: list[tuple[str, str]]) -> dict[str, Path]:
    """Write compressed sentences and links as Tatoeba does, and a test set of two files."""
    paths = {name: folder / f"{name}.tsv.bz2" for name in ("eng", "spa", "links")}
    paths |= {name: folder / name for name in ("test.eng", "test.spa")}
    rows = {"eng": [], "spa": [], "links": []}
    for number, (source, target) in enumerate(pairs):
        rows["eng"].append(f"{number}\teng\t{source}")
        rows["spa"].append(f"{number + 1000}\tspa\t{target}")
        rows["links"].append(f"{number}\t{number + 1000}")
    rows["links"].append("5\t77777")  # a sentence that was deleted meanwhile
    for name, lines in rows.items():
        paths[name].write_bytes(bz2.compress("".join(f"{line}\n" for line in lines).encode()))
    paths["test.eng"].write_text("Sentence 3.\nNever seen.\n", encoding="utf-8")
    paths["test.spa"].write_text("Otra.\nOración 4.\n", encoding="utf-8")
    return paths


def status(main: Callable[[list[str]], None], *words: object) -> object:
    try:
        main([str(word) for word in words])
    except SystemExit as end:
        return end.code
    return 0


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Return a function that runs the command; it returns status, stdout and stderr."""

    def call(paths: dict[str, Path], *options: str) -> tuple[Any, ...]:
        words = ["--sentences", paths["eng"], paths["spa"], "--links", paths["links"]]
        words += ["--test", paths["test.eng"], paths["test.spa"], "--output", tmp_path / "out", *options]
        return status(tatoeba.main, *words), *capsys.readouterr()

    return call


def test_the_command_writes_three_files_that_share_no_side(tmp_path: Path, run: Callable[..., Any]) -> None:
    again = ("Sentence 8.", "Otra oración 8.")  # a second translation
    status, out, err = run(write_export(tmp_path, [*PAIRS, again]), "--validation-pairs", "20")
    assert status == 0, err
    splits = {}
    for name in ("train", "validation", "test"):
        lines = (tmp_path / "out" / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
        splits[name] = [line.split("\t") for line in lines]
        assert f"{name}.tsv: {len(lines)} pairs" in out
    assert splits["test"] == [["Sentence 3.", "Otra."], ["Never seen.", "Oración 4."]]
    assert len(splits["validation"]) == 20
    assert len(splits["train"]) in (78, 79)  # 101 - 2 - 20, and perhaps the other translation
    for name, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        for side in (0, 1):
            assert not {pair[side] for pair in splits[name]} & {pair[side] for pair in splits[other]}


def test_the_same_pairs_are_held_out_in_any_order_of_the_export(tmp_path: Path) -> None:
    splits = []
    for pairs in (PAIRS, PAIRS[::-1]):
        paths = write_export(tmp_path, pairs)
        splits.append(tatoeba.split(tatoeba.read_export(paths["eng"], paths["spa"], paths["links"]), [], 10))
    assert splits[0] == splits[1]
    assert splits[0][1] != PAIRS[:10]


def test_other_files_are_refused_in_one_line(tmp_path: Path, run: Callable[..., Any]) -> None:
    paths = write_export(tmp_path, PAIRS)
    cut, binary, empty = tmp_path / "cut.bz2", tmp_path / "binary.bz2", tmp_path / "empty.tsv"
    cut.write_bytes(paths["eng"].read_bytes()[:100])
    binary.write_bytes(bz2.compress(b"\xff\xfe\x00"))
    empty.touch()
    failed, tabs = tmp_path / "404", tmp_path / "tabs"
    failed.write_text("404: Not Found")
    tabs.write_text("Una.\tDos.\nTres.\n")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"eng": cut}, "cut.bz2 cannot be read"),
        ({"spa": binary}, "binary.bz2 is not UTF-8 text"),
        ({"links": empty}, "empty.tsv links no sentence of"),
        ({"eng": paths["links"]}, "line 1 has 2 columns instead of 3"),
        ({"spa": tmp_path / "none.tsv"}, "No such file"),
        ({"test.spa": paths["eng"]}, "test.eng has 2 lines and "),
        ({"test.eng": failed, "test.spa": failed}, "404 have no translations"),
        ({"test.spa": tabs}, "tabs has a line with a tab"),
        ({"--validation-pairs": 1000}, "is left to train on"),
    ]
    for changes, message in cases:
        number = changes.pop("--validation-pairs", 20)
        status, _, err = run(paths | changes, f"--validation-pairs={number}")
        assert status == 2
        assert message in err.splitlines()[-1]
        assert "data/README.md" in err
    for count in ("-1", "many"):
        assert f"{count} is no number of pairs" in run(paths, f"--validation-pairs={count}")[2]


ENGLISH = {"cat": "The <b>cat</b>.<br>It sleeps &amp; eats.", "ok": "OK", "dog": "Dog"}
SPANISH = {"cat": "El <b>gato</b>.<br>Duerme y come.", "ok": "OK"}  # of the dog, nothing


def po(messages: dict[str, str]) -> str:
    return "".join(f'msgid "{key}"\nmsgstr "{text}"\n\n' for key, text in messages.items())


def properties(messages: dict[str, str]) -> str:
    return "# A comment\n\n" + "".join(f"{key} = {text[:5]}\\\n  {text[5:]}\n" for key, text in messages.items())


TRANSLATED = po({text: SPANISH.get(key, "") for key, text in ENGLISH.items()})
EN_ES = (("en", ENGLISH), ("es", SPANISH))
MESSAGES = {
    "adarkroom": {"lang/es/a.po": TRANSLATED + '#, fuzzy\nmsgid "Bird"\nmsgstr "Pez"\n'},
    "kstars": {"locale/es/LC_MESSAGES/a.mo": TRANSLATED},
    "cal_itp": {f"benefits/locale/{language}/a/a.po": po(messages) for language, messages in EN_ES},
    "xquad": {f"xquad.{language}.json": json.dumps({"data": [messages]}) for language, messages in EN_ES},
    "us_tax_help": {f"config/locales/{name}.yml": yaml.dump({name: messages}) for name, messages in EN_ES},
    "mnbenefits": {
        f"src/main/resources/messages{end}.properties": properties(m) for end, m in (("", ENGLISH), ("_es", SPANISH))
    },
}


@pytest.mark.parametrize("name", MESSAGES)
def test_translated_messages_become_pairs_without_markup(name: str, tmp_path: Path):
    for file, text in MESSAGES[name].items():
        path = tmp_path / "project" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if path.suffix == ".mo":
            polib.pofile(text).save_as_mofile(str(path))
    assert status(corpora.main, name, tmp_path / "project", "--output", tmp_path / "made") == 0
    made = lzma.decompress((tmp_path / "made" / f"{name}.tsv.xz").read_bytes())
    assert made.decode() == "The cat. It sleeps & eats.\tEl gato. Duerme y come.\n"


def test_a_damaged_file_or_none_is_one_line_and_every_corpus_has_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    unreadable = "xquad.es.json cannot be read: "
    for text, message in (("{}", "no translated message in"), ("{", unreadable), ("[]", f"{unreadable}it is no table")):
        (tmp_path / "xquad.es.json").write_text(text)
        assert status(corpora.main, "xquad", tmp_path) == 2
        assert message in capsys.readouterr().err.splitlines()[-1]
    assert status(corpora.main, "--commands") == 0
    commands = capsys.readouterr().out
    assert re.findall("^python data/corpora.py (.*) downloads/", commands, re.M) == list(corpora.CORPORA)


def test_the_table_has_every_corpus_of_the_recipe_and_of_the_model_card():
    table = dict(re.findall(r"^\| ([a-z0-9_]+) \|.*\| (●?) ?\|$", (REPOSITORY / "data/README.md").read_text(), re.M))
    assert {name for name, mark in table.items() if mark} == set(corpora.CORPORA)
    card = (REPOSITORY / "data/model/README.md").read_text().partition("## Recipe")[0]
    weighed = {name for name in compose(["data=mixed_cpu"]).data.weights if not re.search("news.*[0-9]", name)}
    assert weighed - {"tatoeba", "everyday"} <= set(table) <= set(re.findall(r"[a-z0-9_]+", card))
