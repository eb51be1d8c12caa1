"""The commands of the benchmarks: their options, and what they print and write."""

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from benchmarks import command
from benchmarks.__main__ import COMMANDS
from benchmarks.command import Options, Results, Table, describe_machine, make_app
from seq2seq.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of a command that measures nothing."""

    data: Path  # folder of texts
    rounds: int = 5  # times that nothing is measured
    # times that the program is killed; 0: never
    kills: int = 2


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The command `nothing` is there; what it was asked for lands here."""
    asked: list[Any] = []

    def run(plan: Plan, device: torch.device) -> Results:
        asked.append((plan, device, torch.get_num_threads()))
        return {"seconds": [1.5]}, [Table("Nothing", ["length"], [["77"]])]

    monkeypatch.setattr(command, "import_module", lambda name: SimpleNamespace(Plan=Plan, run=run, __doc__="Nothing."))
    return asked


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_common_options_and_a_help_for_each_of_its_own(name: str):
    if name not in ("profile", "serving", "files", "attention", "transfers", "scale", "slopes", "documents"):
        pytest.importorskip("transformers", reason="the extra `huggingface` is not installed")
        pytest.importorskip("ctranslate2", reason="the extra `ctranslate2` is not installed")
    told = CliRunner().invoke(make_app(name), ["--help"], env={"COLUMNS": "150"}).output
    assert all(option in told for option in ("--device", "--threads", "--output"))


def test_an_option_is_a_field_and_its_help_the_fields_comment(given: list[Any]):
    told = CliRunner().invoke(make_app("nothing"), ["--help"], env={"COLUMNS": "150"}).output
    assert "Folder of texts." in told
    assert "Times that nothing is measured." in told
    assert "Times that the program is killed; 0: never." in told


def test_a_measurement_is_told_as_markdown_and_written_as_json(given: list[Any], tmp_path: Path):
    threads, output = torch.get_num_threads(), tmp_path / "new" / "a.json"
    options = ["--data", "texts", "--rounds", "2", "--kills", "0", "--device", "cpu", "--threads", "3"]
    try:
        found = CliRunner().invoke(make_app("nothing"), [*options, "--output", str(output)])
    finally:
        torch.set_num_threads(threads)
    assert found.exception is None
    plan = Plan(data=Path("texts"), rounds=2, kills=0, device="cpu", threads=3, output=output)
    assert given == [(plan, torch.device("cpu"), 3)]
    assert "| 77 |" in found.output
    written = json.loads(output.read_text())
    assert written["seconds"] == [1.5]
    assert written["plan"]["rounds"] == 2
    assert "3 threads" in written["machine"]


def test_an_output_folder_receives_a_file_named_as_the_command(given: list[Any], tmp_path: Path):
    assert CliRunner().invoke(make_app("nothing"), ["--data", "x", "--output", str(tmp_path)]).exception is None
    assert (tmp_path / "nothing.json").is_file()


@pytest.mark.parametrize("options", [["--rounds", "0"], ["--kills", "-1"], []])
def test_numbers_below_the_least_and_missing_options_are_refused(given: list[Any], options: list[str]):
    data = ["--data", "x"] if options else []
    assert CliRunner().invoke(make_app("nothing"), [*data, *options]).exit_code == 2
    assert not given


def test_a_device_that_is_not_there_is_refused_before_anything_is_measured(given: list[Any]):
    found = CliRunner().invoke(make_app("nothing"), ["--data", "x", "--device", "abacus"])
    assert isinstance(found.exception, UserError)
    assert "abacus" in str(found.exception)
    assert not given


def test_a_machine_without_transformers_is_described(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True if name == "torch" else None)
    machine = describe_machine(torch.device("cpu"))
    assert f"torch {torch.__version__}" in machine
    assert "transformers" not in machine
