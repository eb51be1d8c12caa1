"""Training's batches go on exactly where they stopped: sampled, modified, for every rank."""

import itertools
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from preparing import SMALL, TEST, TRAIN, VALIDATION, write

from seq2seq.data import epochs
from seq2seq.data.batching import Batch, BatchLoader
from seq2seq.data.dataset import PreparedData
from seq2seq.data.loading import batches_an_epoch, training_feed
from seq2seq.data.prepare import prepare
from seq2seq.data.processes import Processes
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig
from seq2seq.settings.training import ModifiersConfig, SubwordSamplingConfig, TrainingConfig
from tests.refusing import refuses
from tests.thin import thin

pytestmark = pytest.mark.slow

RANDOM: dict[str, Any] = {"subword_sampling": SubwordSamplingConfig(alpha=0.2), "modifiers": ModifiersConfig(share=0.7)}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "modified": ({}, {"modifiers": ModifiersConfig(share=0.7)}),
    "random": ({}, RANDOM),
    "mixed and random": ({"weights": {"b": 3.0}}, RANDOM),
}
STEPS = 60  # micro-batches of an update's four: more than two epochs


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read blocks here and not ahead, in a process that takes seconds to start."""
    monkeypatch.setattr(epochs, "Processes", lambda *_, **__: Processes(0))


def settings(folder: Path, kind: str, accumulate: int = 4) -> Config:
    write(folder / "a.tsv", TRAIN[:220])
    write(folder / "b.tsv", TRAIN[220:])
    write(folder / "v.tsv", VALIDATION)
    write(folder / "t.tsv", TEST)
    data, training = KINDS[kind]
    files = {"train": ["a.tsv", "b.tsv"], "validation": ["v.tsv"], "test": ["t.tsv"]}
    return Config(
        seed=7,
        data=DataConfig(root=str(folder), block=90, **files, **data),
        tokenizer=SMALL,
        training=TrainingConfig(max_tokens=500, accumulate=accumulate, **training),
    )


def feed(config: Config, data: PreparedData, rank: int = 0, ranks: int = 1) -> BatchLoader:
    return training_feed(config, data, rank=rank, world_size=ranks, pin=False)


def take(source: BatchLoader, count: int) -> list[Batch]:
    batches = iter(source)
    taken = [next(batches) for _ in range(count)]
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    return taken


def equal(batches: list[Batch], expected: list[Batch]) -> bool:
    sides = zip(itertools.chain(*batches), itertools.chain(*expected), strict=True)
    return all(torch.equal(side, expected_side) for side, expected_side in sides)


@pytest.mark.parametrize("kind", thin(KINDS, ["modified", "mixed and random"]))
@pytest.mark.parametrize("ranks", thin([1, 2], [1]))
def test_a_feed_stopped_anywhere_and_restored_gives_the_very_same_batches(tmp_path: Path, kind: str, ranks: int):
    config = settings(tmp_path, kind, accumulate=4 // ranks)
    data = prepare(config.data, config.tokenizer)
    straight = [take(feed(config, data, rank, ranks), STEPS) for rank in range(ranks)]
    stops = sorted(random.Random(f"{kind} {ranks}").sample(range(1, STEPS), 3))
    state, done, batches = dict[str, Any](), 0, [[] for _ in range(ranks)]
    for stop in (*stops, STEPS):
        feeds = [feed(config, data, rank, ranks) for rank in range(ranks)]
        for rank, loader in enumerate(feeds):
            if state:
                loader.load_state_dict(json.loads(json.dumps(state)))  # of rank 0: all have the same
            batches[rank] += take(loader, stop - done)
        state, done = feeds[0].state_dict(), stop
        assert [loader.state_dict() for loader in feeds] == [state] * ranks
    assert all(map(equal, batches, straight)), stops
    assert state["epoch"] >= 1


@pytest.mark.parametrize("kind", thin(KINDS, ["mixed and random"]))
def test_two_ranks_and_one_see_the_same_updates_and_can_take_turns(tmp_path: Path, kind: str):
    one_config, two_config = settings(tmp_path, kind), settings(tmp_path, kind, accumulate=2)
    data = prepare(one_config.data, one_config.tokenizer)
    single = feed(one_config, data)
    expected = take(single, 40)
    first = feed(one_config, data)
    batches, state = take(first, 12), first.state_dict()
    ranks = [feed(two_config, data, rank, 2) for rank in (0, 1)]
    for loader in ranks:
        loader.load_state_dict(state)
    batches += [batch for step in zip(*(take(loader, 14) for loader in ranks), strict=True) for batch in step]
    assert equal(batches, expected)
    assert ranks[0].state_dict() == single.state_dict()


def test_blocks_too_small_for_an_updates_batches_are_warned_of_with_the_size_to_set(tmp_path, caplog):
    config = settings(tmp_path, "random", accumulate=16)
    data = prepare(config.data, config.tokenizer)
    caplog.clear()
    take(feed(config, data), 40)
    (message,) = [record.getMessage() for record in caplog.records if "every update takes 16" in record.getMessage()]
    share, block = (int(number) for number in re.findall(r"to (\d+) % of .* data.block=(\d+)", message)[0])
    batches = int(re.findall(r"makes (\d+) batches of training.max_tokens=500", message)[0])
    assert share == round(100 * batches / 16) < 90
    assert block >= 10 * config.data.block
    caplog.clear()
    take(feed(settings(tmp_path, "random", accumulate=1), data), 40)
    take(feed(config, data, rank=1, ranks=2), 40)  # the first process warns
    assert not [record for record in caplog.records if "every update takes" in record.getMessage()]


@pytest.mark.parametrize("num_proc", [1, 3])
def test_blocks_read_ahead_by_processes_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_proc: int):
    config = settings(tmp_path, "mixed and random")
    data = prepare(config.data, config.tokenizer)
    here = feed(config, data)
    expected = take(here, 40)
    monkeypatch.setattr(epochs, "Processes", Processes)
    config.data.num_proc = num_proc
    ahead = feed(config, data)
    assert equal(take(ahead, 10), expected[:10])
    resumed = feed(config, data)
    resumed.load_state_dict(ahead.state_dict())
    assert equal(take(resumed, 30), expected[10:])
    assert resumed.state_dict() == here.state_dict()


@pytest.mark.parametrize("kind", ["modified", "random"])
def test_no_form_of_a_pair_exceeds_a_budget_that_holds_the_plain_pairs(tmp_path: Path, kind: str):
    config = settings(tmp_path, kind, accumulate=1)
    data = prepare(config.data, config.tokenizer)
    config.training.max_tokens = int(data.train.lengths.max()) + 1
    assert config.training.max_tokens < config.data.max_length
    assert max(max(batch.src.numel(), batch.tgt_in.numel()) for batch in take(feed(config, data), 300)) <= (
        config.training.max_tokens
    )


def test_a_pair_of_a_rare_corpus_is_refused_before_the_first_update_although_it_comes_late(tmp_path: Path):
    config = settings(tmp_path, "plain")
    data = prepare(config.data, config.tokenizer)
    row, longest = int(data.train.lengths.max(axis=1).argmax()), int(data.train.lengths.max()) + 1
    rare, common = ("a", "b") if row < data.report["files"][0]["kept"] else ("b", "a")
    config.data.weights = {common: 1.0, rare: 1e-6}
    config.training.max_tokens = longest
    feed(config, data)
    config.training.max_tokens = longest - 1
    refuses(rf"max_tokens={longest - 1} is less than one sentence pair of {longest} tok", feed, config, data)


def test_the_batches_of_an_epoch_are_known_in_advance(tmp_path: Path):
    config = settings(tmp_path, "plain", accumulate=1)
    config.data.weights = {"a": 1.0, "b": 3.0}
    data = prepare(config.data, config.tokenizer)
    loader, count = feed(config, data), batches_an_epoch(config, data)
    take(loader, count + 1)
    assert loader.state_dict() == {"epoch": 1, "block": 0, "batches": 1}
