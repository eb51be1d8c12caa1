"""Ensembles: several models predict each token by the mean of their probabilities."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.model.encoder_decoder import EncoderDecoder


class Ensemble:
    """Models with one vocabulary, which an engine uses like one model."""

    def __init__(self, members: Sequence[EncoderDecoder]) -> None:
        self.members = members

    @property
    def can_align(self) -> bool:
        """Whether every member attends to the source."""
        return all(member.can_align for member in self.members)

    def eval(self) -> "Ensemble":
        """Switch the members' dropout off."""
        for member in self.members:
            member.eval()
        return self

    def predict(self, src: Int[Tensor, "b s"], tgt_in: Int[Tensor, "b t"]) -> Float[Tensor, "b t v"]:
        """Predict the token after each token of tgt_in: log of the mean probability (nats)."""
        return mean_log_probs([member.predict(src, tgt_in) for member in self.members])

    def predict_and_align(
        self, src: Int[Tensor, "b s"], tgt_in: Int[Tensor, "b t"]
    ) -> tuple[Float[Tensor, "b t v"], Float[Tensor, "b t s"]]:
        """Return what `predict` returns, and the mean of the members' attention to the source positions."""
        logits, weights = zip(*(member.predict_and_align(src, tgt_in) for member in self.members), strict=True)
        return mean_log_probs(logits), torch.stack(weights).mean(0)


def mean_log_probs(logits: Sequence[Float[Tensor, "*rows v"]]) -> Float[Tensor, "*rows v"]:
    """Return the log of the members' mean probability (nats)."""
    return torch.stack([member.float().log_softmax(-1) for member in logits]).logsumexp(0) - math.log(len(logits))
