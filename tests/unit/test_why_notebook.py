"""docs/why.ipynb is docs/why.md, and the code of both runs on the stored bundle and prints what the text claims."""

import ast
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
def test_the_code_runs_on_the_stored_bundle_and_prints_what_is_claimed(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/golden").symlink_to(REPOSITORY / "tests/golden")  # and no runs/tatoeba_cpu
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    ran = subprocess.run(
        [sys.executable, "-c", RUN], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    outputs = json.loads(ran.stdout)
    documented = [cell.output for cell in why.cells(MARKDOWN) if cell.kind == "code"]
    claims = [re.findall(r"^.*: (?:True|False)$", "".join(texts), re.M) for texts in (outputs, documented)]
    assert claims[0] == claims[1]  # what holds for the trained model holds for this one
    printed = "".join(outputs)
    mask = search(r"(?s)tensor\(\[\[(.*?)\]\]", printed)
    rows = [[int(number) for number in re.findall(r"\d", row)] for row in mask.split("],")]
    assert rows == [[int(column <= row) for column in range(5)] for row in range(5)]
    assert "with the mask, predictions change by 0.00" in printed
    assert float(search(r"without the mask, by ([\d.]+)", printed)) > 0
    for name in ("without positions", "without cross-attention"):
        first, second = ast.literal_eval(search(rf"{name}: (\[.*\])", printed))
        assert first.rstrip(".") == second.rstrip(".")  # the tiny model repeats dots up to the length limit


def search(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match is not None, pattern
    return match[1]
