import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.errors import UserError
from seq2seq.lab.report import to_markdown
from seq2seq.lab.runs import Lab, Run
from seq2seq.lab.verdicts import Difference, compare, judge, read_claims

DOCS = Path(__file__).parents[3] / "docs"


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


values = st.lists(st.floats(0, 100).map(lambda x: round(x, 2)), min_size=2, max_size=5)


@given(values, values)
def test_swapping_the_sides_changes_only_the_sign(ours: list[float], theirs: list[float]) -> None:
    there, back = compare(ours, theirs), compare(theirs, ours)
    assert there is not None
    assert back is not None
    assert (there.value, there.low, there.high) == pytest.approx((-back.value, -back.high, -back.low), abs=1e-6)
    assert there.low <= there.value <= there.high


@pytest.mark.parametrize("series", ["lab", "lab_tatoeba"])
def test_the_documented_tables_follow_from_the_documented_runs(series: str) -> None:
    """Every printed digit is equal; lab.json has no settings, so the test leaves them out."""
    plain = json.loads((DOCS / series / "lab.json").read_text(encoding="utf-8"))
    lab = Lab([Run(**{**run, "losses": [], "validation_losses": []}) for run in plain["runs"]], [])
    verdicts = [verdict for claim in read_claims() if (verdict := judge(claim, lab)) is not None]
    page = re.sub(r"(<br>`[^`]*`)+", "", (DOCS / "lab.md").read_text(encoding="utf-8"))
    rows = [line for line in to_markdown(lab, verdicts, series).splitlines() if line.startswith("| ")]
    assert len(rows) > 5
    assert [row for row in rows if row not in page] == []


def test_without_scipy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "scipy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(UserError, match=r"the lab's report needs the package scipy.*: pip install -e .*\[lab\]"):
        compare([1.0, 2.0], [3.0, 4.0])
