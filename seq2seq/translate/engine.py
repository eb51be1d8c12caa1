"""Searches hypotheses for source ids with one model, in batches that fit into memory; knows no text."""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.device import default_dtype, prepare, tensor_on
from seq2seq.errors import UserError, is_out_of_memory
from seq2seq.model.decoders import Decoder, Ensemble, decoder_for_search
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.native import NativeDecoder
from seq2seq.search.constrained import make_search
from seq2seq.search.driver import SearchTask, best_next
from seq2seq.search.rules import make_rules
from seq2seq.search.shortlist import Shortlist, Subset
from seq2seq.search.types import Candidate, Hypothesis, Phrases, Source, TokenScores, length_limits
from seq2seq.settings import rules
from seq2seq.settings.checks import IntOrAuto
from seq2seq.settings.search import Compile, SearchConfig
from seq2seq.text.tokenizer import BOS, EOS, PAD, UNPRODUCIBLE_IDS

log = logging.getLogger(__name__)
_GROWTH = 1.01  # of batches, after each one that fits: 70 batches after memory ran out, they are twice as large
R = TypeVar("R")


class Engine:
    """Searches translations of any number of sources, in batches that fit into memory.

    The model is put into evaluation mode. Its weights must not change while the engine is used: the compiled step has
    a copy of them. Several threads may use one engine, but not while it is sent to another process.
    """

    def __init__(
        self,
        model: EncoderDecoder | Ensemble,
        device: torch.device | str,
        dtype: torch.dtype | None = None,
        *,
        compiles: Compile = "auto",
        shortlist: Shortlist | None = None,
        start: int = BOS,
        unproducible: Sequence[int] = UNPRODUCIBLE_IDS,
        renormalises: bool = False,
    ) -> None:
        """Wrap a model that is on device; dtype is the type of its matrix products, by default `default_dtype`.

        With a shortlist, the search of a batch predicts only the ids that the batch's sources need, and the
        probabilities of these ids alone sum to 1. `score` always uses the whole vocabulary. The id `start` precedes
        every translation. Translations contain none of the unproducible ids; with renormalises, the unproducible ids
        have probability 0, and the other ids' probabilities sum to 1. `compiles` is as in `decoder_for_search`.
        """
        self.model, self.device, self.shortlist = model.eval(), torch.device(device), shortlist
        self.start, self.unproducible, self.renormalises = start, tuple(unproducible), renormalises
        self.dtype = dtype or default_dtype(self.device)
        self.compiles: Compile = compiles
        self._decoder: Decoder | None = None
        prepare(self.device)
        self._limit = math.inf  # smaller batch_tokens, after memory ran out
        if compiles == "on":
            self._decoder_for_search()

    @property
    def can_align(self) -> bool:
        """Whether the model attends to the source."""
        return self.model.can_align

    def search(
        self,
        sources: Sequence[Source],
        settings: SearchConfig,
        n_best: int,
        banned: Phrases = (),
        *,
        on_step: Callable[[], object] | None = None,
        on_candidates: Callable[[list[Candidate]], object] | None = None,
    ) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
        """Search the n best translations of every source, longest first; yields (source index, hypotheses) by batch.

        When memory runs out, batches become smaller, and grow again as later batches fit.

        Args:
            sources: texts to translate.
            settings: search settings, and the batch size.
            n_best: hypotheses wanted of each source, at most the beam; with sampling, the number of samples.
            banned: sequences of ids that appear in no translation.
            on_step: called before every step; it may run another search, and its exceptions end this search.
            on_candidates: called with each sentence's candidates in every step of a plain beam search.
        """
        lengths, rows = [len(source.ids) + 1 for source in sources], n_best if settings.sampling else settings.beam

        def compute(batch: list[int]) -> list[list[Hypothesis]]:
            return self._search([sources[i] for i in batch], settings, n_best, banned, on_step, on_candidates)

        yield from self._batches(lengths, settings.batch_tokens, compute, rows=rows)

    def score(
        self,
        sources: Sequence[list[int]],
        targets: Sequence[list[int]],
        batch_tokens: IntOrAuto,
        *,
        align: bool = False,
    ) -> Iterator[list[tuple[int, TokenScores]]]:
        """Score given translations with the model; all ids are without EOS; yields (index, scores) by batch.

        A batch has at most batch_tokens positions of the longer side, padding included. With align, scores have
        attention.
        """
        lengths = [max(len(src), len(tgt)) + 1 for src, tgt in zip(sources, targets, strict=True)]

        def compute(batch: list[int]) -> list[TokenScores]:
            return self._score([sources[i] for i in batch], [targets[i] for i in batch], align)

        yield from self._batches(lengths, batch_tokens, compute)

    def _batches(
        self,
        lengths: Sequence[int],
        batch_tokens: IntOrAuto,
        compute: Callable[[list[int]], list[R]],
        *,
        rows: int = 1,
    ) -> Iterator[list[tuple[int, R]]]:
        """Compute the results of all texts in batches, longest first; yields (index, result) by batch.

        A batch has at most batch_tokens tokens (a number or `auto`), padding and all rows of a text included, or it has
        one text. rows is the number of rows per text.
        """
        waiting = sorted(range(len(lengths)), key=lambda index: lengths[index], reverse=True)
        if batch_tokens == rules.AUTO:
            batch_tokens = rules.batch_tokens(self.device.type)
        while waiting:
            longest = lengths[waiting[0]]
            batch = waiting[: max(1, int(min(batch_tokens, self._limit)) // rows // longest)]
            results = self._or_none(compute, batch)
            if results is not None:
                self._limit *= _GROWTH
                yield list(zip(batch, results, strict=True))
                waiting = waiting[len(batch) :]
            elif len(batch) == 1:
                advice = "split it, use a smaller beam or max_length, or another device"
                raise UserError(f"a text of {longest} tokens does not fit into the memory of {self.device}: {advice}")
            else:
                self._limit = len(batch) // 2 * longest * rows
                log.warning("out of memory: going on with batches of %d texts (batch_tokens)", len(batch) // 2)

    def _or_none(self, compute: Callable[[list[int]], list[R]], batch: list[int]) -> list[R] | None:
        """Return the results of one batch; None if memory runs out."""
        try:
            with self.inference():
                return compute(batch)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # only now: the exception held the tensors
        return None

    def _decoder_for_search(self) -> Decoder:
        """Return the decoder, which is made for the first search."""
        if self._decoder is None:
            try:
                self._decoder = decoder_for_search(self.model, self.dtype, self.compiles)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                message = f"the model does not fit into the memory of {self.device}: use another device"
                raise UserError(message) from error
        return self._decoder

    def __getstate__(self) -> dict[str, Any]:
        """Make the decoder first, so that all processes that get this engine share its weights."""
        self._decoder_for_search()
        return vars(self)

    def _search(
        self,
        sources: Sequence[Source],
        settings: SearchConfig,
        n_best: int,
        banned: Phrases,
        on_step: Callable[[], object] | None,
        on_candidates: Callable[[list[Candidate]], object] | None,
    ) -> list[list[Hypothesis]]:
        """Search one batch; with a shortlist, only among ids that its sources need or that are required or banned."""
        decoder, subset = self._decoder_for_search(), Subset()
        state = decoder.encode(self._padded([[*source.ids, EOS] for source in sources]))
        if self.shortlist is not None:
            named = chain(self.unproducible, *banned, *chain(*((source.prefix, *source.phrases) for source in sources)))
            ids = self.shortlist.union([source.ids for source in sources], named)
            decoder, subset = decoder.limited_to(tensor_on(self.device, ids)), Subset(ids)
        shortest, longest = zip(*length_limits(sources, settings), strict=True)
        prefixes, unproducible = [subset.index(source.prefix) for source in sources], subset.index(self.unproducible)
        task = SearchTask(
            settings=settings, bos=self.start, eos=EOS, min_lengths=shortest, max_lengths=longest, device=self.device,
            n_best=n_best, banned=unproducible, keys=[source.key for source in sources],
            rules=make_rules(settings, prefixes=prefixes, banned=list(map(subset.index, banned))),
            phrases=[list(map(subset.index, source.phrases)) for source in sources],
            on_candidates=on_candidates and subset.on_candidates(on_candidates),
            find_best=decoder.best_next if isinstance(decoder, NativeDecoder) else best_next,
        )  # fmt: skip
        without = tensor_on(self.device, unproducible)

        def step(last: Int[Tensor, " n"], state: Any) -> tuple[Float[Tensor, "n v"], Any]:
            if on_step is not None:
                on_step()
            logits, state = decoder.step(last, state)
            return self._without(without, logits), state

        hypotheses = make_search(task).run(step, state)
        if not all(hypotheses):
            raise UserError("a text has no translation that begins, contains and leaves out what it has to")
        return list(map(subset.with_ids, hypotheses))

    def _score(self, sources: list[list[int]], targets: list[list[int]], align: bool) -> list[TokenScores]:
        src, tgt_in, tgt_out = (
            self._padded([[*ids, EOS] for ids in sources]),
            self._padded([[self.start, *ids] for ids in targets]),
            self._padded([[*ids, EOS] for ids in targets]),
        )
        logits, attention = (
            self.model.predict_and_align(src, tgt_in) if align else (self.model.predict(src, tgt_in), None)
        )
        logits = self._without(tensor_on(self.device, self.unproducible), logits)
        log_probs = logits.log_softmax(-1).gather(-1, tgt_out[:, :, None])[:, :, 0].tolist()
        return [
            TokenScores(
                log_probs[row][: len(tgt) + 1],
                None if attention is None else attention[row, : len(tgt) + 1, : len(src) + 1].tolist(),
            )
            for row, (src, tgt) in enumerate(zip(sources, targets, strict=True))
        ]

    def _without(self, ids: Int[Tensor, " u"], logits: Float[Tensor, "*rows v"]) -> Float[Tensor, "*rows v"]:
        """With renormalises, give these ids a probability of zero; changes the logits in place."""
        return logits.index_fill_(-1, ids, -torch.inf) if self.renormalises else logits

    def _padded(self, rows: list[list[int]]) -> Int[Tensor, "n t"]:
        padded = torch.full((len(rows), max(map(len, rows))), PAD)
        for row, ids in zip(padded, rows, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        return padded.to(self.device)

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Compute without gradients, in the chosen precision.

        Not `inference_mode`: there, autocast would convert the weights anew for every token, and the positions that a
        model caches could not be used in training.
        """
        autocast = torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)
        with torch.inference_mode(False), torch.no_grad(), autocast:
            yield
