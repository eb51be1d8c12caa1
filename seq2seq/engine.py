"""Source ids to hypotheses with one model: batches by length, precision, memory; knows no text."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.config import SearchConfig
from seq2seq.device import is_out_of_memory
from seq2seq.errors import UserError
from seq2seq.search.beam import beam_search
from seq2seq.search.greedy import greedy_search
from seq2seq.search.step import Hypothesis
from seq2seq.text.vocab import BOS, EOS, PAD, UNK

log = logging.getLogger(__name__)


@runtime_checkable
class EncoderDecoder(Protocol):
    """What a model must offer to be translated with; every PyTorch module has the last three."""

    training: bool

    def encode(self, src: Tensor) -> Any:
        """Read source ids, (b, s); the state before the first target token."""
        ...

    def decode(self, tgt_in: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Advance the targets by (n, t) ids; logits (n, t, v) and the state after them."""
        ...

    def train(self, mode: bool = True) -> Any:
        """Switch dropout on or off."""
        ...


class Engine:
    """Searches translations of any number of sources, in batches that fit into memory."""

    def __init__(self, model: EncoderDecoder, device: torch.device, dtype: torch.dtype) -> None:
        """Wrap a model that is on device; dtype is that of its matrix products."""
        self.model, self.device, self.dtype = model, device, dtype

    def search(
        self, sources: Sequence[list[int]], settings: SearchConfig, n_best: int
    ) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
        """Search the n best translations of every source, longest first; yields (source index, hypotheses) by batch.

        Batches shrink for good when memory runs out.

        Args:
            sources: ids without EOS.
            settings: beam, length penalty, limits and batch size.
            n_best: hypotheses wanted of each source, at most the beam.

        Raises:
            UserError: one source alone exceeds the memory, or the model computes NaN.
        """
        waiting = sorted(range(len(sources)), key=lambda index: len(sources[index]), reverse=True)
        budget = settings.batch_tokens
        while waiting:
            longest = len(sources[waiting[0]])
            cost = (longest + 1) * settings.beam  # of every source in the batch, since all are padded to the longest
            batch = waiting[: max(1, budget // cost)]
            hypotheses = self._search_or_none([sources[index] for index in batch], settings, n_best)
            if hypotheses is not None:
                yield list(zip(batch, hypotheses, strict=True))
                waiting = waiting[len(batch) :]
            elif len(batch) == 1:
                raise UserError(
                    f"a text of {longest} tokens does not fit into the memory of {self.device} with "
                    f"beam={settings.beam}: use a smaller beam or max_length, or another device"
                )
            else:
                budget = len(batch) // 2 * cost
                log.warning("out of memory: going on with batches of %d tokens (batch_tokens)", budget)

    def _search_or_none(
        self, ids: list[list[int]], settings: SearchConfig, n_best: int
    ) -> list[list[Hypothesis]] | None:
        """Search one batch; None when the memory does not suffice."""
        try:
            return self._search(ids, settings, n_best)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # only now: the exception held the tensors
        return None

    def _search(self, ids: list[list[int]], settings: SearchConfig, n_best: int) -> list[list[Hypothesis]]:
        lengths = torch.tensor([len(row) for row in ids])
        src = torch.full((len(ids), int(lengths.max()) + 1), PAD)
        for row, row_ids in zip(src, ids, strict=True):
            row[: len(row_ids) + 1] = torch.tensor([*row_ids, EOS])
        max_lengths = (lengths * settings.max_length_ratio + settings.max_length_offset).long().to(self.device)
        options = {"num_sentences": len(ids), "bos": BOS, "eos": EOS, "max_lengths": max_lengths, "device": self.device}
        options |= {"alpha": settings.length_penalty, "banned": (PAD, UNK, BOS)}
        with self._inference():
            state = self.model.encode(src.to(self.device))
            if settings.beam == 1:
                found = greedy_search(self._step, state, **options)
            else:
                found = beam_search(self._step, state, beam=settings.beam, n_best=n_best, **options)
        if not all(found):
            raise UserError("the model's scores are not numbers (NaN): its weights are damaged, train it again")
        return found

    def _step(self, last: Int[Tensor, " n"], state: Any) -> tuple[Float[Tensor, "n v"], Any]:
        logits, state = self.model.decode(last[:, None], state)
        return logits[:, -1].float(), state

    @contextmanager
    def _inference(self) -> Iterator[None]:
        """No gradients, no dropout, the chosen precision; afterwards the model trains on if it did before.

        Not `inference_mode`: in it, autocast converts the weights anew for every token, and what a model keeps for
        later (positions) could not be trained with.
        """
        was_training = self.model.training
        self.model.train(False)
        autocast = torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)
        try:
            with torch.inference_mode(False), torch.no_grad(), autocast:
                yield
        finally:
            self.model.train(was_training)
