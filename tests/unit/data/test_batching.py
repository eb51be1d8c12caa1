"""Batches of similar lengths within a budget: every pair once an epoch, over all ranks, in a new order each time."""

import itertools
from collections import Counter
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seq2seq.data import batching
from seq2seq.data.batching import (
    LADDER_TOKENS,
    Batch,
    BatchLoader,
    Shape,
    _ahead,
    collate,
    count_batches,
    full_shape,
    gather,
    plan_batches,
    plan_block,
)
from seq2seq.data.dataset import Pairs
from seq2seq.data.epochs import PreparedEpochs
from seq2seq.errors import UserError
from seq2seq.text.tokenizer import BOS, EOS, PAD


def make_pairs(lengths: Iterable[tuple[int, int]]) -> Pairs:
    """Pair i holds only the id 10 + i."""
    src, tgt = zip(*(([10 + i] * src, [10 + i] * tgt) for i, (src, tgt) in enumerate(lengths)), strict=True)
    return Pairs.of(src, tgt)


def random_pairs(count: int) -> Pairs:
    return make_pairs(np.random.default_rng(3).integers(1, 20, (count, 2)).tolist())


def loader(pairs: Pairs, *, max_tokens: int = 64, plans: Path | None = None, **ranks: Any) -> BatchLoader:
    """Read the batches of rank, of world_size."""
    return BatchLoader(PreparedEpochs(pairs, seed=5), max_tokens=max_tokens, plans=plans, **ranks)


def epoch_of(loader: BatchLoader) -> list[Batch]:
    """The loader's batches as long as it is in the epoch in which it begins."""
    epoch = loader.state_dict()["epoch"]
    return list(itertools.takewhile(lambda _: loader.state_dict()["epoch"] == epoch, loader))


def indices(batch: Batch) -> list[int]:
    return [int(row[0]) - 10 for row in batch.src]


def visited(batches: list[Batch]) -> Counter[int]:
    return Counter(index for batch in batches for index in indices(batch))


@pytest.fixture
def pairs() -> Pairs:
    return random_pairs(211)


def test_a_batch_holds_pairs_in_any_order_and_the_target_twice_shifted_by_one() -> None:
    pairs = Pairs.of([[7, 8], [], [5]], [[9], [4], []])
    batch = gather(pairs, np.array([2, 0, 0, 1]), start=3)
    assert batch.src.tolist() == [[5, EOS, PAD], [7, 8, EOS], [7, 8, EOS], [EOS, PAD, PAD]]
    assert batch.tgt_in.tolist() == [[3, PAD], [3, 9], [3, 9], [3, 4]]
    assert batch.tgt_out.tolist() == [[EOS, PAD], [9, EOS], [9, EOS], [4, EOS]]
    assert all(map(torch.equal, collate([pairs[0], pairs[2]]), gather(pairs, np.array([0, 2]), BOS)))


@pytest.mark.parametrize(("world_size", "accumulate"), [(1, 1), (3, 1), (2, 4)])
def test_every_pair_comes_once_an_epoch_over_all_ranks_in_whole_updates(pairs, world_size, accumulate):
    ranks = [loader(pairs, rank=rank, world_size=world_size, accumulate=accumulate) for rank in range(world_size)]
    for epoch in range(2):
        epochs = [epoch_of(rank) for rank in ranks]
        assert len({len(batches) for batches in epochs}) == 1
        assert len(epochs[0]) % accumulate == 0
        assert visited([batch for batches in epochs for batch in batches]) == Counter(range(len(pairs)))
        for rank in ranks:
            rank.load_state_dict({"epoch": epoch + 1, "block": 0, "batches": 0})


def test_no_batch_exceeds_the_budget_with_its_padding_and_little_is_padding(pairs: Pairs) -> None:
    batches = epoch_of(loader(pairs))
    assert all(max(batch.src.numel(), batch.tgt_in.numel()) <= 64 for batch in batches)
    real = sum(int((batch.tgt_out != PAD).sum()) for batch in batches)
    assert real > 0.8 * sum(batch.tgt_out.numel() for batch in batches)


