"""A model small enough to be searched exhaustively: a random table of logits for every prefix."""

import itertools
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

BOS, EOS = 2, 3


@dataclass(frozen=True)
class TableState:
    """What a step remembers: each row's prefix, and its sentence's table."""

    prefixes: list[tuple[int, ...]]
    tables: list[int]  # of each row
    counts: list[int]  # rows of each sentence

    def reorder(self, rows: Tensor, counts: list[int]) -> "TableState":
        owners = [number for number, count in enumerate(self.counts) for _ in range(count)]
        expected = [number for number, count in enumerate(counts) for _ in range(count)]
        assert [owners[row] for row in rows.tolist()] == expected, "a row must stay with its sentence"
        chosen = rows.tolist()
        return TableState(
            [self.prefixes[row] for row in chosen], [self.tables[row] for row in chosen], [c for c in counts if c]
        )


class TableModel:
    """Logits depend on the table's number and the whole prefix, so nothing but the true past gives them."""

    def __init__(self, vocab_size: int, spread: float = 2.0) -> None:
        self.vocab_size, self.spread = vocab_size, spread
        self.calls: list[int] = []  # rows of every step

    def start(self, tables: list[int]) -> TableState:
        return TableState([()] * len(tables), tables, [1] * len(tables))

    def logits(self, table: int, prefix: tuple[int, ...]) -> Tensor:
        seed = hash((table, prefix)) % 2**31
        return torch.randn(self.vocab_size, generator=torch.Generator().manual_seed(seed)) * self.spread

    def step(self, last: Tensor, state: TableState) -> tuple[Tensor, TableState]:
        prefixes = [(*prefix, token) for prefix, token in zip(state.prefixes, last.tolist(), strict=True)]
        assert max(last.tolist()) < self.vocab_size
        self.calls.append(len(prefixes))
        rows = [self.logits(table, prefix) for table, prefix in zip(state.tables, prefixes, strict=True)]
        return torch.stack(rows), replace(state, prefixes=prefixes)

    def score(self, table: int, ids: list[int]) -> float:
        tokens = (BOS, *ids, EOS)
        steps = (
            self.logits(table, tokens[:position]).log_softmax(-1)[tokens[position]]
            for position in range(1, len(tokens))
        )
        return sum(step.item() for step in steps)

    def all_sequences(self, table: int, longest: int, alpha: float, banned: tuple[int, ...]) -> list[list[int]]:
        """Every sequence of at most longest tokens, most valuable first."""
        letters = [token for token in range(self.vocab_size) if token != EOS and token not in banned]
        sequences = [list(ids) for length in range(longest + 1) for ids in itertools.product(letters, repeat=length)]
        return sorted(sequences, key=lambda ids: self.score(table, ids) / (len(ids) + 1) ** alpha, reverse=True)


@pytest.fixture
def table_model() -> type[TableModel]:
    return TableModel
