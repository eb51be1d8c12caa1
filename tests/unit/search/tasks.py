"""The ids of `table_model`, and a search in it that many tests share."""

from typing import Any

from seq2seq.search import make_search
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
    "diverse": {"beam": 6, "groups": 3},
    "constrained": {"beam": 3, "phrases": [[[4]], [], [[5, 1]]]},
    "constrained, narrow": {"beam": 1, "phrases": [[[4, 5]], [], [[5], [1, 1]]]},
}


def make_task(limits, *, n_best=None, **arguments) -> SearchTask:
    """A task of `SearchTask`'s arguments (`OF_TASK`) and of settings; it wants as many hypotheses as the beam has."""
    settings = SearchConfig(**{name: value for name, value in arguments.items() if name not in OF_TASK})
    given = {"banned": BANNED, **{name: value for name, value in arguments.items() if name in OF_TASK}}
    n_best = settings.beam if n_best is None else n_best
    return SearchTask(settings=settings, bos=BOS, eos=EOS, max_lengths=limits, n_best=n_best, **given)


def search(model, tables, limits, *, kind=make_search, **arguments):
    """Each table's hypotheses of at most limits tokens; arguments are those of `make_task`."""
    return kind(make_task(limits, **arguments)).run(model.step, model.start(tables))


def ids_of(hypotheses) -> list[list[int]]:
    return [one.ids for one in hypotheses]


def contains(ids, phrase) -> bool:
    return any(list(ids[start : start + len(phrase)]) == list(phrase) for start in range(len(ids)))


def prefix_score(model, table, ids) -> float:
    """Return the sum of the log-probabilities of a hypothesis' tokens, ended or not."""
    tokens = (BOS, *ids)
    return sum(
        model.logits(table, tokens[:position]).log_softmax(-1)[tokens[position]].item()
        for position in range(1, len(tokens))
    )
