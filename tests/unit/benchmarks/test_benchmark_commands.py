"""The command line of the benchmarks, costs of pairs, operations and transfers, and a speed-run of a toy text."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from benchmarks import checkouts, kernels, shapes, slopes, speedrun, transfers
from benchmarks.command import make_app
from benchmarks.kernels import BASE, MODERN, TRAININGS
from benchmarks.processes import REPOSITORY
from benchmarks.race import Spread
from benchmarks.speedrun import CHANGED, RECORD, Plan, Track
from benchmarks.transfers import MODELS, SEARCHES, TRAINING
from seq2seq.data.dataset import Pairs
from seq2seq.errors import UserError
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from tests.thin import thin
from tests.toy import FILES, TINY, write_corpus


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


CPU = torch.device("cpu")


@pytest.mark.slow
def test_two_checkouts_train_in_turns_and_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    small = {"size": "tiny", "vocab_size": 20, "max_tokens": 64, "rounds": 1, "batches": 2}
    _, (table,) = checkouts.run(checkouts.Plan(other=REPOSITORY, **small), CPU)
    assert [row[-1] for row in table.rows] == ["yes", "yes"]
    with pytest.raises(UserError, match="is no checkout: make one"):
        checkouts.run(checkouts.Plan(other=tmp_path, **small), CPU)


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


@pytest.mark.parametrize(
    ("training", "most"), [("vaswani, AdamW", 1285), ("modern, AdamW", 1371), ("modern, Muon", 1432)]
)
def test_an_update_sends_no_more_operations(training: str, most: int) -> None:
    counts = kernels.count_update(*TRAININGS[training])
    assert kernels.by_kind(counts)["attention"] == 36  # 18 forward, 18 backward
    assert most - 40 < counts.total() <= most


@pytest.mark.parametrize(("training", "most"), [("vaswani, AdamW", 40), ("modern, Muon", 95)])
def test_a_recorded_update_sends_few_operations_beside_the_graph(training: str, most: int) -> None:
    assert kernels.count_update(*TRAININGS[training], is_recorded=True).total() <= most


@pytest.mark.parametrize(
    ("model", "beam", "most"), [(BASE, 1, 176), (BASE, 5, 179), (MODERN, 1, 261), (MODERN, 5, 263)]
)
def test_a_step_of_a_search_sends_no_more_operations(model: ModelConfig, beam: int, most: int) -> None:
    counts = kernels.count_step(model, beam)
    assert kernels.by_kind(counts)["attention"] == 12  # each layer's own and that to the source
    assert most - 20 < counts.total() <= most


def test_shapes_and_padding_are_counted() -> None:
    pairs = Pairs.of([[5], [5] * 2, [5] * 3], [[6], [6] * 2, [6]])
    assert shapes.measure(pairs, 8) == ({(2, 4, 2): 1, (1, 3, 3): 1}, [11, 7], [9, 7])


@pytest.mark.slow
def test_a_change_is_compared_after_equal_computing_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learning = ["training.learning_rate=1e-2", "training.warmup_steps=1", "training.max_tokens=64"]
    toy = [*FILES, *TINY, *learning, "data.test=[validation.tsv]", "search.beam=1"]
    monkeypatch.setitem(speedrun.TRACKS, "tatoeba", Track(toy, 40))
    monkeypatch.setenv("SEQ2SEQ_CACHE", str(tmp_path / "cache"))
    plan = Plan(data=write_corpus(tmp_path), change=["training.learning_rate=1e-9"], seeds=1)
    recipe = [*toy, f"data.root={plan.data}"]
    assert speedrun.costs({RECORD: recipe, CHANGED: recipe}, CPU, tmp_path)[CHANGED].lowest > 0
    monkeypatch.setattr(speedrun, "costs", lambda *_: {CHANGED: Spread(1.25, 1.2, 1.3)})
    values, (table,) = speedrun.run(plan, CPU)
    assert values["updates"] == {RECORD: 40, CHANGED: 32}
    (record,), (changed,) = values["runs"].values()
    assert record["loss"] < changed["loss"] - 0.1  # which learned nothing
    assert [row[:3] for row in table.rows] == [
        ["the record", "1", "40"],
        ["`training.learning_rate=1e-9`", "1.250 (1.200–1.300)", "32"],
    ]


def test_only_the_bundled_track_has_text_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the track mixed needs --data"):
        speedrun.run(Plan(track="mixed"), CPU)
    with pytest.raises(UserError, match="the track bundled has its own text: leave out --data"):
        speedrun.run(Plan(track="bundled", data=tmp_path), CPU)


QUIET = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:.*number of training batches", "ignore:Total length of"
)


@QUIET
@pytest.mark.slow
@pytest.mark.parametrize("kind", TRAINING)
@pytest.mark.parametrize("model", MODELS)
def test_an_update_waits_for_nothing_and_copies_nothing(model: str, kind: str, tmp_path: Path) -> None:
    counts = transfers.train(MODELS[model], transfers.training_config(TRAINING[kind]), tmp_path)
    assert len(counts.steps) >= 3
    assert [dict(step) for step in counts.steps] == [{}] * len(counts.steps)


@QUIET
@pytest.mark.slow
def test_a_replayed_update_waits_for_nothing_after_the_first_was_compared(tmp_path: Path) -> None:
    training = transfers.training_config({"accumulate": 2})
    counts = transfers.train(MODELS["modern"], training, tmp_path, recorder=lambda compute: compute)
    assert [dict(step) for step in counts.steps[1:]] == [{}] * (len(counts.steps) - 1)
    assert counts.steps[0].total() == 1


@QUIET
@pytest.mark.slow
@pytest.mark.parametrize("kind", thin(SEARCHES, ["beam", "sampling with rules"]))
@pytest.mark.parametrize("model", thin(MODELS, ["transformer"]))
def test_a_step_of_a_search_waits_once(model: str, kind: str) -> None:
    counts = transfers.search(MODELS[model], SearchConfig(**SEARCHES[kind]), transfers.sources(kind))
    assert len(counts.steps) == 5
    assert counts.most(waits=True) == 1
    assert counts.most(waits=False) < 5
