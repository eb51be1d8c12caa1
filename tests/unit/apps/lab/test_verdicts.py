import json
import re
from pathlib import Path

import pytest

from seq2seq.apps.lab.report import to_markdown
from seq2seq.apps.lab.runs import Difference, Lab, LabRun, compare, judge, read_claims

DOCS = Path(__file__).parents[4] / "docs"


def test_the_interval_is_welchs() -> None:
    """By hand: standard error 1.4300, 4.9989 degrees of freedom, t 2.5708."""
    difference = compare([71.2, 69.8, 72.9], [75.1, 78.3, 80.4, 77.0])
    assert difference is not None
    assert (difference.value, difference.low, difference.high) == pytest.approx((-6.4, -10.0763, -2.7237), abs=1e-4)
    assert difference.direction() == "lower"


def test_few_or_equal_values() -> None:
    assert compare([1.0], [2.0, 3.0]) is None
    assert compare([0.0, 0.0], [2.0, 2.0]) == Difference(-2.0, -2.0, -2.0)
    same = compare([2.0, 2.0], [2.0, 2.0])
    assert same is not None
    assert same.direction() == "open"


@pytest.mark.parametrize("series", ["lab", "lab_tatoeba"])
def test_the_documented_tables_follow_from_the_documented_runs(series: str) -> None:
    """Every printed digit is equal; lab.json has no settings, so the test leaves them out."""
    plain = json.loads((DOCS / series / "lab.json").read_text(encoding="utf-8"))
    lab = Lab([LabRun(**{**run, "losses": [], "validation_losses": []}) for run in plain["runs"]], [])
    verdicts = [verdict for claim in read_claims() if (verdict := judge(claim, lab)) is not None]
    page = re.sub(r"(<br>`[^`]*`)+", "", (DOCS / "lab.md").read_text(encoding="utf-8"))
    rows = [line for line in to_markdown(lab, verdicts, series).splitlines() if line.startswith("| ")]
    assert len(rows) > 5
    assert [row for row in rows if row not in page] == []
