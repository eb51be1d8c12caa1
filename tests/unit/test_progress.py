"""Bars on a terminal, and plain lines elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
LONG = "runs/" + "a" * 90
PROGRAM = f"""
import logging, os, time
from seq2seq.progress import bar, enable, log_handler, phase
logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[log_handler()], force=True)
enable("HIDDEN" not in os.environ)
try:
    with phase("searching", 200, "sentences") as advance:
        for _ in range(4):
            advance(50)
            time.sleep(0.15)
        with bar("learning"):
            logging.info("{LONG} [bold] :cat:")
            print("a result")
            raise RuntimeError("in a phase")
except RuntimeError as error:
    print(error)
"""
SPAWN = "import pty, sys; pty.spawn(sys.argv[1:])"
COMMAND = [sys.executable, "-c", PROGRAM]
LOGGED = ["searching: 200 sentences", f"{LONG} [bold] :cat:"]


def on_terminal(command: list[str], folder: Path, **environment: str) -> str:
    """Return what a terminal of 80 columns gets, without colours."""
    variables = {**os.environ, "COLUMNS": "80", "TERM": "xterm", **environment}
    spawn = [sys.executable, "-c", SPAWN, *command]
    done = subprocess.run(spawn, cwd=folder, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return re.sub(r"\x1b\[[\d;]*m", "", done.stdout.decode())


def test_a_terminal_gets_bars_with_the_time_left_below_whole_log_lines() -> None:
    shown = on_terminal(COMMAND, REPOSITORY)
    assert re.search(r"searching ━+╺━+ 0:00:0\d left 150 of 200 sentences\r", shown)
    assert re.search(r"\r\nlearning +━+ 0:00:00", shown)  # below the other one
    for line in LOGGED:
        assert re.search(rf"(^|\x1b\[2K)[\d:]{{8}} {re.escape(line)}\r\n", shown)
    assert shown.rindex("\x1b[?25l") < shown.rindex("\x1b[?25h", 0, shown.index("learning"))  # after a signal, too
    assert shown.endswith("\x1b[2K\x1b[?25h\rin a phase\r\n")


def test_pipes_get_plain_lines_and_results_stay_in_their_file(tmp_path: Path) -> None:
    done = subprocess.run(COMMAND, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert [line[9:] for line in done.stderr.splitlines()] == LOGGED
    redirected = ["bash", "-c", 'exec "$@" > out', "", *COMMAND]
    assert "result" not in on_terminal(redirected, tmp_path, PYTHONPATH=str(REPOSITORY))
    assert (tmp_path / "out").read_text() == done.stdout == "a result\nin a phase\n"


@pytest.mark.parametrize(("name", "value", "count"), [("RANK", "1", 0), ("TERM", "dumb", 1), ("HIDDEN", "", 1)])
def test_further_processes_show_no_phases_and_simple_terminals_no_bars(name: str, value: str, count: int) -> None:
    shown = on_terminal(COMMAND, REPOSITORY, **{name: value})
    assert ("searching" in shown) + ("━" in shown) == count


def test_a_run_in_the_background_goes_on_when_its_terminal_is_closed(tmp_path: Path) -> None:
    ours, terminal = os.openpty()
    with (tmp_path / "out").open("w") as out:
        child = subprocess.Popen(COMMAND, cwd=REPOSITORY, stdout=out, stderr=terminal)
    os.close(terminal)
    os.read(ours, 1)
    os.close(ours)
    child.wait(60)
    assert (tmp_path / "out").read_text() == "a result\nin a phase\n"
