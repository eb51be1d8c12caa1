"""Training, validation and test pairs of Tatoeba's export."""

import bz2
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tatoeba import main, read_export, split

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


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Return a function that runs the command; it returns status, stdout and stderr."""

    def call(paths: dict[str, Path], *options: str) -> tuple[Any, ...]:
        words = ["tatoeba.py", "--sentences", paths["eng"], paths["spa"], "--links", paths["links"]]
        words += ["--test", paths["test.eng"], paths["test.spa"], "--output", tmp_path / "out", *options]
        monkeypatch.setattr(sys, "argv", [str(word) for word in words])
        try:
            main()
        except SystemExit as end:
            return end.code, *capsys.readouterr()
        return 0, *capsys.readouterr()

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
        splits.append(split(read_export(paths["eng"], paths["spa"], paths["links"]), [], 10))
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
