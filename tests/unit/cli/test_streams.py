"""Standard streams that are closed, full, cut short or of another encoding, under whole programs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.system, pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")]
COMMANDS = {
    "translate": "translate.py --model MODEL --device cpu --beam 1 'The cat.'",
    "interactive": "translate.py --model MODEL --device cpu --interactive < sources",
    "filter": "translate.py --model MODEL --device cpu --beam 1 < sources",
    "help": "translate.py --help",
    "training": "train.py --help",
    "runs": "-c 'from seq2seq.cli import main; main()' runs --help",
}


def shell(bundle_folder: Path, folder: Path, command: str, **environment: str) -> tuple[int, bytes, list[str]]:
    (folder / "sources").write_text("The cat.\n«El niño» ☃\n" * 50, encoding="utf-8")
    words = command.replace("MODEL", str(bundle_folder)).replace("sources", str(folder / "sources"))
    ended = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} {words}"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
    )
    return ended.returncode, ended.stdout, ended.stderr.decode().splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_an_output_that_cannot_be_written_is_one_line(bundle_folder: Path, tmp_path: Path, command: str) -> None:
    for ending, reason in ((">/dev/full", "No space left on device"), (">&-", "it is closed")):
        status, _, errors = shell(bundle_folder, tmp_path, f"{COMMANDS[command]} {ending}")
        assert status == 1
        advice = "free the disk, or send the output elsewhere"
        assert errors == [f"error: stdout cannot be written ({reason}): {advice}"]


@pytest.mark.parametrize("command", ["filter", "training"])
def test_a_reader_that_ends_early_ends_the_command_quietly(bundle_folder: Path, tmp_path: Path, command: str) -> None:
    assert shell(bundle_folder, tmp_path, f"{COMMANDS[command]} | head -c 1 > /dev/null")[2] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_locale_reads_and_writes_utf8(bundle_folder: Path, tmp_path: Path, command: str) -> None:
    usual = shell(bundle_folder, tmp_path, COMMANDS[command])
    assert usual[0] == 0
    for changes in ({"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}):
        assert shell(bundle_folder, tmp_path, COMMANDS[command], **changes) == usual


def test_closed_inputs_and_errors_are_empty(bundle_folder: Path, tmp_path: Path) -> None:
    assert shell(bundle_folder, tmp_path, f"{COMMANDS['interactive']} <&- 2>&-") == (0, b"", [])
