"""The command line of the benchmarks, and the cost of preparing a pair, which is measured between two sizes."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from benchmarks import shapes, slopes
from benchmarks.command import make_app


def test_costs_are_those_between_the_two_largest_sizes() -> None:
    def measured(pairs: int) -> dict[str, float]:
        alone, shared = pairs * 20e-6, pairs * 80e-6
        return {"pairs": pairs, "one": 10 + alone + shared, "two": 10 + alone + shared / 2, "memory": 1e9 + 2 * pairs}

    costs = slopes.fit([measured(1), measured(100_000), measured(1_000_000)])
    assert [*costs.values()] == pytest.approx([20, 80, 2])


@pytest.mark.slow
def test_what_is_measured_gives_costs() -> None:
    results, (sizes, costs) = slopes.run(slopes.Plan(pairs=[3000, 4000]), torch.device("cpu"))
    large = results["sizes"][-1]
    assert 40 < large["text"] < 300
    assert 0 < large["prepared"] <= large["work"]
    assert 3e7 < large["memory"] < 1e9
    assert ([len(row) for row in sizes.rows], len(costs.rows)) == ([8, 8], 3)


def test_a_command_prints_markdown_and_writes_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "RANDOM_PAIRS", 1000)
    threads = torch.get_num_threads()
    try:
        words = ["--max-tokens", "4096", "--device", "cpu", "--threads", "3", "--output", str(tmp_path)]
        result = CliRunner().invoke(make_app("shapes"), words)
    finally:
        torch.set_num_threads(threads)
    assert result.exit_code == 0
    assert "| 1,000 |" in result.output
    written = json.loads((tmp_path / "shapes.json").read_text(encoding="utf-8"))
    assert written["plan"]["max_tokens"] == 4096
    assert "3 threads" in written["machine"]
