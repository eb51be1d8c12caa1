import math

import torch
from torch.testing import assert_close

from seq2seq.model.positions import rotate, rotations, sinusoidal

CPU = torch.device("cpu")


def test_sinusoids_are_the_papers() -> None:
    vectors = sinusoidal(0, 9, 12, CPU)
    for position in range(9):
        for i in range(6):
            angle = position / 10_000 ** (2 * i / 12)
            assert math.isclose(vectors[position, 2 * i].item(), math.sin(angle), abs_tol=1e-6)
            assert math.isclose(vectors[position, 2 * i + 1].item(), math.cos(angle), abs_tol=1e-6)


def test_positions_that_start_later_are_a_cut_of_those_from_the_start() -> None:
    assert_close(sinusoidal(4, 3, 12, CPU), sinusoidal(0, 7, 12, CPU)[4:])
    assert_close(rotations(4, 3, 12, CPU), rotations(0, 7, 12, CPU)[:, 4:])


def test_rotation_keeps_lengths_and_makes_products_depend_on_distance_only() -> None:
    query, key = torch.randn(1, 1, 1, 8).expand(1, 9, 1, 8), torch.randn(1, 1, 1, 8).expand(1, 9, 1, 8)
    rotation = rotations(0, 9, 8, CPU)
    turned_query, turned_key = rotate(query, rotation), rotate(key, rotation)
    assert_close(turned_query.norm(dim=-1), query.norm(dim=-1))
    products = turned_query[0, :, 0] @ turned_key[0, :, 0].T
    for distance in range(-4, 5):
        diagonal = products.diagonal(distance)
        assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    assert not torch.allclose(products.diagonal(1)[0], products.diagonal(2)[0])
