"""A model small enough to be searched exhaustively, and the search in it that many tests share."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from seq2seq.search.constrained import make_search
from seq2seq.search.driver import SearchTask
from seq2seq.settings.search import SearchConfig

BOS, EOS = 2, 3
BANNED = (0, BOS)
OF_TASK = {"min_lengths", "banned", "rules", "phrases", "keys", "find_best", "on_candidates"}
KINDS: dict[str, dict[str, Any]] = {  # arguments of `search`, for every kind of search
    "greedy": {"beam": 1},
    "beam": {"beam": 3},
    "early stopping": {"beam": 3, "early_stopping": True},
    "sampling": {"sampling": True, "n_best": 4},
    "constrained": {"beam": 3, "phrases": [[[4]], [], [[5, 1]]]},
    "constrained, narrow": {"beam": 1, "phrases": [[[4, 5]], [], [[5], [1, 1]]]},
}


@dataclass(frozen=True)
class TableState:
    """What a step remembers: each row's prefix, and its sentence's table."""

    prefixes: list[tuple[int, ...]]
    tables: list[int]  # of each row

    def reorder(self, rows: Tensor) -> "TableState":
        owners = [[self.tables[row] for row in line] for line in rows.tolist()]
        assert all(len(set(line)) == 1 for line in owners), "a row must stay with its sentence"
        chosen = rows.flatten().tolist()
        return TableState([self.prefixes[row] for row in chosen], [self.tables[row] for row in chosen])


@cache
def random_logits(vocab_size: int, table: int, prefix: tuple[int, ...]) -> Tensor:
    seed = hash((table, prefix)) % 2**31
    return torch.randn(vocab_size, generator=torch.Generator().manual_seed(seed)) * 2


class TableModel:
    """Logits depend on the table's number and the complete prefix, so nothing but the true past gives them."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.calls: list[int] = []  # rows of every step

    def start(self, tables: list[int]) -> TableState:
        return TableState([()] * len(tables), tables)

    def logits(self, table: int, prefix: tuple[int, ...]) -> Tensor:
        return random_logits(self.vocab_size, table, prefix).clone()

    def step(self, last: Tensor, state: TableState) -> tuple[Tensor, TableState]:
        prefixes = [(*prefix, token) for prefix, token in zip(state.prefixes, last.tolist(), strict=True)]
        assert max(last.tolist()) < self.vocab_size
        self.calls.append(len(prefixes))
        rows = [self.logits(table, prefix) for table, prefix in zip(state.tables, prefixes, strict=True)]
        return torch.stack(rows), replace(state, prefixes=prefixes)

    def log_probs(self, table: int, ids: tuple[int, ...]) -> list[float]:
        return self.logits(table, (BOS, *ids)).log_softmax(-1).tolist()

    def prefix_score(self, table: int, ids: list[int] | tuple[int, ...]) -> float:
        """Return the sum of the log-probabilities of a hypothesis' tokens, ended or not."""
        return sum(self.log_probs(table, tuple(ids[:position]))[token] for position, token in enumerate(ids))

    def score(self, table: int, ids: list[int]) -> float:
        return self.prefix_score(table, [*ids, EOS])

    def all_sequences(self, table: int, longest: int, alpha: float = 1.0) -> list[list[int]]:
        """Return every sequence of at most longest tokens, most valuable first."""
        values: dict[tuple[int, ...], float] = {}
        scores = {(): 0.0}
        while scores:
            ids, score = scores.popitem()
            log_probs = self.log_probs(table, ids)
            values[ids] = (score + log_probs[EOS]) / (len(ids) + 1) ** alpha
            if len(ids) < longest:
                letters = (token for token in range(self.vocab_size) if token not in (*BANNED, EOS))
                scores |= {(*ids, token): score + log_probs[token] for token in letters}
        return [list(ids) for ids in sorted(values, key=values.__getitem__, reverse=True)]


def make_task(limits, *, n_best=None, **arguments) -> SearchTask:
    """A task of `SearchTask`'s arguments (`OF_TASK`) and of settings; it wants as many hypotheses as the beam has."""
    settings = SearchConfig(**{name: value for name, value in arguments.items() if name not in OF_TASK})
    of_task = {"banned": BANNED, **{name: value for name, value in arguments.items() if name in OF_TASK}}
    n_best = settings.beam if n_best is None else n_best
    return SearchTask(settings=settings, bos=BOS, eos=EOS, max_lengths=limits, n_best=n_best, **of_task)


def search(model, tables, limits, *, kind=make_search, **arguments):
    """Each table's hypotheses of at most limits tokens; arguments are those of `make_task`."""
    return kind(make_task(limits, **arguments)).run(model.step, model.start(tables))


def ids_of(hypotheses) -> list[list[int]]:
    return [hypothesis.ids for hypothesis in hypotheses]


def contains(ids, phrase) -> bool:
    return any(list(ids[start : start + len(phrase)]) == list(phrase) for start in range(len(ids)))
