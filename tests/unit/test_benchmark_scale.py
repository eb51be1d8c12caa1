"""The cost of a large corpus, computed from slopes, and the slopes measured."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from benchmarks import scale, slopes
from benchmarks.command import make_app
from benchmarks.scale import costs_of, limits_of
from benchmarks.slopes import Slopes, fit, read_slopes
from seq2seq.errors import UserError

CPU = torch.device("cpu")
SLOPES = Slopes(
    fixed=10, alone=20, shared=80, ray=5, text=100, prepared=120, work=400, memory=1e9, memory_a_pair=2,
    reached=1e12, translated=100
)  # fmt: skip
PLAN = scale.Plan(pairs=[1_000_000], tokens=10, epochs=2, vocab_size=100, cores=8, devices=2)


def test_costs_follow_from_the_slopes() -> None:
    costs = costs_of(36_000_000, 1_000_000, PLAN, SLOPES)
    assert costs["text, GB"] == pytest.approx(3.6)
    assert costs["memory of the largest process, GB"] == pytest.approx(1.072)
    assert costs["preparation by one process, hours"] == pytest.approx((10 + 3600) / 3600)
    assert costs["preparation by all cores, hours"] == pytest.approx((10 + 720 + 360) / 3600)
    assert costs["training, hours"] == pytest.approx(36e6 * 2 * 1e6 / 2e12 / 3600)
    assert costs["devices to train in a day"] == pytest.approx(costs["training, hours"] * 2 / 24)
    assert costs["translating it, hours"] == pytest.approx(36e6 / 100 / 2 / 3600)


def test_at_its_limit_each_way_is_just_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "MEMORY", 5e9)
    limits = {way: size for way, size, _ in limits_of(1_000_000, PLAN, SLOPES)}
    for way, cost, most in (
        ("one process, for an hour", "preparation by one process, hours", 1),
        ("training for a day", "training, hours", 24),
        ("translating for a day", "translating it, hours", 24),
        ("the memory for preparation", "memory of the largest process, GB", 5),
    ):
        assert costs_of(round(limits[way]), 1_000_000, PLAN, SLOPES)[cost] == pytest.approx(most)


def test_slopes_are_those_between_the_two_largest_sizes() -> None:
    def measured(pairs: int) -> dict[str, float]:
        alone, shared = pairs * 20e-6, pairs * 80e-6
        return {
            "pairs": pairs, "one": 10 + alone + shared, "two": 10 + alone + shared / 2,
            "ray": 15 + alone + shared / 2, "memory": 1e9 + 2 * pairs, "text": 100, "prepared": 120, "work": 400
        }  # fmt: skip

    fitted = fit([measured(1), measured(100_000), measured(1_000_000)])
    expected = replace(SLOPES, memory=1e9 + 2e5, reached=Slopes.reached, translated=Slopes.translated)
    assert vars(fitted) == pytest.approx(vars(expected))


def test_slopes_are_read_from_what_was_measured_or_from_some_values(tmp_path: Path) -> None:
    path = tmp_path / "slopes.json"
    for values in ({"slopes": {"shared": 7}, "machine": ""}, {"shared": 7}):
        path.write_text(json.dumps(values), encoding="utf-8")
        assert read_slopes(path) == replace(Slopes(), shared=7)
    assert read_slopes(None) == Slopes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the file is a JSON object of alone, "),
        ('{"chared": 7}', "the file is a JSON object of alone, "),
        ('{"translated": 0}', "the slope translated=0 must be greater than 0; "),
        ('{"shared": -1}', "the slope shared=-1 must be at least 0; "),
    ],
)
def test_other_files_and_impossible_slopes_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "slopes.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=rf"^--slopes .*slopes.json: .*{message}"):
        read_slopes(path)


@pytest.mark.slow
def test_what_is_measured_gives_slopes() -> None:
    results, (sizes, _) = slopes.run(slopes.Plan(pairs=[3000, 4000]), CPU)
    measured = Slopes(**results["slopes"])
    assert 40 < measured.text < 300
    assert 0 < measured.prepared <= measured.work
    assert 3e7 < measured.memory < 1e9
    assert [len(row) for row in sizes.rows] == [9, 9]


def test_the_command_prints_markdown_and_writes_json(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    try:
        words = ["--pairs", "1000", "--device", "cpu", "--threads", "3", "--output", str(tmp_path)]
        result = CliRunner().invoke(make_app("scale"), words)
    finally:
        torch.set_num_threads(threads)
    assert result.exit_code == 0
    assert "| pairs | 1,000 |" in result.output
    written = json.loads((tmp_path / "scale.json").read_text(encoding="utf-8"))
    assert written["plan"]["pairs"] == [1000]
    assert "3 threads" in written["machine"]
