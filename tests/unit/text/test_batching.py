import itertools
from collections import Counter
from collections.abc import Generator

import numpy as np
import pytest
import torch

from seq2seq.errors import UserError
from seq2seq.text.batching import (
    LONGER_SIDE_FIRST,
    Batch,
    BatchLoader,
    _ahead,
    collate,
    count_batches,
    even_out,
    plan_batches,
)
from seq2seq.text.dataset import Pairs
from seq2seq.text.epochs import PreparedEpochs
from seq2seq.text.tokenizer import BOS, EOS, PAD


def make_pairs(lengths: list[tuple[int, int]]) -> Pairs:
    """Pair i holds only the id 10 + i."""
    return Pairs.of(
        [[10 + i] * src for i, (src, _) in enumerate(lengths)], [[10 + i] * t for i, (_, t) in enumerate(lengths)]
    )


def loader(
    pairs: Pairs, *, max_tokens: int = 64, rank: int = 0, world_size: int = 1, accumulate: int = 1
) -> BatchLoader:
    source = PreparedEpochs(pairs, seed=5)
    return BatchLoader(source, max_tokens=max_tokens, rank=rank, world_size=world_size, accumulate=accumulate)


def epoch_of(loader: BatchLoader, epoch: int = 0) -> list[Batch]:
    """The loader's batches as long as it is in an epoch."""
    return list(itertools.takewhile(lambda _: loader.state_dict()["epoch"] == epoch, loader))


def plan(pairs: Pairs, seed: int, epoch: int, multiple: int = 1, max_tokens: int = 64) -> list[list[int]]:
    rng = np.random.default_rng([seed, epoch])
    batches = plan_batches(pairs, rng.permutation(len(pairs)), max_tokens, rng)
    return [indices.tolist() for indices in even_out(batches, multiple)]


@pytest.fixture
def pairs() -> Pairs:
    rng = np.random.default_rng(3)
    return make_pairs([(int(s), int(t)) for s, t in rng.integers(1, 20, (211, 2))])


def visited(batches: list) -> Counter[int]:
    return Counter(int(row[0]) - 10 for batch in batches for row in batch.src)


def test_a_batch_holds_the_target_twice_shifted_by_one() -> None:
    batch = collate([(np.array([7, 8]), np.array([9])), (np.array([5]), np.array([4, 6, 7]))])
    assert batch.src.tolist() == [[7, 8, EOS], [5, EOS, PAD]]
    assert batch.tgt_in.tolist() == [[BOS, 9, PAD, PAD], [BOS, 4, 6, 7]]
    assert batch.tgt_out.tolist() == [[9, EOS, PAD, PAD], [4, 6, 7, EOS]]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_every_pair_comes_once_an_epoch_over_all_ranks_in_equal_counts(pairs: Pairs, world_size: int) -> None:
    ranks = [loader(pairs, rank=rank, world_size=world_size) for rank in range(world_size)]
    for epoch in range(2):
        epochs = [epoch_of(rank, epoch) for rank in ranks]
        assert len({len(batches) for batches in epochs}) == 1
        assert visited([batch for batches in epochs for batch in batches]) == Counter(range(len(pairs)))
        for rank in ranks:
            rank.load_state_dict({"epoch": epoch + 1, "block": 0, "batches": 0})


def test_no_batch_exceeds_the_budget_with_its_padding_and_little_is_padding(pairs: Pairs) -> None:
    batches = epoch_of(loader(pairs))
    assert all(max(batch.src.numel(), batch.tgt_in.numel()) <= 64 for batch in batches)
    real = sum(int((batch.tgt_out != PAD).sum()) for batch in batches)
    assert real > 0.8 * sum(batch.tgt_out.numel() for batch in batches)


def test_order_changes_with_epoch_and_seed_and_with_nothing_else(pairs: Pairs) -> None:
    assert plan(pairs, 1, 0) == plan(pairs, 1, 0)
    assert plan(pairs, 1, 0) != plan(pairs, 1, 1)
    assert plan(pairs, 1, 0) != plan(pairs, 2, 0)
    members = {frozenset(batch) for batch in plan(pairs, 1, 0)}
    assert members != {frozenset(batch) for batch in plan(pairs, 1, 1)}, "batches are made anew each epoch"


def test_batches_are_cut_greedily_from_pairs_sorted_by_target_and_source(pairs: Pairs) -> None:
    rng = np.random.default_rng([5, 0])
    order = rng.permutation(len(pairs)).tolist()
    expected: list[list[int]] = [[]]
    for index in sorted(order, key=lambda index: (pairs.tgt_lengths[index], pairs.src_lengths[index])):
        longest = int(pairs.lengths[[*expected[-1], index]].max()) + 1
        if longest * (len(expected[-1]) + 1) > 64:
            expected.append([])
        expected[-1].append(index)
    assert plan(pairs, 5, 0) == [expected[number] for number in rng.permutation(len(expected))]
    assert epoch_of(loader(pairs))[0].src[:, 0].tolist() == [10 + index for index in plan(pairs, 5, 0)[0]]


