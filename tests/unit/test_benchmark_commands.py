"""The commands of the benchmarks: their options, and what they print and write."""

import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from benchmarks import command
from benchmarks.command import Options, Results, Table, make_app
from seq2seq.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of a command that measures nothing."""

    data: Path  # folder of texts
    # times that the program is killed; 0: never
    kills: int = 2


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Add the command `nothing`; the list receives the plan, device and threads of each measurement."""
    plans: list[Any] = []

    def run(plan: Plan, device: torch.device) -> Results:
        plans.append((plan, device, torch.get_num_threads()))
        return {"seconds": [1.5]}, [Table("Nothing", ["length"], [["77"]])]

    monkeypatch.setattr(command, "import_module", lambda name: SimpleNamespace(Plan=Plan, run=run, __doc__="Nothing."))
    return plans


def call(*options: str, name: str = "nothing") -> Result:
    threads = torch.get_num_threads()
    try:
        return CliRunner().invoke(make_app(name), options, env={"COLUMNS": "150"})
    finally:
        torch.set_num_threads(threads)


def test_a_measurement_is_printed_as_markdown_and_written_as_json(plans: list[Any], tmp_path: Path):
    output = tmp_path / "new" / "a.json"
    options = ["--data", "texts", "--kills", "0", "--device", "cpu", "--threads", "3", "--output", str(output)]
    result = call(*options)
    plan = Plan(data=Path("texts"), kills=0, device="cpu", threads=3, output=output)
    assert plans == [(plan, torch.device("cpu"), 3)]
    assert "| 77 |" in result.output
    written = json.loads(output.read_text())
    assert (written["seconds"], written["plan"]["kills"]) == ([1.5], 0)
    assert f"torch {version('torch')}" in written["machine"]
    assert "3 threads" in written["machine"]
    assert call("--data", "x", "--output", str(tmp_path)).exception is None
    assert (tmp_path / "nothing.json").is_file()


@pytest.mark.parametrize("options", [["--data", "x", "--kills", "-1"], [], ["--data", "x", "--device", "abacus"]])
def test_impossible_and_missing_options_are_refused_before_the_measurement(plans: list[Any], options: list[str]):
    result = call(*options)
    assert not plans
    if "abacus" in options:
        assert isinstance(result.exception, UserError)
        assert "abacus" in str(result.exception)
    else:
        assert result.exit_code == 2