@pytest.mark.parametrize(("longest", "max_tokens"), [(20, 64), (300, 512)])  # keys of two bytes, and of four
def test_batches_are_cut_greedily_from_pairs_sorted_by_target_and_source_and_shuffled(longest, max_tokens):
    pairs = make_pairs(np.random.default_rng(3).integers(1, longest, (211, 2)).tolist())
    rng = np.random.default_rng([5, 0])  # of the loader's seed and the epoch
    expected: list[list[int]] = [[]]
    for index in sorted(rng.permutation(len(pairs)), key=lambda i: (*pairs.lengths[i, ::-1],)):
        longest = int(pairs.lengths[[*expected[-1], index]].max()) + 1
        if longest * (len(expected[-1]) + 1) > max_tokens:
            expected.append([])
        expected[-1].append(int(index))
    batches = epoch_of(loader(pairs, max_tokens=max_tokens))
    assert [*map(indices, batches)] == [expected[i] for i in rng.permutation(len(expected))]


def test_batches_are_counted_without_a_plan(pairs: Pairs) -> None:
    assert count_batches(pairs, 64) == len(epoch_of(loader(pairs)))
    draws = np.random.default_rng(1).integers(0, 50, 300)  # some pairs several times, others never
    assert count_batches(pairs, 64, draws) == len(plan_batches(pairs, draws, 64))
    assert count_batches(pairs, LADDER_TOKENS) == len(epoch_of(loader(pairs, max_tokens=LADDER_TOKENS)))


@pytest.mark.parametrize(("width", "rung"), [(2, 2), (3, 4), (31, 32), (33, 36), (36, 36), (65, 72), (129, 144)])
def test_the_ladder_has_even_widths_and_then_eight_for_each_power_of_two(width: int, rung: int) -> None:
    rows = LADDER_TOKENS // rung // 8 * 8
    assert full_shape(width, LADDER_TOKENS) == (rows, rung)
    assert full_shape(width, 1024) == (1024 // width, width)


def test_the_longest_pair_that_fits_is_not_widened_beyond_the_budget() -> None:
    assert full_shape(LADDER_TOKENS + 1, LADDER_TOKENS + 1) == (1, LADDER_TOKENS + 1)


@pytest.mark.parametrize(("world_size", "accumulate"), [(1, 1), (2, 2)])
def test_large_batches_have_few_shapes_and_every_pair_once(world_size: int, accumulate: int) -> None:
    pairs = random_pairs(20_000)
    ranks = [
        loader(pairs, max_tokens=LADDER_TOKENS, rank=rank, world_size=world_size, accumulate=accumulate)
        for rank in range(world_size)
    ]
    batches = [batch for rank in ranks for batch in epoch_of(rank)]
    real = [Batch(*(side[batch.tgt_out[:, 0] != PAD] for side in batch)) for batch in batches]
    assert visited(real) == Counter(range(len(pairs)))
    shapes = {tuple(side.shape for side in batch) for batch in batches}
    assert shapes <= {(full_shape(width, LADDER_TOKENS),) * 3 for width in range(2, 21)}
    assert len(batches) > 1.5 * len(shapes)


def test_rows_without_a_pair_have_a_source_to_attend_to_and_no_target() -> None:
    batch = gather(Pairs.of([[7]], [[9]]), np.array([0]), shape=Shape(2, 4))
    assert batch.src.tolist() == [[7, EOS, PAD, PAD], [EOS, PAD, PAD, PAD]]
    assert batch.tgt_in.tolist() == [[BOS, 9, PAD, PAD], [BOS, PAD, PAD, PAD]]
    assert batch.tgt_out.tolist() == [[9, EOS, PAD, PAD], [PAD, PAD, PAD, PAD]]


def test_every_epoch_has_other_batches_and_the_state_follows_them(pairs: Pairs) -> None:
    endless, size = loader(pairs), len(epoch_of(loader(pairs)))
    epochs = []
    for epoch in range(3):
        batches = list(itertools.islice(endless, size))  # without asking for one more
        assert endless.state_dict() == {"epoch": epoch, "block": 0, "batches": size}
        assert visited(batches) == Counter(range(len(pairs)))
        epochs.append({frozenset(indices(batch)) for batch in batches})
    assert epochs[0] != epochs[1] != epochs[2]


def test_only_the_end_of_an_epoch_depends_on_the_number_of_ranks(pairs: Pairs) -> None:
    single = epoch_of(loader(pairs))
    ranks = [epoch_of(loader(pairs, rank=rank, world_size=8)) for rank in range(8)]
    together = [batch for step in zip(*ranks, strict=True) for batch in step]
    assert [*map(indices, single[:-8])] == [*map(indices, together[: len(single) - 8])]


@pytest.mark.parametrize(("left", "times"), [((), 1), (("draft", "lock", "other.npy"), 1), (None, 2)])
def test_processes_share_one_plan_of_each_epoch(pairs, tmp_path, monkeypatch, left, times):
    """Also in the folder that killed processes left; each process plans if there can be no folder."""
    folder, planned = tmp_path / "plans", list[int]()
    if left is None:
        folder.touch()
    for name in left or ():
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"x")

    def plan(block, max_tokens):
        planned.append(block.id.epoch)
        return plan_block(block, max_tokens)

    monkeypatch.setattr(batching, "plan_block", plan)
    alone, ranks = (
        [loader(pairs, rank=rank, world_size=2, plans=plans) for rank in range(2)] for plans in (None, folder)
    )
    for step in itertools.islice(zip(*alone, *ranks, strict=True), 60):
        assert [*map(indices, step[:2])] == [*map(indices, step[2:])]
    assert Counter(planned) == dict.fromkeys(range(2), 2 + times)
    assert len(list(folder.glob("*.npy"))) == (0 if left is None else 4)  # of the last two plans
    for rank in ranks:
        rank.close()
    assert not folder.is_dir()


