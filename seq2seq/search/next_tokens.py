"""The scores of each row's next token after a step; knows ids, never a model."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seq2seq.device import on_host
from seq2seq.errors import UserError

INF = float("inf")

Best = tuple[Float[Tensor, "n c"], Int[Tensor, "n c"]]  # each row's best tokens, best first: log-probabilities, ids
FindBest = Callable[[Float[Tensor, "n v"], Bool[Tensor, "n v"], int], Best]  # as `best_next`
Table = list[list[float]]


def next_log_probs(logits: Float[Tensor, "n v"], forbidden: Bool[Tensor, "n v"]) -> Float[Tensor, "n v"]:
    """Return the log-probabilities (nats) of logits, with -inf for forbidden tokens.

    All other tokens keep their probability by the model. So a translation has the same score, whether a search found
    the translation or the model scores it afterwards.
    """
    return logits.log_softmax(-1).masked_fill_(forbidden, -INF)


def best_next(logits: Float[Tensor, "n v"], forbidden: Bool[Tensor, "n v"], count: int) -> Best:
    """Return each row's best tokens, c = min(count, v) of them, by the log-probabilities of `next_log_probs`."""
    values, tokens = next_log_probs(logits, forbidden).topk(min(count, logits.shape[1]))
    return values, tokens


@dataclass(frozen=True)
class NextTokens:
    """The scores of each row's next token after a step."""

    logits: Float[Tensor, "n v"]  # by the model
    forbidden: Bool[Tensor, "n v"]  # tokens that rules and limits forbid
    find_best: FindBest

    @cached_property
    def log_probs(self) -> Float[Tensor, "n v"]:
        """Log-probabilities; -inf for forbidden tokens (nats)."""
        return next_log_probs(self.logits, self.forbidden)

    def best(self, count: int) -> tuple[Table, list[list[int]]]:
        """Return each row's best tokens, on the host: log-probabilities and ids.

        A token that is forbidden has -inf.
        """
        values, tokens = on_host(*self.find_best(self.logits, self.forbidden, count))
        require_numbers(values)
        return values.tolist(), tokens.tolist()


def require_numbers(log_probs: Float[np.ndarray, "..."]) -> None:
    """Refuse the log-probabilities of a damaged model."""
    if np.isnan(log_probs).any():
        raise UserError("the model's scores are not numbers (NaN): its weights are damaged, train it again")
