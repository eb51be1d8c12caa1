"""docs/why.ipynb is docs/why.md, and the code of both prints what both show."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs._ext import why
from tests.documented import REPOSITORY

MARKDOWN = why.TEXT.read_text(encoding="utf-8")
NUMBER = re.compile(r"-?\d+\.\d+")
RUN = """
import json, sys
from docs._ext import why
print(json.dumps(why.run(why.TEXT.read_text(encoding="utf-8"))[0]))
"""


def test_the_notebook_is_the_text_as_it_is_now() -> None:
    assert why.NOTEBOOK.read_text(encoding="utf-8") == why.notebook(MARKDOWN), "run python -m docs._ext.why"


def test_the_measurements_are_those_of_the_lab() -> None:
    """Every name of an experiment with its difference and interval is a row of docs/lab.md."""
    lab = (REPOSITORY / "docs/lab.md").read_text(encoding="utf-8")
    quoted = re.findall(r"\(`(\w+)`, ([−+][\d.]+), ([−+][\d.]+) to\s+([−+][\d.]+)", MARKDOWN)
    assert len(quoted) >= 8
    for name, *numbers in quoted:
        difference, low, high = (number.replace("−", "-") for number in numbers)
        assert re.search(rf"^\| {name}<br>.*{re.escape(f'{difference} ({low} to {high})')}", lab, re.M), name


@pytest.mark.slow
def test_the_code_prints_what_the_text_says(tmp_path: Path) -> None:
    """In any folder; numbers may differ by rounding, which depends on the processor."""
    (tmp_path / "data").symlink_to(REPOSITORY / "data")
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    ran = subprocess.run(
        [sys.executable, "-c", RUN], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    documented = [cell.output for cell in why.cells(MARKDOWN) if cell.kind == "code"]
    for printed, output in zip(json.loads(ran.stdout), documented, strict=True):
        assert NUMBER.sub("#", printed) == NUMBER.sub("#", output)
        numbers = [[float(number) for number in NUMBER.findall(text)] for text in (printed, output)]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.01, abs=0.02)
