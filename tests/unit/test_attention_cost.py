import json
import math
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from typer.testing import CliRunner

from benchmarks import cost
from benchmarks.__main__ import app
from benchmarks.attention import FORMS, HEADS, random_text
from benchmarks.cost import Cost, draw_costs, measure, table
from benchmarks.peak import measure_peak
from seq2seq.errors import UserError

CPU = torch.device("cpu")
COSTS = [
    Cost("fused", [1024, 2048], [0.01, 0.04], [1_000_000, 2_000_000]),
    Cost("open", [1024, 2048], [0.02, 0.08], [30_000_000, 120_000_000]),
]


def test_both_forms_compute_the_same() -> None:
    inputs = random_text(50, CPU)
    assert_close(FORMS["open"](*inputs), FORMS["fused"](*inputs))


def test_exponents_are_found_where_they_are_known() -> None:
    lengths = [64, 1024, 2048, 4096]
    made = Cost("open", lengths, [5e-9 * n**2 for n in lengths], [3 * n for n in lengths])
    assert made.exponent(made.seconds) == pytest.approx(2)
    assert made.exponent(made.bytes) == pytest.approx(1)
    bent = Cost("open", lengths, [1.0, *(1e-6 * n**1.5 for n in lengths[1:])], [0, 0, 0, 7])
    assert bent.exponent(bent.seconds) == pytest.approx(1.5)
    assert math.isnan(bent.exponent(bent.bytes))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the mark of memory cannot be reset")
def test_the_open_computation_s_peak_is_its_two_matrices() -> None:
    """Scores and weights, N × N floats a head, are there at once; the fused kernel has neither."""
    length = 1024
    matrix = HEADS * length * length * 4
    assert measure_peak("open", length, CPU) == pytest.approx(2 * matrix, rel=0.1)
    assert measure_peak("fused", length, CPU) < matrix / 2


def test_a_measurement_that_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"memory of odd attention over 8 positions cannot be measured: KeyError"):
        measure_peak("odd", 8, CPU)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UserError, match=r"cannot be measured: it was killed: too little memory"):
        measure_peak("open", 8, CPU)


def test_every_form_is_measured_at_every_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "measure_peak", lambda form, length, device: length * len(form))
    costs = measure(2, CPU, (8, 16))
    assert [made.form for made in costs] == ["fused", "open"]
    for made in costs:
        assert made.lengths == [8, 16]
        assert all(second > 0 for second in made.seconds)
        assert made.bytes == [8 * len(made.form), 16 * len(made.form)]


def test_the_table_has_a_line_for_each_length_and_the_exponents() -> None:
    lines = table(COSTS).to_markdown().splitlines()
    assert lines[0] == "| positions | fused ms | fused MB | open ms | open MB |"
    assert lines[3] == "| 2,048 | 40.00 | 2.0 | 80.00 | 120.0 |"
    assert lines[4] == "| exponent from 1,024 on | 2.00 | 1.00 | 2.00 | 2.00 |"


def test_the_command_writes_the_picture_and_the_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "measure", lambda *arguments: COSTS)
    picture, values = tmp_path / "new" / "cost.png", tmp_path / "cost.json"
    found = CliRunner().invoke(app, ["cost", "--device", "cpu", "--picture", str(picture), "--output", str(values)])
    assert found.exception is None
    assert "exponent from 1,024 on" in found.output
    assert picture.stat().st_size > 10_000
    assert json.loads(values.read_text())["cost"]["costs"][1]["bytes"] == [30_000_000, 120_000_000]


def test_a_picture_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write --picture"):
        draw_costs(COSTS, tmp_path / "file" / "cost.png")
    with pytest.raises(UserError, match="cannot write --picture"):
        draw_costs(COSTS, tmp_path / "cost.odd")


def test_a_picture_of_an_unknown_kind_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "measure", lambda *arguments: pytest.fail("measured"))
    with pytest.raises(UserError, match=r"cost.xyz: let its name end in .png, .svg, .pdf"):
        cost.run(1, CPU, tmp_path / "new" / "cost.xyz")
    assert not (tmp_path / "new").exists()
