"""Runs listed and compared, as a user asks for it."""

import functools
import json
import os
from pathlib import Path

import pytest
from saved_runs import make_run, settings

from seq2seq.storage.atomic import holder_of, lock, unlock
from seq2seq.training.run_files import LOCK

pytestmark = pytest.mark.slow


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A complete run, a stopped one of a series, one that saved nothing; the last changed first in that order."""
    monkeypatch.chdir(tmp_path)
    folders = [
        make_run(tmp_path / "runs" / "done", results=6),
        make_run(tmp_path / "runs" / "lab" / "half", settings(d_model=32), updates=(4, 6), results=4),
        make_run(tmp_path / "runs" / "empty", updates=()),
    ]
    for age, folder in enumerate(folders):
        for path in folder.rglob("*"):
            os.utime(path, (1e9 - age, 1e9 - age))
    (tmp_path / "runs" / "latest").symlink_to("done")
    return tmp_path / "runs"


@pytest.fixture
def ask(seq2seq):
    return functools.partial(seq2seq, "runs")


@pytest.fixture
def trained_in(runs: Path):
    """The complete run, locked as its training would."""
    lock(runs / "done" / LOCK, "", "")
    yield runs / "done"
    unlock(runs / "done" / LOCK)


def test_all_runs_are_listed_with_what_they_scored(runs: Path, ask, monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, err = ask()
    assert status == 0, err
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["run", "state", "updates", "time", "loss", "BLEU", "test", "BLEU", "size"]
    assert lines[1][:8] == ["done", "complete", "6", "1:02:05", "3.500", "20.2", "everyday", "31.2"]
    assert lines[2][:6] == ["lab/half", "stopped", "6", "0:01:30", "3.500", "20.2"]  # more updates than its results
    assert lines[3][:4] == ["empty", "nothing", "saved", "0"]
    assert len(lines) == 4  # the link is no run
    monkeypatch.setenv("COLUMNS", "60")
    out = ask(terminal=("stdout",))[1]  # a table that is too wide becomes a list
    assert "\nlab/half\n  state: stopped\n  updates: 6\n  time: 0:01:30\n  loss: 3.500\n" in out


def test_a_running_run_and_one_of_another_version_are_listed_too(runs: Path, ask, trained_in: Path) -> None:
    (runs / "empty" / "config.yaml").write_text("model: {unknown_key: 1}\n")
    _, out, _ = ask("--json")
    entries = {entry["name"]: entry for entry in json.loads(out)}
    assert entries["done"]["state"] == "running"
    assert entries["done"]["holder"].startswith(f"{os.getpid()} on ")
    assert entries["empty"]["state"] == "nothing saved"
    assert str(holder_of(trained_in / LOCK)).startswith(f"{os.getpid()} on ")  # a look at the lock leaves it as it is
    (runs / "empty" / "lock").touch()  # of a process that has ended
    assert holder_of(runs / "empty" / LOCK) is None


def test_a_run_with_damaged_files_is_listed_too(runs: Path, ask) -> None:
    (runs / "done" / "results.json").write_bytes(b"[" * 100_000)
    (runs / "done" / "metrics.csv").write_text("step,seconds,val_bleu\n6,3,high\n")
    (runs / "done" / "checkpoints" / "step=².ckpt").touch()
    status, out, err = ask("--json")
    assert (status, err) == (0, "")
    assert {entry["name"] for entry in json.loads(out)} == {"done", "lab/half", "empty"}


def test_the_best_validation_is_the_one_that_training_looks_at(runs: Path, ask) -> None:
    make_run(runs / "by_loss", settings(monitor="loss"), results=6)
    entries = {entry["name"]: entry for entry in json.loads(ask("--json")[1])}
    assert entries["by_loss"]["validation"] == {"updates": 6, "loss": 3.0, "bleu": 18.5}
    assert entries["done"]["validation"] == {"updates": 4, "loss": 3.5, "bleu": 20.25}
    assert entries["done"]["tests"] == {"everyday": 31.25}
    assert entries["done"]["parameters"] == 1_600_000
    folder = runs / "done" / "checkpoints"
    os.link(folder / "step=0000006.ckpt", folder / "best-step=0000006-val_bleu=20.25.ckpt")
    again = {entry["name"]: entry for entry in json.loads(ask("--json")[1])}
    assert again["done"]["bytes"] == entries["done"]["bytes"] > 1000  # a second name takes no space


def test_runs_are_compared_by_scores_and_by_settings_that_differ(runs: Path, ask) -> None:
    status, out, err = ask("done", "runs/lab/half/")
    assert status == 0, err
    rows = {line.split("  ")[0].strip(): line.split()[-2:] for line in out.splitlines() if line.strip()}
    assert rows["model.d_model"] == ["64", "32"]
    assert rows["time"] == ["1:02:05", "0:01:30"]
    assert rows["parameters"] == ["1,600,000", "1,600,000"]
    assert not [key for key in rows if key.startswith(("name", "training."))]
    first, second = json.loads(ask("done", "lab/half", "--json")[1])
    assert first["differing_settings"] == {"model.d_model": 64}
    assert second["differing_settings"] == {"model.d_model": 32}


def test_names_that_are_no_runs_are_refused(runs: Path, ask) -> None:
    assert ask("none")[2] == "error: there is no run none: `seq2seq runs` lists their names\n"
    assert "--runs elsewhere has no run: train one with `python train.py`" in ask("--runs", "elsewhere")[2]


def test_seeds_are_one_row_with_mean_and_deviation_and_losses_one_picture(runs: Path, ask, tmp_path: Path) -> None:
    for seed, bleu in ((1, 30.0), (2, 33.0)):
        config = settings(d_model=48)
        config.seed = seed
        folder = make_run(tmp_path / "elsewhere" / f"{'x' * 40}-seed_{seed}", config, results=6)
        results = json.loads((folder / "results.json").read_text())
        results["scores"]["everyday"]["bleu"]["value"] = bleu
        (folder / "results.json").write_text(json.dumps(results))
    names = [str(path) for path in sorted((tmp_path / "elsewhere").iterdir())]
    status, out, err = ask("done", *names, "--seeds", "--plot", "losses.png")
    assert status == 0, err
    lines = [line.split() for line in out.splitlines()]
    assert lines[1][:2] == ["done", "1"]
    assert lines[2][0].endswith("…xxxxxxxxxxxxx-seed_1")
    assert lines[2][1:] == ["and", "1", "more", "2", "3.500", "±", "0.000", "20.2", "±", "0.0", "31.5", "±", "2.1"]
    assert Path("losses.png").read_bytes().startswith(b"\x89PNG")
