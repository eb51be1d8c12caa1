"""Strings to strings: encode, sort by length, search in batches, decode, restore the order; knows no files."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from seq2seq.bundle import load_bundles
from seq2seq.device import choose_device, default_dtype
from seq2seq.engine import EncoderDecoder, Engine, Source
from seq2seq.errors import UserError
from seq2seq.files import find_models
from seq2seq.model.ensemble import Ensemble
from seq2seq.search.kinds import require_one_kind
from seq2seq.search.step import Hypothesis
from seq2seq.settings.search import SearchConfig, change_search
from seq2seq.text.glossary import Glossary
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.translation import (
    MAX_SOURCE_TOKENS,
    Piece,
    Reading,
    Spelt,
    Text,
    Translation,
    encode_phrases,
    join,
    join_alignments,
    least_risky,
    make_pieces,
    make_reading,
    require_glossary,
    require_iterable,
    require_list,
    require_strings,
)

__all__ = ["CHUNK_LINES", "MAX_SOURCE_TOKENS", "Reading", "SearchEngine", "Text", "Translation", "Translator"]

CHUNK_LINES = 2048  # lines that `stream` sorts and translates together


@runtime_checkable
class SearchEngine(Protocol):
    """What finds translations, such as `Engine`."""

    def search(
        self,
        sources: Sequence[Source],
        settings: SearchConfig,
        n_best: int,
        banned: Sequence[Sequence[int]] = (),
        *,
        on_step: Callable[[], object] | None = None,
    ) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
        """Search the n best of every source; yields (source index, hypotheses) by batch; see `Engine.search`.

        An engine whose steps cannot be interrupted calls on_step before every batch.
        """
        ...


class Translator:
    """Translates texts with one model, whatever their number, length and order.

    How it searches is told by name: every field of `SearchConfig`, and `max_length`, most tokens of a translation
    whatever the source's length; what a call does not name is as the bundle says.

    Attributes:
        search: the settings used where a call gives no others.
        src_lang: language of the texts, such as "en".
        tgt_lang: language of the translations.
        device: where the model computes.
        num_parameters: of the model or, in an ensemble, of all models together; None: not known.
        trained_length: source tokens above which a text is translated sentence by sentence.
    """

    def __init__(
        self,
        model: EncoderDecoder | SearchEngine,
        tokenizer: Tokenizer,
        *,
        search: SearchConfig | None = None,
        src_lang: str = "en",
        tgt_lang: str = "es",
        device: torch.device | str = "cpu",
        dtype: torch.dtype | None = None,
        num_parameters: int | None = None,
        trained_length: int | None = None,
        is_frozen: bool = False,
    ) -> None:
        """Wrap a model that is on device already; its mode (training or not) is as before after every call.

        Texts of more than trained_length source tokens are translated sentence by sentence; None: of more than 200.
        dtype is that of matrix products: None means bfloat16 on a GPU and float32 elsewhere. The weights of a frozen
        model never change any more, which makes short searches faster. Instead of a model, an engine of another kind
        can do the search; device and dtype are then its own matter.
        """
        self.tokenizer, self.src_lang, self.tgt_lang = tokenizer, src_lang, tgt_lang
        self.num_parameters, self.trained_length = num_parameters, trained_length
        self.search = SearchConfig() if search is None else search
        self.device = torch.device(device)
        is_engine = isinstance(model, SearchEngine)
        self._engine = (
            model if is_engine else Engine(model, self.device, dtype or default_dtype(self.device), is_frozen=is_frozen)
        )

    @classmethod
    def load(
        cls,
        folder: str | Path | Sequence[str | Path],
        device: str | torch.device = "auto",
        dtype: torch.dtype | None = None,
    ) -> "Translator":
        """Read the model of a run; several with one vocabulary translate together, as an ensemble.

        Args:
            folder: of the run (runs/NAME) or of its bundle (runs/NAME/model), or a list of them; settings are the
                first one's.
            device: cpu, cuda, cuda:N, or auto for a GPU if there is one.
            dtype: of matrix products; None means bfloat16 on a GPU and float32 elsewhere.

        Raises:
            UserError: a bundle is missing or damaged, their vocabularies differ, or the device is not there.
        """
        chosen = choose_device(device)
        bundles = load_bundles(find_models(folder))
        size = sum(parameter.numel() for bundle in bundles for parameter in bundle.model.parameters())
        dtype = dtype or default_dtype(chosen)
        models = [bundle.model.to(chosen).eval() for bundle in bundles]
        config = bundles[0].config
        model = models[0] if len(models) == 1 else Ensemble(models)
        return cls(
            *(model, bundles[0].tokenizer), search=config.search, src_lang=config.src_lang, tgt_lang=config.tgt_lang,
            device=chosen, dtype=dtype, num_parameters=size, trained_length=config.trained_length, is_frozen=True,
        )  # fmt: skip

    def __repr__(self) -> str:
        size = [] if self.num_parameters is None else [f"{_shorten(self.num_parameters)} parameters"]
        return f"Translator({', '.join([f'{self.src_lang}→{self.tgt_lang}', *size, str(self.device)])})"

    def translate(
        self,
        texts: Iterable[str | Text],
        *,
        banned: Sequence[str] = (),
        glossary: Glossary | None = None,
        **changes: int | float | None,
    ) -> list[str]:
        """Translate every text into one line; a text without words gives an empty one.

        Args:
            texts: one source a string, in a list or anything to iterate over; line ends within it count as spaces.
            banned: phrases that no translation contains.
            glossary: terms and the translations that they must have.
            changes: search settings by name.

        Raises:
            UserError: a setting is unknown, of the wrong type or out of range, texts is no list of strings, no
                translation is as it has to be, or one text alone exceeds the memory.
        """
        wanted: dict[str, Any] = {"banned": banned, "glossary": glossary, **changes}
        return [best[0].text for best in self.translate_nbest(texts, 1, **wanted)]

    def translate_nbest(
        self,
        texts: Iterable[str | Text],
        n_best: int,
        *,
        banned: Sequence[str] = (),
        glossary: Glossary | None = None,
        align: bool = False,
        on_progress: Callable[[int], object] | None = None,
        **changes: int | float | None,
    ) -> list[list[Translation]]:
        """Give the n best translations of every text, best first; fewer where the model has fewer, always one.

        With sampling they are n samples. The arguments are those of `translate`; with align every translation has its
        alignment, as `score` finds it; on_progress is called as by `stream`, and what it raises ends the work. Of a
        text that is split, the i-th joins the i-th of every piece.

        Raises:
            UserError: as `translate`, n_best is not between 1 and the beam, or this engine cannot align.
        """
        listed = require_list(texts, "texts")
        settings = self.settings(**changes)
        wanted: dict[str, Any] = {"banned": banned, "glossary": glossary, "align": align, "on_progress": on_progress}
        return list(self.stream(listed, settings, n_best=n_best, chunk=len(listed), **wanted))

    def stream(
        self,
        texts: Iterable[str | Text],
        settings: SearchConfig,
        *,
        n_best: int = 1,
        banned: Sequence[str] = (),
        glossary: Glossary | None = None,
        align: bool = False,
        chunk: int = CHUNK_LINES,
        first_line: int = 1,
        on_progress: Callable[[int], object] | None = None,
    ) -> Iterator[list[Translation]]:
        """Translate any number of texts in order, holding only `chunk` of them at a time.

        first_line is the number of the first text, by which warnings name it and samples are drawn. on_progress is
        called with the number of texts begun since its last call, also before every step of a search, which it may
        delay. Gives and raises what `translate_nbest` does.
        """
        if not isinstance(n_best, int):
            raise UserError(f"n_best={n_best!r} is of type {type(n_best).__name__}: give a whole number")
        require_glossary(glossary)
        candidates = max(n_best, settings.mbr)
        if not n_best >= 1 or (candidates > settings.beam and not settings.sampling):
            name = "n_best" if n_best >= settings.mbr else "mbr"
            raise UserError(f"{name}={candidates} needs a beam of at least as many (beam={settings.beam}), or sampling")
        require_one_kind(settings, has_phrases=glossary is not None)
        not_wanted = [*encode_phrases(require_strings(banned, "banned"), self.tokenizer)]
        not_wanted += [[symbol] for symbol in self.tokenizer.user_symbols.values()]
        texts = iter(require_iterable(texts, "texts"))
        while lines := list(itertools.islice(texts, chunk)):
            pieces = make_pieces(lines, self.tokenizer, first_line, glossary, self.trained_length)
            if on_progress is not None:
                on_progress(len(lines) - sum(piece.is_first for piece in pieces))  # texts without words are done
            parts: list[list[list[Spelt]]] = [[] for _ in lines]
            found = self._search(pieces, settings, candidates, not_wanted, on_progress)
            spelt = iter(self.tokenizer.decode([one.ids for hypotheses in found for one in hypotheses]))
            for piece, hypotheses in zip(pieces, found, strict=True):
                parts[piece.text_index].append([(one, next(spelt)) for one in hypotheses])
            joined = [join(part, self.tokenizer, settings.length_penalty) for part in parts]
            best = [(least_risky(one) if settings.mbr else one)[:n_best] for one in joined]
            yield from self._aligned(pieces, best, settings) if align else best
            first_line += len(lines)

    @property
    def engine(self) -> SearchEngine:
        """What finds the translations."""
        return self._engine

    @property
    def can_score(self) -> bool:
        """Whether the engine can `score` given translations."""
        return isinstance(self._engine, Engine) and self._engine.can_force

    @property
    def can_align(self) -> bool:
        """Whether translations can have an alignment: the engine can `score`, and the model attends to the source."""
        return isinstance(self._engine, Engine) and self.can_score and getattr(self._engine.model, "can_align", False)

    def score(
        self, sources: Iterable[str], translations: Iterable[str], *, align: bool = False, **changes: int | float | None
    ) -> list[Reading]:
        """Let the model read given translations: what it would have scored for producing them.

        Args:
            sources: one text a string.
            translations: of each, one.
            align: whether to find for every target word the source word that it attends to most.
            changes: search settings by name; length_penalty and batch_tokens count.

        Raises:
            UserError: sources or translations is no list of strings, their numbers differ, this engine cannot do it,
                or one pair alone exceeds the memory.
        """
        sources, translations = require_strings(sources, "sources"), require_strings(translations, "translations")
        if len(sources) != len(translations):
            raise UserError(f"{len(sources)} sources but {len(translations)} translations: give one for each")
        if not (self.can_score and isinstance(self._engine, Engine)):
            raise UserError("this engine cannot score given translations: use the pytorch engine")
        settings = self.settings(**changes)
        src, tgt = self.tokenizer.encode(sources), self.tokenizer.encode(translations)
        readings: dict[int, Reading] = {}
        for batch in self._engine.force(src, tgt, settings.batch_tokens, watch=align):
            for index, forced in batch:
                readings[index] = make_reading(src[index], tgt[index], forced, self.tokenizer, settings.length_penalty)
        return [readings[index] for index in range(len(sources))]

    def settings(self, **changes: int | float | None) -> SearchConfig:
        """Give the bundle's search settings with those given changed; None changes nothing.

        Raises:
            UserError: a name is unknown, or a value has the wrong type or is out of range.
        """
        return change_search(self.search, changes)

    def _search(
        self,
        pieces: list[Piece],
        settings: SearchConfig,
        n_best: int,
        banned: list[list[int]],
        on_progress: Callable[[int], object] | None,
    ) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = [[] for _ in pieces]
        sources = [piece.source for piece in pieces]
        on_step = None if on_progress is None else lambda: on_progress(0)
        for batch in self._engine.search(sources, settings, n_best, banned, on_step=on_step):
            for index, hypotheses in batch:
                found[index] = hypotheses
            if on_progress is not None:
                on_progress(sum(pieces[index].is_first for index, _ in batch))
        return found

    def _aligned(
        self, pieces: list[Piece], found: list[list[Translation]], settings: SearchConfig
    ) -> list[list[Translation]]:
        """Add their alignments to all translations of all texts, computed in batches of the pieces they came from.

        A text of any length costs no more memory than one piece, and the model reads nothing longer than it can.
        """
        sources: list[list[Piece]] = [[] for _ in found]
        for piece in pieces:
            sources[piece.text_index].append(piece)
        pairs = [
            (piece.text, part)
            for source, best in zip(sources, found, strict=True)
            for one in best
            for piece, part in zip(source, one.parts, strict=True)
        ]
        readings = self.score(
            [text for text, _ in pairs], [part for _, part in pairs], align=True, batch_tokens=settings.batch_tokens
        )
        alignments = iter(reading.alignment or [] for reading in readings)
        return [
            [dataclasses.replace(one, alignment=join_alignments(source, one.parts, alignments)) for one in best]
            for source, best in zip(sources, found, strict=True)
        ]


def _shorten(count: int) -> str:
    return f"{count / 1e6:.1f}M" if count >= 1e6 else f"{count / 1e3:.1f}k"
