"""Ensembles: several models predict each token by the mean of their probabilities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.model.encoder_decoder import EncoderDecoder


@dataclass(frozen=True)
class EnsembleState:
    """The states of an ensemble's members."""

    states: tuple[Any, ...]

    def reorder(self, rows: Int[Tensor, " n"], counts: Sequence[int]) -> "EnsembleState":
        """Return the state in which new row i continues old row rows[i], for every member."""
        return EnsembleState(tuple(state.reorder(rows, counts) for state in self.states))

    def watching(self) -> "EnsembleState":
        """Return the state that keeps attention from now on."""
        return EnsembleState(tuple(state.watching() for state in self.states))

    @property
    def attention(self) -> Float[Tensor, "n t s"]:
        """Attention of the last tokens to each source position, averaged over the members."""
        return torch.stack([state.attention for state in self.states if state.attention is not None]).mean(0)


class Ensemble:
    """Models with one vocabulary, which a search uses like one model."""

    def __init__(self, members: Sequence[EncoderDecoder]) -> None:
        self.members = members
        self.training = False

    @property
    def can_align(self) -> bool:
        """Whether every member attends to the source."""
        return all(member.can_align for member in self.members)

    def train(self, mode: bool = True) -> "Ensemble":
        """Switch the members' dropout on or off."""
        self.training = mode
        for member in self.members:
            member.train(mode)
        return self

    def encode(self, src: Int[Tensor, "b s"]) -> EnsembleState:
        """Encode the source with every member."""
        return EnsembleState(tuple(member.encode(src) for member in self.members))

    def decode(self, tgt_in: Int[Tensor, "n t"], state: EnsembleState) -> tuple[Float[Tensor, "n t v"], EnsembleState]:
        """Predict the token after each token of tgt_in: log of the mean probability (nats)."""
        steps = [member.decode(tgt_in, own) for member, own in zip(self.members, state.states, strict=True)]
        return mean_log_probs([logits for logits, _ in steps]), EnsembleState(tuple(own for _, own in steps))


def mean_log_probs(logits: Sequence[Float[Tensor, "*rows v"]]) -> Float[Tensor, "*rows v"]:
    """Return the log of the members' mean probability (nats)."""
    return torch.stack([one.float().log_softmax(-1) for one in logits]).logsumexp(0) - math.log(len(logits))
