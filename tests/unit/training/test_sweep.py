"""A sweep's table and its best run, from the folders that its runs left."""

import json
from pathlib import Path

import pytest
from rich.console import Console
from saved_runs import make_run, settings

from seq2seq.training.sweep import FILE, VARIABLE, finish_sweep, note_run

pytestmark = pytest.mark.slow


def make_swept(folder: Path, monitor: str, bleu: float, loss: float, *overrides: str, results: int | None = 6) -> None:
    make_run(folder, settings(monitor=monitor), results=results)
    (folder / "metrics.csv").write_text(f"step,val_loss,val_bleu\n6,{loss},{bleu}\n")
    note_run(folder, ["data=files", f"name={folder.name}", *overrides])


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, "another")
    make_swept(tmp_path / "stranger", "bleu", 99.0, 0.1)
    monkeypatch.setenv(VARIABLE, "mine")
    return tmp_path


def table(runs: Path) -> list[list[str]]:
    table_and_best = finish_sweep(runs, "mine")
    assert table_and_best is not None
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table_and_best[0])
    rows = [line.replace("┃", "│").split("│") for line in capture.get().splitlines() if "│" in line or "┃" in line]
    return [[cell.strip() for cell in row[1:-1]] for row in rows]


def test_outside_a_sweep_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    note_run(tmp_path, ["seed=1"])
    assert not (tmp_path / FILE).exists()
    assert finish_sweep(tmp_path, "mine") is None


def test_runs_are_listed_with_what_differs_the_best_first(runs: Path) -> None:
    make_swept(runs / "d", "bleu", 20.0, 2.9, "seed=4")
    make_swept(runs / "a", "bleu", 20.0, 3.0, "seed=1")
    make_swept(runs / "b", "bleu", 25.0, 3.5, "seed=2", "data.train=[x.tsv]")
    make_swept(runs / "c", "bleu", 30.0, 2.0, "seed=3", results=None)
    assert table(runs) == [
        ["run", "changed", "BLEU ↑", "loss ↓", "everyday BLEU ↑"],
        ["b", "seed=2 data.train=[x.tsv]", "25.0", "3.500", "31.2"],
        ["d", "seed=4", "20.0", "2.900", "31.2"],
        ["a", "seed=1", "20.0", "3.000", "31.2"],
        ["c (stopped)", "seed=3", "30.0", "2.000", ""],
    ]
    assert (runs / "best").readlink() == Path("b")
    assert json.loads((runs / "best" / FILE).read_text())["sweep"] == "mine"


def test_the_best_is_the_one_of_least_loss_where_training_looks_at_the_loss(runs: Path) -> None:
    make_swept(runs / "lab" / "a", "loss", 20.0, 3.0, "seed=1")
    make_swept(runs / "lab" / "b", "loss", 25.0, 3.5, "seed=2")
    (runs / "best").symlink_to("stranger")  # of an earlier sweep
    assert [row[0] for row in table(runs)[1:]] == ["lab/a", "lab/b"]
    assert (runs / "best").resolve() == (runs / "lab" / "a").resolve()


def test_without_a_complete_run_there_is_no_best(runs: Path) -> None:
    make_swept(runs / "a", "bleu", 20.0, 3.0, "seed=1", results=None)
    assert table(runs)[1][:2] == ["a (stopped)", "data=files seed=1"]
    assert not (runs / "best").is_symlink()
