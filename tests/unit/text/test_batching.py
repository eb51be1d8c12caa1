import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from seq2seq.errors import UserError
from seq2seq.text.batching import Batch, BatchLoader, collate
from seq2seq.text.vocab import BOS, EOS, PAD


class Pairs:
    """Sentence pairs in memory, each with tokens of its own: pair i holds only the id 10 + i."""

    def __init__(self, lengths: list[tuple[int, int]]) -> None:
        self.src_lengths, self.tgt_lengths = np.array(lengths).reshape(-1, 2).T.astype(np.int32)

    def __len__(self) -> int:
        return len(self.src_lengths)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return (
            np.full(self.src_lengths[index], 10 + index, dtype=np.int32),
            np.full(self.tgt_lengths[index], 10 + index, dtype=np.int32),
        )


@pytest.fixture
def pairs() -> Pairs:
    rng = np.random.default_rng(3)
    return Pairs([(int(s), int(t)) for s, t in rng.integers(1, 20, (211, 2))])


def visited(batches: list) -> Counter[int]:
    return Counter(int(row[0]) - 10 for batch in batches for row in batch.src)


def test_a_batch_holds_the_target_twice_shifted_by_one() -> None:
    batch = collate([(np.array([7, 8]), np.array([9])), (np.array([5]), np.array([4, 6, 7]))])
    assert batch.src.tolist() == [[7, 8, EOS], [5, EOS, PAD]]
    assert batch.tgt_in.tolist() == [[BOS, 9, PAD, PAD], [BOS, 4, 6, 7]]
    assert batch.tgt_out.tolist() == [[9, EOS, PAD, PAD], [4, 6, 7, EOS]]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_every_pair_comes_once_an_epoch_over_all_ranks_in_equal_counts(pairs: Pairs, world_size: int) -> None:
    ranks = [BatchLoader(pairs, max_tokens=64, seed=5, rank=r, world_size=world_size) for r in range(world_size)]
    for _ in range(2):
        epochs = [list(rank) for rank in ranks]
        assert {len(epoch) for epoch in epochs} == {len(ranks[0])}
        assert visited([batch for epoch in epochs for batch in epoch]) == Counter(range(len(pairs)))


def test_no_batch_exceeds_the_budget_with_its_padding_and_little_is_padding(pairs: Pairs) -> None:
    batches = list(BatchLoader(pairs, max_tokens=64, seed=5))
    assert all(max(batch.src.numel(), batch.tgt_in.numel()) <= 64 for batch in batches)
    real = sum(int((batch.tgt_out != PAD).sum()) for batch in batches)
    assert real > 0.8 * sum(batch.tgt_out.numel() for batch in batches)


def test_order_changes_with_epoch_and_seed_and_with_nothing_else(pairs: Pairs) -> None:
    def order(seed: int, epoch: int) -> list[list[int]]:
        return [indices.tolist() for indices in BatchLoader(pairs, max_tokens=64, seed=seed).plan(epoch)]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)
    members = {frozenset(batch) for batch in order(1, 0)}
    assert members != {frozenset(batch) for batch in order(1, 1)}, "batches are made anew each epoch"


@pytest.mark.parametrize("stops", [(4,), (4, 3), (1, 1, 30)])
def test_a_loader_goes_on_exactly_where_its_state_was_taken(pairs: Pairs, stops: tuple[int, ...]) -> None:
    straight = BatchLoader(pairs, max_tokens=64, seed=5)
    expected = [batch for _ in range(3) for batch in straight]
    result: list[Batch] = []
    state = {"epoch": 0, "batches": 0}
    for stop in (*stops, len(expected)):
        loader = BatchLoader(pairs, max_tokens=64, seed=5)
        loader.load_state_dict(state)
        epochs = (batch for _ in range(4) for batch in loader)
        result += itertools.islice(epochs, min(stop, len(expected) - len(result)))
        state = loader.state_dict()
    assert len(result) == len(expected)
    pairs_of = zip(result, expected, strict=True)
    assert all(torch.equal(a.src, b.src) and torch.equal(a.tgt_out, b.tgt_out) for a, b in pairs_of)


def test_a_loader_whose_last_batch_was_taken_without_asking_for_more_begins_the_next_epoch(pairs: Pairs) -> None:
    loader = BatchLoader(pairs, max_tokens=64, seed=5)
    for epoch in range(3):
        batches = list(itertools.islice(loader, len(loader)))
        assert visited(batches) == Counter(range(len(pairs)))
        assert loader.state_dict() == {"epoch": epoch, "batches": len(loader)}


def test_an_epoch_is_a_whole_number_of_updates(pairs: Pairs) -> None:
    loader = BatchLoader(pairs, max_tokens=64, seed=5, world_size=2, accumulate=4)
    assert len(loader) % 4 == 0
    other = BatchLoader(pairs, max_tokens=64, seed=5, world_size=2, accumulate=4, rank=1)
    assert visited([*loader, *other]) == Counter(range(len(pairs)))


def test_all_but_the_end_of_an_epoch_is_the_same_for_every_number_of_ranks(pairs: Pairs) -> None:
    one = BatchLoader(pairs, max_tokens=64, seed=5).plan(0)
    eight = BatchLoader(pairs, max_tokens=64, seed=5, world_size=2, accumulate=4).plan(0)
    assert len(eight) % 8 == 0
    same = next(i for i, (a, b) in enumerate(zip(one, eight, strict=False)) if a.tolist() != b.tolist())
    assert same >= len(one) - 8


def test_another_number_of_ranks_goes_on_with_the_same_updates(pairs: Pairs) -> None:
    one = BatchLoader(pairs, max_tokens=64, seed=5, accumulate=4)
    list(itertools.islice(one, 8))  # two updates
    state, expected = one.state_dict(), [visited(list(itertools.islice(one, 4))) for _ in range(3)]
    for world_size, update in ((2, 0), (4, 1), (1, 2)):
        accumulate = 4 // world_size
        ranks = [
            BatchLoader(pairs, max_tokens=64, seed=5, accumulate=accumulate, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        for loader in ranks:
            loader.load_state_dict(state)
        assert visited([b for loader in ranks for b in itertools.islice(loader, accumulate)]) == expected[update]
        state = ranks[-1].state_dict()


def test_too_few_pairs_for_equal_counts_are_refused(pairs: Pairs) -> None:
    assert len(BatchLoader(Pairs([(1, 1)] * 6), max_tokens=99, world_size=6)) == 1
    with pytest.raises(UserError, match="too few sentence pairs: 6 single ones for updates of 7 batches"):
        BatchLoader(Pairs([(1, 1)] * 6), max_tokens=99, world_size=7)


def test_a_pair_longer_than_the_budget_is_refused_with_the_way_out() -> None:
    with pytest.raises(UserError, match=r"max_tokens=16 is less than one sentence pair of 21 tokens: raise it"):
        BatchLoader(Pairs([(3, 4), (20, 5)]), max_tokens=16)


def test_no_pairs_at_all_are_refused() -> None:
    with pytest.raises(UserError, match="no sentence pair is left"):
        BatchLoader(Pairs([]), max_tokens=16)
