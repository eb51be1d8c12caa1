"""Searches hypotheses for source ids with one model, in batches that fit into memory; knows no text."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.device import default_dtype, prepare, tensor_on
from seq2seq.errors import UserError, is_out_of_memory
from seq2seq.model.decoders import Decoder, for_search, release
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.ensemble import Ensemble
from seq2seq.model.native import NativeDecoder
from seq2seq.search.constraints import tokens_needed
from seq2seq.search.driver import SearchTask
from seq2seq.search.hypothesis import Hypothesis
from seq2seq.search.kinds import make_rules, make_search
from seq2seq.search.step import Coverage, Step, best_next
from seq2seq.search.subset import Subset
from seq2seq.search_engine import Forced, Phrases, Source, length_limits
from seq2seq.settings.search import SearchConfig, require_one_kind, require_steps
from seq2seq.text.shortlist import Shortlist
from seq2seq.text.tokenizer import BOS, EOS, PAD, UNPRODUCIBLE_IDS

log = logging.getLogger(__name__)
_WAYS_OUT = {  # advice if one text alone exceeds the memory
    "search": "use a smaller beam or max_length, or another device",
    "force": "split it and its translation, or use another device",
}
R = TypeVar("R")


class Engine:
    """Searches translations of any number of sources, in batches that fit into memory."""

    def __init__(
        self,
        model: EncoderDecoder | Ensemble,
        device: torch.device | str,
        dtype: torch.dtype | None = None,
        *,
        is_frozen: bool = False,
        is_compiled: bool = False,
        shortlist: Shortlist | None = None,
        start: int = BOS,
        unproducible: Sequence[int] = UNPRODUCIBLE_IDS,
        renormalises: bool = False,
    ) -> None:
        """Wrap a model that is on device; dtype is the type of its matrix products, by default `default_dtype`.

        A frozen model is never trained again: it leaves training mode, and its weights are laid out for search once,
        not for every search. With a shortlist, the search of a batch predicts only the ids that the batch's sources
        need, and the probabilities of these ids alone sum to 1. `force` always uses the whole vocabulary. The id
        `start` precedes every translation. Translations contain none of the unproducible ids; with renormalises, the
        unproducible ids have probability 0, and the other ids' probabilities sum to 1.

        Raises:
            UserError: is_compiled is true, and the search cannot be compiled.
        """
        self.model, self.device, self.shortlist = model, torch.device(device), shortlist
        self.start, self.unproducible, self.renormalises = start, tuple(unproducible), renormalises
        self.dtype = dtype or default_dtype(self.device)
        self.is_frozen, self.is_compiled = is_frozen or is_compiled, is_compiled
        self._decoder: Decoder | None = None  # of a frozen model
        prepare(self.device)
        self._computing = 0  # batches being computed, one inside another; see on_step of `search`
        self._fits: dict[str, int] = {}  # smaller batch_tokens of "search" and "force", after memory ran out
        if self.is_frozen:
            model.train(False)
        if is_compiled:
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
    ) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
        """Search the n best translations of every source, longest first; yields (source index, hypotheses) by batch.

        When memory runs out, batches become smaller for this search and all later searches.

        Args:
            sources: texts to translate.
            settings: search settings, and the batch size.
            n_best: hypotheses wanted of each source, at most the beam; with sampling, the number of samples.
            banned: sequences of ids that appear in no translation.
            on_step: called before every step; it may run another search, and its exceptions end this search.

        Raises:
            UserError: one source alone exceeds the memory, no translation obeys all rules, or the model gives NaN.
        """
        rows = n_best if settings.sampling else settings.beam
        decoder = self._decoder_for_search()
        lengths = [len(source.ids) + 1 for source in sources]

        def compute(batch: list[int]) -> list[list[Hypothesis]]:
            return self._search(decoder, [sources[i] for i in batch], settings, n_best, banned, on_step=on_step)

        yield from self._batches("search", lengths, settings.batch_tokens, compute, rows=rows)

    def watch(
        self, source: Source, settings: SearchConfig, watcher: Callable[[Step], object], banned: Phrases = ()
    ) -> list[Hypothesis]:
        """Return the best translation of one source, as `search` does; call watcher with every step of the beam search.

        Raises:
            UserError: as `search`, or the settings ask for no plain beam search.
        """
        require_steps(settings)
        length, decoder = len(source.ids) + 1, self._decoder_for_search()
        compute: Callable[[list[int]], list[list[Hypothesis]]]
        compute = lambda _: self._search(decoder, [source], settings, 1, banned, watcher)  # noqa: E731
        (((_, found),),) = self._batches("search", [length], length, compute)
        return found

    def force(
        self, sources: Sequence[list[int]], targets: Sequence[list[int]], batch_tokens: int, *, watch: bool = False
    ) -> Iterator[list[tuple[int, Forced]]]:
        """Score given translations with the model; yields (index, scores) by batch.

        Args:
            sources: ids without EOS.
            targets: ids of their translations, without EOS.
            batch_tokens: positions of the longer side computed at once, padding included.
            watch: whether to return attention, too.

        Raises:
            UserError: one pair alone exceeds the memory.
        """
        lengths = [max(len(src), len(tgt)) + 1 for src, tgt in zip(sources, targets, strict=True)]

        def compute(batch: list[int]) -> list[Forced]:
            return self._force([sources[i] for i in batch], [targets[i] for i in batch], watch)

        yield from self._batches("force", lengths, batch_tokens, compute)

    def _batches(
        self,
        work: str,
        lengths: Sequence[int],
        batch_tokens: int,
        compute: Callable[[list[int]], list[R]],
        *,
        rows: int = 1,
    ) -> Iterator[list[tuple[int, R]]]:
        """Compute the results of all texts in batches, longest first; yields (index, result) by batch.

        A batch has at most batch_tokens tokens, padding and all rows of a text included, or it has one text. When
        memory runs out, later batches are smaller. work is "search" or "force"; rows is the number of rows per text.
        """
        waiting = sorted(range(len(lengths)), key=lambda index: lengths[index], reverse=True)
        fits = batch_tokens  # the limit of this call, which may run inside another search
        while waiting:
            longest = lengths[waiting[0]]
            tokens = min(batch_tokens, self._fits.get(work, batch_tokens), fits)
            batch = waiting[: max(1, tokens // rows // longest)]
            found = self._or_none(compute, batch)
            if found is not None:
                yield list(zip(batch, found, strict=True))
                waiting = waiting[len(batch) :]
            elif len(batch) == 1:
                way_out = "try again when the other search is over" if self._computing else _WAYS_OUT[work]
                raise UserError(f"a text of {longest} tokens does not fit into the memory of {self.device}: {way_out}")
            else:
                fits = len(batch) // 2 * longest * rows
                if not self._computing:
                    self._fits[work] = fits
                log.warning("out of memory: going on with batches of %d texts (batch_tokens)", len(batch) // 2)

    def _or_none(self, compute: Callable[[list[int]], list[R]], batch: list[int]) -> list[R] | None:
        """Return the results of one batch; None if memory runs out, also after the decoder has freed what it keeps."""
        found = self._try(compute, batch)
        if found is None and self._decoder is not None and release(self._decoder):
            found = self._try(compute, batch)
        return found

    def _try(self, compute: Callable[[list[int]], list[R]], batch: list[int]) -> list[R] | None:
        """Return the results of one batch; None if memory runs out."""
        try:
            self._computing += 1
            with self.inference():
                return compute(batch)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        finally:
            self._computing -= 1
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # only now: the exception held the tensors
        return None

    def _decoder_for_search(self) -> Decoder:
        """Return a decoder with the present weights, laid out for search; a frozen model's decoder is made only once.

        Raises:
            UserError: the weights do not fit into the memory, or the search cannot be compiled.
        """
        if self._decoder is not None:
            return self._decoder
        try:
            with self.inference(), torch.autocast(self.device.type, enabled=False):
                decoder = for_search(self.model, self.dtype, is_compiled=self.is_compiled)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise UserError(f"the model does not fit into the memory of {self.device}: use another device") from error
        self._decoder = decoder if self.is_frozen else None
        return decoder

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_decoder": None}  # the decoder's functions cannot be pickled

    def _search(
        self,
        decoder: Decoder,
        sources: list[Source],
        settings: SearchConfig,
        n_best: int,
        banned: Phrases,
        watcher: Callable[[Step], object] | None = None,
        on_step: Callable[[], object] | None = None,
    ) -> list[list[Hypothesis]]:
        """Search one batch; with a shortlist, only among ids that its sources need or that are required or banned."""
        if self.shortlist is None:
            never = self.unproducible
            return self._search_all_ids(decoder, sources, settings, n_best, banned, never, watcher, on_step)
        named = chain(*banned, *(one.prefix for one in sources), *chain(*(one.phrases for one in sources)))
        subset = Subset(self.shortlist.union([one.ids for one in sources], named))
        in_places = [
            replace(one, prefix=subset.places(one.prefix), phrases=[subset.places(ids) for ids in one.phrases])
            for one in sources
        ]
        limited = decoder.limited_to(tensor_on(self.device, subset.ids))
        banned = [subset.places(ids) for ids in banned]
        shown = None if watcher is None else subset.shown_to(watcher)
        never = tuple(subset.places([one for one in self.unproducible if one in subset.ids]))
        found = self._search_all_ids(limited, in_places, settings, n_best, banned, never, shown, on_step)
        return [subset.with_ids(hypotheses) for hypotheses in found]

    def _search_all_ids(
        self,
        decoder: Decoder,
        sources: list[Source],
        settings: SearchConfig,
        n_best: int,
        banned: Phrases,
        unproducible: tuple[int, ...],
        watcher: Callable[[Step], object] | None = None,
        on_step: Callable[[], object] | None = None,
    ) -> list[list[Hypothesis]]:
        """Search one batch among all ids that the decoder knows."""
        shortest, longest = zip(*length_limits(sources, settings), strict=True)
        prefixes = [source.prefix for source in sources]
        rules = make_rules(settings, torch.tensor(shortest), prefixes=prefixes, banned=banned, eos=EOS)
        phrases = [source.phrases for source in sources]
        require_one_kind(settings, has_phrases=any(phrases))
        for limit, of_source in zip(longest, phrases, strict=True):
            if (needed := tokens_needed(of_source)) > limit:
                raise UserError(
                    f"phrases of {needed} tokens do not fit into {limit}: raise max_length, or ask for fewer"
                )
        src = self._padded([[*source.ids, EOS] for source in sources])
        state = decoder.encode(src)
        coverage = None
        if settings.coverage_penalty:
            state = state.watching()
            if not self.model.can_align:
                told = "coverage_penalty is for models that attend to the source, and this one does not"
                raise UserError(f"{told}: leave it out")
            coverage = Coverage(settings.coverage_penalty, (src == PAD).float(), _last_attention)
        keys, never = [source.key for source in sources], tensor_on(self.device, unproducible)
        task = SearchTask(
            settings=settings, bos=self.start, eos=EOS, max_lengths=longest, device=self.device, n_best=n_best,
            banned=unproducible, rules=rules, phrases=phrases, keys=keys, coverage=coverage, watcher=watcher,
            quick_best=decoder.best_next if isinstance(decoder, NativeDecoder) else best_next,
        )  # fmt: skip

        def step(last: Int[Tensor, " n"], state: Any) -> tuple[Float[Tensor, "n v"], Any]:
            if on_step is not None:
                on_step()
            logits, state = decoder.step(last, state)
            return self._without(never, logits.float()), state

        found = make_search(task).run(step, state)
        if not all(found):
            if rules or any(phrases):
                raise UserError("a text has no translation that begins, contains and leaves out what it has to")
            raise UserError("the model's scores are not numbers (NaN): its weights are damaged, train it again")
        return found

    def _force(self, sources: list[list[int]], targets: list[list[int]], watch: bool) -> list[Forced]:
        state = self.model.encode(self._padded([[*ids, EOS] for ids in sources]))
        tgt_in, tgt_out = (
            self._padded([[self.start, *ids] for ids in targets]),
            self._padded([[*ids, EOS] for ids in targets]),
        )
        logits, state = self.model.decode(tgt_in, state.watching() if watch else state)
        logits = self._without(tensor_on(self.device, self.unproducible), logits.float())
        log_probs = logits.log_softmax(-1).gather(-1, tgt_out[:, :, None])[:, :, 0].tolist()
        forced = []
        for row, (src, tgt) in enumerate(zip(sources, targets, strict=True)):
            attention = state.attention[row, : len(tgt) + 1, : len(src) + 1].tolist() if watch else None
            forced.append(Forced(log_probs[row][: len(tgt) + 1], attention))
        return forced

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
        """Compute without gradients and dropout, in the chosen precision; then restore the model's mode.

        Not `inference_mode`: there, autocast would convert the weights anew for every token, and the positions that a
        model caches could not be used in training.
        """
        is_live, was_training = not self.is_frozen, self.model.training
        if is_live:
            self.model.train(False)
        autocast = torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)
        try:
            with torch.inference_mode(False), torch.no_grad(), autocast:
                yield
        finally:
            if is_live:
                self.model.train(was_training)


def _last_attention(state: Any) -> Float[Tensor, "n s"]:
    return state.attention[:, -1].float()
