import json
import math
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from seq2seq.cli import app
from seq2seq.errors import UserError
from seq2seq.explain.lab import cost
from seq2seq.explain.lab.cost import Cost, measure, to_markdown, write_cost
from seq2seq.explain.lab.forms import FORMS, HEADS, draw
from seq2seq.explain.lab.peak import measure_peak

CPU = torch.device("cpu")


def test_both_forms_compute_the_same() -> None:
    inputs = draw(50, CPU)
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
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="no mark of memory that can be set back")
def test_the_open_computation_s_peak_is_its_two_matrices() -> None:
    """Relevance and weights, N × N floats a head, are there at once; the fused kernel has neither."""
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


def test_every_form_is_measured_at_every_length() -> None:
    costs = measure(CPU, 2, (8, 16), peak=lambda form, length, device: length * len(form))
    assert [made.form for made in costs] == ["fused", "open"]
    for made in costs:
        assert made.lengths == [8, 16]
        assert all(second > 0 for second in made.seconds)
        assert made.bytes == [8 * len(made.form), 16 * len(made.form)]


def test_the_page_tells_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [1024, 2048]
    costs = [
        Cost("fused", lengths, [0.01, 0.04], [1_000_000, 2_000_000]),
        Cost("open", lengths, [0.02, 0.08], [30_000_000, 120_000_000]),
    ]
    text = to_markdown(costs, "2 CPU threads (AVX2)", CPU)
    assert "| positions | fused ms | fused MB | open ms | open MB |" in text
    assert "| 2,048 | 40.00 | 2.0 | 80.00 | 120.0 |" in text
    assert "| exponent from 1,024 on | 2.00 | 1.00 | 2.00 | 2.00 |" in text
    monkeypatch.setattr(cost, "measure", lambda *arguments: costs)
    write_cost(CPU, 1, tmp_path)
    assert (tmp_path / "cost" / "cost.png").stat().st_size > 10_000
    assert json.loads((tmp_path / "cost" / "cost.json").read_text())["costs"][1]["bytes"] == [30_000_000, 120_000_000]
    assert "<!-- begin cost -->\nOne text of N positions" in (tmp_path / "lab.md").read_text()


def test_the_command_tells_the_exponents(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [1024, 2048]
    made = [Cost(form, lengths, [0.1, 0.4], [10, 20]) for form in ("fused", "open")]
    monkeypatch.setattr(cost, "measure", lambda *arguments: made)
    status, out, err = run("cost", "--output", tmp_path, command=("lab",), application=app)
    assert (status, out) == (0, "")
    assert err.startswith("fused: time N^2.00, memory N^1.00\nopen: time N^2.00, memory N^1.00\n")
    assert (tmp_path / "lab.md").exists()