def test_a_plan_that_a_full_disk_cuts_off_is_not_used(tmp_path, monkeypatch):
    save = np.save

    def save_less(file, array):
        save(file, array)
        if not isinstance(file, Path):
            file.truncate(file.tell() - 8)

    monkeypatch.setattr(np, "save", save_less)
    plan = batching.BatchPlan(np.arange(5), np.array([[0, 5]]))
    assert batching.share_plan(tmp_path, "all that decides", lambda: plan) is plan
    assert [path.name for path in tmp_path.glob("*.npy") if "spans" not in path.name] == []


def test_too_few_pairs_for_equal_counts_are_refused() -> None:
    assert len(next(iter(loader(make_pairs([(1, 1)] * 6), world_size=6))).src) == 1
    with pytest.raises(UserError, match="too few sentence pairs: 6 single ones for updates of 7 batches"):
        next(iter(loader(make_pairs([(1, 1)] * 6), world_size=7)))


def test_text_that_does_not_fit_the_budget_or_is_missing_is_refused() -> None:
    with pytest.raises(UserError, match=r"max_tokens=16 is less than one sentence pair of 21 tokens: raise it"):
        next(iter(loader(make_pairs([(3, 4), (20, 5)]), max_tokens=16)))
    with pytest.raises(UserError, match="no sentence pair is left"):
        next(iter(loader(Pairs.of([], []))))


def test_batches_read_ahead_by_a_thread_are_the_same_and_errors_come_through() -> None:
    def items() -> Generator[int, None, None]:
        yield from range(10)
        raise UserError("the text ended")

    ahead = _ahead(items())
    assert list(itertools.islice(ahead, 7)) == list(range(7))
    with pytest.raises(UserError, match="the text ended"):
        list(ahead)
    endless = itertools.count()
    closed = _ahead(number for number in endless)
    assert next(closed) == 0
    closed.close()
    assert next(endless) <= 6, "the thread reads a few items ahead and ends"
