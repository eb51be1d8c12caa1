"""The scores of each row's next token after a step; knows ids, never a model."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seq2seq.device import on_host, tensor_on
from seq2seq.errors import UserError

INF = float("inf")
MAX_QUICK = 64  # for up to this many best tokens of a row, a decoder's own function is faster

Best = tuple[Float[Tensor, "n c"], Int[Tensor, "n c"]]  # each row's best tokens, best first: log-probabilities, ids
FindBest = Callable[[Float[Tensor, "n v"], Int[Tensor, " u"], int], Best]  # as `best_next`
Change = Callable[[Float[Tensor, "n v"]], Float[Tensor, "n v"]]
Table = list[list[float]]


def next_log_probs(logits: Float[Tensor, "n v"], banned: Int[Tensor, " u"]) -> Float[Tensor, "n v"]:
    """Return the log-probabilities (nats) of logits, with -inf for banned tokens.

    All other tokens keep their probability by the model. So a translation has the same score, whether a search found
    the translation or the model scores it afterwards.
    """
    return logits.log_softmax(-1).index_fill_(1, banned, -INF)


def best_tokens(log_probs: Float[Tensor, "n v"], count: int) -> Best:
    """Return each row's best tokens, c = min(count, v) of them."""
    if count == 1:
        return log_probs.max(-1, keepdim=True)
    size = math.gcd(log_probs.shape[1], 64)  # the best c tokens lie in the c blocks of the greatest maxima
    blocks = log_probs.reshape(len(log_probs), -1, size)
    chosen = blocks.amax(-1).topk(min(count, blocks.shape[1])).indices  # (n, c)
    values, order = (
        blocks.gather(1, chosen[:, :, None].expand(-1, -1, size)).flatten(1).topk(min(count, log_probs.shape[1]))
    )
    return values, chosen.gather(1, order // size) * size + order % size


def best_next(logits: Float[Tensor, "n v"], banned: Int[Tensor, " u"], count: int) -> Best:
    """Return each row's best tokens, c = min(count, v) of them, by the log-probabilities of `next_log_probs`."""
    return best_tokens(next_log_probs(logits, banned), count)


@dataclass(frozen=True)
class NextTokens:
    """The scores of each row's next token after a step; a score is computed only when a search reads it."""

    logits: Float[Tensor, "n v"]  # by the model
    banned: Int[Tensor, " u"]  # tokens that no hypothesis contains
    eos: int
    too_short: Bool[np.ndarray, " n"] | None  # rows that may not end yet; None: all may
    change: Change | None  # forbids tokens by rules and limits; None: there are none
    find_best: FindBest  # finds up to `MAX_QUICK` best tokens of each row

    @cached_property
    def log_probs(self) -> Float[Tensor, "n v"]:
        """Log-probabilities; -inf for tokens that are banned, or that rules or limits forbid (nats)."""
        log_probs = next_log_probs(self.logits, self.banned)
        if self.too_short is not None:
            log_probs[:, self.eos].masked_fill_(tensor_on(log_probs.device, self.too_short).bool(), -INF)
        return log_probs if self.change is None else self.change(log_probs)

    def best(self, count: int) -> tuple[Table, list[list[int]]]:
        """Return each row's best tokens, on the host: log-probabilities and ids.

        A token that is forbidden has -inf.

        Raises:
            UserError: a log-probability is NaN.
        """
        if self.change is None and count < MAX_QUICK:
            best = self.find_best(self.logits, self.banned, count + (self.too_short is not None))
            values, tokens = on_host(*best)
            if self.too_short is not None:
                values[self.too_short[:, None] & (tokens == self.eos)] = -INF
        else:
            values, tokens = on_host(*best_tokens(self.log_probs, count))
        require_numbers(values)
        return values.tolist(), tokens.tolist()


def require_numbers(log_probs: Float[np.ndarray, "..."]) -> None:
    """Refuse the log-probabilities of a damaged model."""
    if np.isnan(log_probs).any():
        raise UserError("the model's scores are not numbers (NaN): its weights are damaged, train it again")
