import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

pytest.importorskip("transformers", reason="the extra `bench` is not installed")

from benchmarks.__main__ import app
from benchmarks.machine import describe_machine, in_words
from seq2seq.errors import UserError

MEASURING = (
    "training",
    "profile",
    "decoding",
    "shortlist",
    "equality",
    "attention",
    "cost",
    "transfers",
    "starting",
    "files",
    "workers",
    "serving",
    "hostile",
    "all",
)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Attention is not measured; what it was asked for lands here."""
    asked: list[Any] = []

    def run(*arguments: Any) -> dict[str, Any]:
        asked.append((*arguments, torch.get_num_threads()))
        return {"times": [1.5], "tables": [{"title": "Attention", "header": ["length"], "rows": [["77"]]}]}

    monkeypatch.setattr("benchmarks.attention.run", run)
    return asked


@pytest.mark.parametrize("command", MEASURING)
def test_every_measurement_has_the_options_of_all(command: str):
    told = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "150"}).output
    assert all(option in told for option in ("--device", "--threads", "--output", "--markdown"))
    assert "--where" not in told


def test_a_measurement_is_told_as_markdown_and_written_as_json(given: list[Any], tmp_path: Path):
    threads = torch.get_num_threads()
    options = ["--rounds", "2", "--device", "cpu", "--precision", "32-true", "--threads", "3", "--markdown"]
    try:
        found = CliRunner().invoke(app, ["attention", *options, "--output", str(tmp_path / "new" / "a.json")])
    finally:
        torch.set_num_threads(threads)
    assert found.exception is None
    assert given == [(2, torch.device("cpu"), "32-true", 3)]
    assert "| 77 |" in found.output
    written = json.loads((tmp_path / "new" / "a.json").read_text())
    assert written["attention"] == {"times": [1.5]}
    assert written["machine"]["threads"] == 3


def test_a_device_that_is_not_there_is_refused_before_anything_is_measured(given: list[Any]):
    found = CliRunner().invoke(app, ["attention", "--device", "abacus"])
    assert isinstance(found.exception, UserError)
    assert "abacus" in str(found.exception)
    assert not given


def test_a_machine_without_transformers_is_described(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    machine = describe_machine(torch.device("cpu"))
    assert machine["transformers"] is None
    assert "transformers" not in in_words(machine)
