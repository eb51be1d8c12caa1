"""Tokens come back from disk as they went in, without being copied or loaded."""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from seq2seq.data.batching import collate
from seq2seq.data.dataset import Pairs, PreparedData, id_type, trained_length, write_pairs
from seq2seq.text.tokenizer import EOS, PAD
from tests.refusing import refuses

SRC = [[4, 5, 6], [], [7], [8, 9]]
TGT = [[10], [11, 12], [], [13, 14, 15, 16]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_pairs(tmp_path / "tokens", [Pairs.of(SRC[:3], TGT[:3]), Pairs.of([], []), Pairs.of(SRC[3:], TGT[3:])])
    return tmp_path / "tokens"


def as_lists(dataset: Pairs) -> list[tuple[list[int], list[int]]]:
    return [(src.tolist(), tgt.tolist()) for src, tgt in (dataset[i] for i in range(len(dataset)))]


def test_pairs_come_back_in_order_across_parts_as_views_of_the_file(path: Path):
    dataset = Pairs.load(path)
    assert as_lists(dataset) == list(zip(SRC, TGT, strict=True))
    assert np.shares_memory(dataset[0][0], dataset[0][0])
    assert not dataset[0][0].flags.writeable


@pytest.mark.parametrize(("vocab_size", "id_bytes"), [(65_536, 2), (65_537, 4)])
def test_ids_take_two_bytes_if_the_vocabulary_allows(tmp_path: Path, vocab_size: int, id_bytes: int):
    src, tgt = [[vocab_size - 1, 4], [5]], [[], [0, vocab_size - 1]]
    write_pairs(tmp_path / "tokens", [Pairs.of(src, tgt, id_type((vocab_size, None)))])
    dataset = Pairs.load(tmp_path / "tokens")
    assert (tmp_path / "tokens.ids").stat().st_size == 5 * id_bytes
    assert as_lists(dataset) == list(zip(src, tgt, strict=True))
    assert collate([dataset[0], dataset[1]]).src.tolist() == [[vocab_size - 1, 4, EOS], [5, EOS, PAD]]


@pytest.mark.parametrize("lengths", [[3, 2, 1], [3, -1], [3, 3], []])
def test_files_that_do_not_fit_each_other_are_refused(tmp_path: Path, lengths: list[int]):
    np.arange(5, dtype=np.int32).tofile(tmp_path / "tokens.ids")
    np.array(lengths, np.int32).tofile(tmp_path / "tokens.lengths")
    refuses("is damaged: remove that folder", Pairs.load, tmp_path / "tokens")


def test_the_trained_length_leaves_out_one_source_in_a_hundred():
    lengths = np.stack([np.arange(1, 201), np.ones(200)], axis=1).astype(np.int32)
    pairs = Pairs(np.zeros(lengths.sum(), np.int32), lengths)
    assert trained_length(Mock(spec=PreparedData, train=pairs)) == 199