def test_batches_are_counted_without_a_plan(pairs: Pairs) -> None:
    assert count_batches(pairs, 64) == len(plan(pairs, 1, 0))
    draws = np.random.default_rng(1).integers(0, 50, 300)  # some pairs several times, others never
    assert count_batches(pairs, 64, draws) == len(plan_batches(pairs, draws, 64))


def test_large_batches_hold_pairs_with_an_equal_longer_side(pairs: Pairs) -> None:
    many = make_pairs([(int(s), int(t)) for s, t in np.random.default_rng(3).integers(1, 20, (20_000, 2))])
    batches = plan(many, 1, 0, max_tokens=LONGER_SIDE_FIRST)
    widest = sorted((many.lengths[batch].max(axis=1).min(), many.lengths[batch].max()) for batch in batches)
    assert all(following[0] >= batch[1] for batch, following in itertools.pairwise(widest))
    assert sorted(itertools.chain(*batches)) == list(range(len(many)))


@pytest.mark.parametrize("stops", [(4,), (4, 3), (1, 1, 30)])
def test_a_loader_goes_on_exactly_where_its_state_was_taken(pairs: Pairs, stops: tuple[int, ...]) -> None:
    expected = list(itertools.islice(loader(pairs), 150))
    result: list[Batch] = []
    state = loader(pairs).state_dict()
    for stop in (*stops, len(expected)):
        again = loader(pairs)
        again.load_state_dict(state)
        result += itertools.islice(again, min(stop, len(expected) - len(result)))
        state = again.state_dict()
    assert state["epoch"] >= 2
    pairs_of = zip(result, expected, strict=True)
    assert all(torch.equal(a.src, b.src) and torch.equal(a.tgt_out, b.tgt_out) for a, b in pairs_of)


def test_batches_of_an_epoch_taken_without_asking_for_more_are_followed_by_the_next_epoch(pairs: Pairs) -> None:
    again, size = loader(pairs), len(plan(pairs, 5, 0))
    for epoch in range(2):
        assert visited(list(itertools.islice(again, size))) == Counter(range(len(pairs)))
        assert again.state_dict() == {"epoch": epoch, "block": 0, "batches": size}


def test_an_epoch_is_a_whole_number_of_updates(pairs: Pairs) -> None:
    epochs = [epoch_of(loader(pairs, world_size=2, accumulate=4, rank=rank)) for rank in (0, 1)]
    assert len(epochs[0]) % 4 == 0
    assert visited([*epochs[0], *epochs[1]]) == Counter(range(len(pairs)))


def test_all_but_the_end_of_an_epoch_is_the_same_for_every_number_of_ranks(pairs: Pairs) -> None:
    one, eight = plan(pairs, 5, 0), plan(pairs, 5, 0, multiple=8)
    assert len(eight) % 8 == 0
    same = next(i for i, (a, b) in enumerate(zip(one, eight, strict=False)) if a != b)
    assert same >= len(one) - 8


def test_another_number_of_ranks_goes_on_with_the_same_updates(pairs: Pairs) -> None:
    one = loader(pairs, accumulate=4)
    list(itertools.islice(one, 8))  # two updates
    state, expected = one.state_dict(), [visited(list(itertools.islice(one, 4))) for _ in range(3)]
    for world_size, update in ((2, 0), (4, 1), (1, 2)):
        accumulate = 4 // world_size
        ranks = [loader(pairs, accumulate=accumulate, rank=rank, world_size=world_size) for rank in range(world_size)]
        for rank in ranks:
            rank.load_state_dict(state)
        assert visited([b for rank in ranks for b in itertools.islice(rank, accumulate)]) == expected[update]
        state = ranks[-1].state_dict()


def test_too_few_pairs_for_equal_counts_are_refused() -> None:
    assert len(next(iter(loader(make_pairs([(1, 1)] * 6), world_size=6))).src) == 1
    with pytest.raises(UserError, match="too few sentence pairs: 6 single ones for updates of 7 batches"):
        next(iter(loader(make_pairs([(1, 1)] * 6), world_size=7)))


def test_a_pair_longer_than_the_budget_is_refused_with_the_way_out() -> None:
    with pytest.raises(UserError, match=r"max_tokens=16 is less than one sentence pair of 21 tokens: raise it"):
        next(iter(loader(make_pairs([(3, 4), (20, 5)]), max_tokens=16)))


def test_no_pairs_at_all_are_refused() -> None:
    with pytest.raises(UserError, match="no sentence pair is left"):
        next(iter(loader(make_pairs([]))))


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


def test_a_loader_gives_the_batches_in_another_order_in_every_epoch(pairs: Pairs) -> None:
    batches, size = iter(loader(pairs)), len(plan(pairs, 5, 0))
    epochs = [[tuple(batch.src[:, 0].tolist()) for batch in itertools.islice(batches, size)] for _ in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
