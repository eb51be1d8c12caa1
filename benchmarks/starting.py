"""Measure the translation of one sentence from the shell, and the import of PyTorch alone, in turns."""

import subprocess
import sys
import time
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.race import Spread
from benchmarks.tables import Table
from seq2seq.errors import UserError

ROOT = Path(__file__).parents[1]
TRANSLATE, SENTENCE = "translate.py", "The ball is blue."


def run(model: Path, rounds: int) -> dict[str, Any]:
    """Run every program once to fill the caches, then measure the programs in turns; return JSON values.

    Raises:
        UserError: a program fails.
    """
    translate = [TRANSLATE, "--model", str(model.resolve()), SENTENCE]
    programs = {
        "python -c 'import torch'": ["-c", "import torch"],
        f"python {TRANSLATE}": translate,
        f"python {TRANSLATE} --compile off": [*translate, "--compile", "off"],
    }
    if find_spec("ctranslate2"):
        programs[f"python {TRANSLATE} --engine ctranslate2"] = [*translate, "--engine", "ctranslate2"]
    for arguments in programs.values():
        _seconds(arguments)
    seconds = {name: [0.0] * rounds for name in programs}
    for number in range(rounds):
        for name, arguments in programs.items():
            seconds[name][number] = _seconds(arguments)
    alone = next(iter(seconds.values()))
    ratios = {
        name: Spread.of([one / torch for one, torch in zip(of_name, alone, strict=True)])
        for name, of_name in seconds.items()
    }
    rows = [[name, Spread.of(of_name).show(2), ratios[name].show(2)] for name, of_name in seconds.items()]
    header = ["one sentence from the shell", "seconds (range)", "× import torch (range)"]
    return {"seconds": seconds, "tables": [asdict(Table("Starting", header, rows))]}


def _seconds(arguments: list[str]) -> float:
    start = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"python {' '.join(arguments)} failed: {done.stderr.strip()}")
    return time.perf_counter() - start
