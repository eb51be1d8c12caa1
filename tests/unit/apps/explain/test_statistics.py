import math

import pytest
import torch

from seq2seq.apps.explain.explanation import HeadStatistics, head_statistics


def test_a_head_on_its_own_position_has_no_entropy_and_no_distance():
    assert head_statistics(torch.eye(5)[None]) == [HeadStatistics(entropy=0.0, distance=0.0, diagonal=1.0)]


def test_a_uniform_head_has_the_entropy_of_its_width():
    (statistics,) = head_statistics(torch.full((1, 4, 4), 0.25))
    assert statistics.entropy == pytest.approx(math.log(4))
    assert statistics.distance == pytest.approx((6 + 4 + 4 + 6) / 16)
    assert statistics.diagonal == pytest.approx(0.25)


def test_the_diagonal_of_cross_attention_runs_from_the_first_piece_to_the_last():
    straight = torch.zeros(1, 3, 6)  # positions 0, 2.5 and 5 of the source; 3 is the later neighbour of 2.5
    straight[0, 0, 0] = straight[0, 1, 3] = straight[0, 2, 5] = 1
    (statistics,) = head_statistics(straight)
    assert statistics.diagonal == 1
    assert statistics.distance == pytest.approx(0.5 / 3)


def test_a_target_of_one_piece_corresponds_to_the_first_source_piece():
    (statistics,) = head_statistics(torch.tensor([[[0.5, 0.25, 0.25]]]))
    assert (statistics.distance, statistics.diagonal) == (pytest.approx(0.75), 0.5)


def test_heads_are_described_one_by_one():
    both = torch.stack((torch.eye(4), torch.full((4, 4), 0.25)))
    assert head_statistics(both) == [*head_statistics(both[:1]), *head_statistics(both[1:])]
