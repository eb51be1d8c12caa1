"""A speed-run of a toy text: both recipes, from the same seeds, after equal computing time."""

from pathlib import Path

import pytest
import torch

from benchmarks import speedrun
from benchmarks.race import Spread
from benchmarks.speedrun import CHANGED, RECORD, Plan, Track
from seq2seq.errors import UserError
from tests.toy import FILES, TINY, write_corpus

CPU = torch.device("cpu")


@pytest.mark.slow
def test_a_change_is_compared_after_equal_computing_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learning = ["training.learning_rate=1e-2", "training.warmup_steps=1", "training.max_tokens=64"]
    toy = [*FILES, *TINY, *learning, "data.test=[validation.tsv]", "search.beam=1"]
    monkeypatch.setitem(speedrun.TRACKS, "tatoeba", Track(toy, 40))
    monkeypatch.setattr(speedrun, "costs", lambda *_: {CHANGED: Spread(1.25, 1.2, 1.3)})
    monkeypatch.setenv("SEQ2SEQ_CACHE", str(tmp_path / "cache"))
    plan = Plan(data=write_corpus(tmp_path), change=["training.learning_rate=1e-9"], seeds=1)
    values, (table,) = speedrun.run(plan, CPU)
    assert values["updates"] == {RECORD: 40, CHANGED: 32}
    (record,), (changed,) = values["runs"].values()
    assert record["loss"] < changed["loss"] - 0.1  # which learned nothing
    assert [row[:3] for row in table.rows] == [
        ["the record", "1", "40"],
        ["`training.learning_rate=1e-9`", "1.250 (1.200–1.300)", "32"],
    ]


@pytest.mark.slow
def test_the_cost_of_an_update_is_measured_for_both_recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQ2SEQ_CACHE", str(tmp_path / "cache"))
    toy = [*FILES, *TINY, f"data.root={write_corpus(tmp_path)}", "training.max_tokens=512"]
    cost = speedrun.costs({RECORD: toy, CHANGED: [*toy, "model.d_ff=2048"]}, CPU, tmp_path)
    assert cost[CHANGED].median > 1


def test_only_the_bundled_track_has_text_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the track mixed needs --data"):
        speedrun.run(Plan(track="mixed"), CPU)
    with pytest.raises(UserError, match="the track bundled has its own text: leave out --data"):
        speedrun.run(Plan(track="bundled", data=tmp_path), CPU)
