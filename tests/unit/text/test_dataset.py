"""Tokens come back from disk as they went in, without being copied or loaded."""

import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.text import dataset
from seq2seq.text.dataset import TokenDataset, TokenWriter

SRC = [[4, 5, 6], [], [7], [8, 9]]
TGT = [[10], [11, 12], [], [13, 14, 15, 16]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with TokenWriter(tmp_path / "tokens.arrow") as writer:
        writer.write(SRC[:3], TGT[:3])
        writer.write([], [])
        writer.write(SRC[3:], TGT[3:])
    return tmp_path / "tokens.arrow"


def as_lists(dataset: TokenDataset) -> list[tuple[list[int], list[int]]]:
    return [(src.tolist(), tgt.tolist()) for src, tgt in (dataset[i] for i in range(len(dataset)))]


def test_pairs_come_back_in_order_across_batches(path: Path):
    assert as_lists(TokenDataset(path)) == list(zip(SRC, TGT, strict=True))


def test_lengths_are_those_of_the_items(path: Path):
    dataset = TokenDataset(path)
    assert dataset.src_lengths.tolist() == [3, 0, 1, 2]
    assert dataset.tgt_lengths.tolist() == [1, 2, 0, 4]
    assert dataset.src_lengths.dtype == dataset.tgt_lengths.dtype == dataset[0][0].dtype == np.int32


def test_items_are_views_of_the_file(path: Path):
    dataset = TokenDataset(path)
    first, again = dataset[0][0], dataset[0][0]
    assert np.shares_memory(first, again)
    assert not first.flags.writeable
    assert not first.flags.owndata


def test_items_outlive_the_dataset(path: Path):
    src, tgt = TokenDataset(path)[3]
    assert (src.tolist(), tgt.tolist()) == ([8, 9], [13, 14, 15, 16])


@pytest.mark.parametrize("index", [-1, 4])
def test_an_index_outside_is_refused(path: Path, index: int):
    with pytest.raises(IndexError, match=f"pair {index} of 4"):
        TokenDataset(path)[index]


def test_a_numpy_index_does_too(path: Path):
    assert TokenDataset(path)[np.int64(3)][0].tolist() == [8, 9]


def test_a_pickle_is_the_path_and_not_the_tokens(tmp_path: Path):
    with TokenWriter(tmp_path / "tokens.arrow") as writer:
        writer.write([[1] * 1000] * 100, [[2] * 1000] * 100)
    dataset = TokenDataset(tmp_path / "tokens.arrow")
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 1000
    assert as_lists(pickle.loads(pickled)) == as_lists(dataset)


def test_no_pairs_at_all_is_an_empty_dataset(tmp_path: Path):
    with TokenWriter(tmp_path / "tokens.arrow"):
        pass
    dataset = TokenDataset(tmp_path / "tokens.arrow")
    assert len(dataset) == len(dataset.src_lengths) == 0


@given(st.lists(st.lists(st.tuples(*[st.lists(st.integers(0, 2**31 - 1), max_size=5)] * 2), max_size=4), max_size=4))
def test_any_batches_of_any_pairs_survive(tmp_path_factory: pytest.TempPathFactory, batches: list):
    path = tmp_path_factory.mktemp("arrow") / "tokens.arrow"
    with TokenWriter(path) as writer:
        for batch in batches:
            writer.write([src for src, _ in batch], [tgt for _, tgt in batch])
    assert as_lists(TokenDataset(path)) == [pair for batch in batches for pair in batch]


@given(st.lists(st.integers(0, 50), max_size=6), st.booleans())
def test_the_bytes_depend_on_the_pairs_and_not_on_the_calls(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], copied: bool
):
    folder = tmp_path_factory.mktemp("arrow")
    rows = [[number] * (number % 4) for number in range(50)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "ROWS", 15)
        with TokenWriter(folder / "at once") as writer:
            writer.write(rows, rows[::-1])
        with TokenWriter(folder / "in parts") as writer:
            for number, (start, stop) in enumerate(pairwise([0, *sorted(cuts), 50])):
                part = folder / str(number)
                with TokenWriter(part) as of_part:
                    of_part.write(rows[start:stop], rows[::-1][start:stop])
                if copied:
                    writer.copy(part)
                else:
                    writer.write(rows[start:stop], rows[::-1][start:stop])
    assert (folder / "in parts").read_bytes() == (folder / "at once").read_bytes()
