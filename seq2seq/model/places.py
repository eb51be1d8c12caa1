"""The places of a search's rows among its sentences: rows of one sentence share its keys and values."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from seq2seq.device import tensor_on

PACK_BELOW = 0.75  # finished sentences leave the memory when at most this share of its sentences is still searched


@dataclass(frozen=True)
class Places:
    """The places of n rows among b sentences with up to w rows each; the rows of a sentence are neighbours.

    of_row: each row's place, from 0 to b * w - 1; None: every place has a row, and row i has place i.
    row_at: each place's row; any row for a place without a row; None as for of_row.
    """

    sentences: int
    width: int = 1
    of_row: Int[Tensor, " n"] | None = None
    row_at: Int[Tensor, " bw"] | None = None

    @classmethod
    def of(
        cls, numbers: Sequence[int], counts: Sequence[int], sentences: int, device: torch.device, width: int
    ) -> "Places":
        """Return the places in which sentence numbers[i] has counts[i] of at most `width` rows."""
        if sentences * width == sum(counts):
            return cls(sentences, width)
        of_row = [number * width + row for number, count in zip(numbers, counts, strict=True) for row in range(count)]
        row_at = [0] * (sentences * width)
        for row, place in enumerate(of_row):
            row_at[place] = row
        return cls(sentences, width, tensor_on(device, of_row), tensor_on(device, row_at))

    def spread(self, rows: Shaped[Tensor, "n ..."]) -> Shaped[Tensor, "b w ..."]:
        """Return rows by sentence and place; a place without a row repeats any row, and nothing reads it."""
        if self.row_at is not None:
            rows = rows.index_select(0, self.row_at)
        return rows.view(self.sentences, self.width, *rows.shape[1:])

    def collect(self, places: Shaped[Tensor, "b w ..."]) -> Shaped[Tensor, "n ..."]:
        """Return the rows of all places that have one; this undoes `spread`."""
        rows = places.reshape(self.sentences * self.width, *places.shape[2:])
        return rows if self.of_row is None else rows.index_select(0, self.of_row)


def still_searched(numbers: Sequence[int], counts: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the numbers and counts of the sentences that still have rows."""
    kept = [(number, count) for number, count in zip(numbers, counts, strict=True) if count]
    return [number for number, _ in kept], [count for _, count in kept]
