"""The decoders for search: what a search calls, and which decoder a model gets."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.model.decoding import FlatDecoder
from seq2seq.model.ensemble import Ensemble, EnsembleState, mean_log_probs
from seq2seq.model.graphs import CudaGraphs, GraphedDecoder
from seq2seq.model.native import NativeDecoder
from seq2seq.model.transformer import Transformer


@runtime_checkable
class Decoder(Protocol):
    """A model as a search uses it: reads sources into a state, and continues each row by one token."""

    def encode(self, src: Int[Tensor, "b s"]) -> Any:
        """Read the source ids; return the state before the first target token, with one row per sentence."""
        ...

    def step(self, last: Int[Tensor, " n"], state: Any) -> tuple[Float[Tensor, "n v"], Any]:
        """Continue every row by its last token; return the logits of the next tokens, and the state after the step.

        The logits, and attention in the state, are valid until the state's next step.
        """
        ...

    def limited_to(self, ids: Int[Tensor, " u"]) -> "Decoder":
        """Return a decoder with the same weights whose `step` reads and predicts indices into these ids.

        The probabilities of these ids alone sum to 1. `encode` still reads ids.
        """
        ...


class TextbookDecoder:
    """The decoder for search of a model without a faster decoder, such as the LSTM: calls the model's own `decode`."""

    def __init__(self, model: Any, ids: Int[Tensor, " u"] | None = None) -> None:
        """Wrap a model; with ids, `step` reads and predicts indices into these ids."""
        self.model, self.ids = model, ids

    def encode(self, src: Int[Tensor, "b s"]) -> Any:
        """Read the source; return the state before the first target token."""
        return self.model.encode(src)

    def step(self, last: Int[Tensor, " n"], state: Any) -> tuple[Float[Tensor, "n v"], Any]:
        """Continue every row by its last token; return the logits of the next tokens, and the state after the step."""
        last = last if self.ids is None else self.ids[last]
        logits, state = self.model.decode(last[:, None], state)
        logits = logits[:, -1]
        return logits if self.ids is None else logits.index_select(1, self.ids), state

    def limited_to(self, ids: Int[Tensor, " u"]) -> "TextbookDecoder":
        """Return a decoder whose `step` reads and predicts indices into these ids; see `Decoder`."""
        return TextbookDecoder(self.model, ids)


class EnsembleDecoder:
    """The decoders of several models; their prediction is the mean of the models' probabilities."""

    def __init__(self, members: Sequence[Decoder]) -> None:
        self.members = members

    def encode(self, src: Int[Tensor, "b s"]) -> EnsembleState:
        """Read the source with every member; return the members' states."""
        return EnsembleState(tuple(member.encode(src) for member in self.members))

    def step(self, last: Int[Tensor, " n"], state: EnsembleState) -> tuple[Float[Tensor, "n v"], EnsembleState]:
        """Continue every row in every member; return the logs of the mean probabilities (nats), and the new state."""
        steps = [member.step(last, own) for member, own in zip(self.members, state.states, strict=True)]
        return mean_log_probs([logits for logits, _ in steps]), EnsembleState(tuple(own for _, own in steps))

    def limited_to(self, ids: Int[Tensor, " u"]) -> "EnsembleDecoder":
        """Return the decoder of every member limited to these ids; see `Decoder`."""
        return EnsembleDecoder([member.limited_to(ids) for member in self.members])


def for_search(model: Any, dtype: torch.dtype, *, is_compiled: bool = False) -> Decoder:
    """Return a model's decoder for search, with products in dtype; is_compiled asks for C code or, on a GPU, graphs.

    A Transformer's decoder has a copy of all weights except the embedding: weights must not change while a search runs.
    Hooks on the model's modules are not called. Other models, including subclasses of Transformer, are searched by
    their own `decode`.

    Raises:
        UserError: the search cannot be compiled.
    """
    if isinstance(model, Ensemble):
        return EnsembleDecoder([for_search(member, dtype, is_compiled=is_compiled) for member in model.members])
    is_transformer = type(model) is Transformer  # and not a subclass
    if not is_transformer:
        if is_compiled:
            raise UserError("--compile is for Transformers, and this model is none: leave it out")
        return TextbookDecoder(model)
    if is_compiled and model.embedding.weight.device.type == "cpu":
        if dtype != torch.float32:
            raise UserError("--compile on the CPU computes in float32 only: leave it out")
        return NativeDecoder(model)
    flat = FlatDecoder(model, dtype)
    device = model.embedding.weight.device
    return GraphedDecoder(flat, lambda: CudaGraphs(device)) if is_compiled else flat


def release(decoder: Decoder) -> bool:
    """Free the memory that a decoder keeps for later searches; return whether there was any."""
    if isinstance(decoder, EnsembleDecoder):
        return any([release(member) for member in decoder.members])
    return isinstance(decoder, GraphedDecoder) and decoder.release()
