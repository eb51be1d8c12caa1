"""Translates strings: encodes, sorts by length, searches in batches, decodes, restores the order; knows no files."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.errors import UserError
from seq2seq.files import find_models
from seq2seq.search.hypothesis import Hypothesis
from seq2seq.search_engine import ReadingEngine, SearchEngine
from seq2seq.settings.search import SearchConfig, change_search
from seq2seq.text.glossary import Glossary
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translation import (
    Piece,
    Reading,
    SearchRequest,
    Spelt,
    Text,
    Translation,
    encode_phrases,
    join,
    join_alignments,
    least_risky,
    make_pieces,
    make_reading,
    require_iterable,
    require_strings,
)

if TYPE_CHECKING:  # an engine of another kind needs no PyTorch
    import torch

    from seq2seq.model.encoder_decoder import EncoderDecoder
    from seq2seq.model.ensemble import Ensemble
    from seq2seq.text.shortlist import Shortlist

CHUNK_LINES = 2048  # lines that `stream` sorts and translates together


class Translator:
    """Translates texts with one model, whatever their number, length and order.

    A call changes search settings by name: every field of `SearchConfig`, and `max_length`, the most tokens of a
    translation whatever the source's length. The bundle's settings apply to everything else.

    Attributes:
        engine: finds the translations.
        search: the search settings, unless a call changes them.
        src_lang: language of the texts, such as "en".
        tgt_lang: language of the translations.
        num_parameters: parameters of the model or, in an ensemble, of all models together; None: not known.
        trained_length: source tokens above which a text is translated sentence by sentence.
    """

    def __init__(
        self,
        model: "EncoderDecoder | Ensemble | SearchEngine",
        tokenizer: Tokenizers,
        *,
        search: SearchConfig | None = None,
        src_lang: str = "en",
        tgt_lang: str = "es",
        device: "torch.device | str" = "cpu",
        dtype: "torch.dtype | None" = None,
        num_parameters: int | None = None,
        trained_length: int | None = None,
        is_frozen: bool = False,
        is_compiled: bool = False,
        shortlist: "Shortlist | None" = None,
    ) -> None:
        """Wrap a model that is on device already; calls do not change the training mode of a model that is not frozen.

        Texts of more than trained_length source tokens are translated sentence by sentence; None: of more than 200.
        dtype is the type of matrix products: None means bfloat16 on a GPU and float32 elsewhere. The weights of a
        frozen model never change again, which makes short searches faster; a model whose search is compiled is frozen,
        too. With a shortlist, a search predicts only the ids that the sources need. Instead of a model, an engine of
        another kind can search; such an engine has its own device and dtype, and no shortlist.

        Raises:
            UserError: the shortlist belongs to another model, or the search cannot be compiled.
        """
        if shortlist is not None:
            shortlist.require(tokenizer)
        self.tokenizer, self.src_lang, self.tgt_lang = tokenizer, src_lang, tgt_lang
        self.num_parameters, self.trained_length = num_parameters, trained_length
        self.search = SearchConfig() if search is None else search
        self.engine: SearchEngine
        self._device = device
        if isinstance(model, SearchEngine):
            self.engine = model
        else:
            from seq2seq.engine import Engine

            self.engine = Engine(
                *(model, device, dtype), is_frozen=is_frozen, is_compiled=is_compiled, shortlist=shortlist,
                start=tokenizer.start, unproducible=tokenizer.unproducible, renormalises=tokenizer.renormalises,
            )  # fmt: skip

    @classmethod
    def load(
        cls,
        folder: str | Path | Sequence[str | Path],
        device: "str | torch.device" = "auto",
        dtype: "torch.dtype | None" = None,
        *,
        is_compiled: bool = False,
        shortlist: str | Path | None = None,
    ) -> "Translator":
        """Read the model of a run; several models with one vocabulary translate together, as an ensemble.

        Args:
            folder: folder of the run (runs/NAME) or of its bundle (runs/NAME/model), or a list of folders; the first
                bundle's settings apply.
            device: cpu, cuda, cuda:N, or auto for a GPU if there is one.
            dtype: type of matrix products; None means bfloat16 on a GPU and float32 elsewhere.
            is_compiled: whether to compile the search of a Transformer: on the CPU with the machine's C compiler, in
                float32 only; on a GPU by recording CUDA graphs.
            shortlist: file of `seq2seq shortlist`; with it, a search predicts only the ids that the sources need.

        Raises:
            UserError: a bundle or the shortlist is missing or damaged, the bundles' vocabularies differ, the shortlist
                belongs to another model, the device does not exist, or the search cannot be compiled.
        """
        from seq2seq.bundle import load_bundles
        from seq2seq.device import choose_device
        from seq2seq.model.ensemble import Ensemble
        from seq2seq.text.shortlist import Shortlist

        chosen_ids = None if shortlist is None else Shortlist.load(Path(shortlist))  # before the model: it is fast
        chosen = choose_device(device)
        bundles = load_bundles(find_models(folder))
        size = sum(parameter.numel() for bundle in bundles for parameter in bundle.model.parameters())
        models = [bundle.model.to(chosen).eval() for bundle in bundles]
        config = bundles[0].config
        model = models[0] if len(models) == 1 else Ensemble(models)
        return cls(
            *(model, bundles[0].tokenizer), search=config.search, src_lang=config.src_lang, tgt_lang=config.tgt_lang,
            device=chosen, dtype=dtype, num_parameters=size, trained_length=config.trained_length, is_frozen=True,
            is_compiled=is_compiled, shortlist=chosen_ids,
        )  # fmt: skip

    @property
    def device(self) -> "torch.device":
        """The device on which the model computes."""
        import torch

        return torch.device(self._device)

    def __repr__(self) -> str:
        size = [] if self.num_parameters is None else [f"{_shorten(self.num_parameters)} parameters"]
        return f"Translator({', '.join([f'{self.src_lang}→{self.tgt_lang}', *size, str(self._device)])})"

    def translate(
        self,
        texts: Iterable[str | Text],
        *,
        banned: Sequence[str] = (),
        glossary: Glossary | None = None,
        **changes: int | float | None,
    ) -> list[str]:
        """Translate every text into one line; a text without words gives an empty line.

        Args:
            texts: an iterable of texts, such as a list; line ends within a text count as spaces.
            banned: phrases that no translation contains.
            glossary: terms and the translations that they must have.
            changes: search settings by name.

        Raises:
            UserError: a setting is unknown, of the wrong type or out of range, texts is no list of strings, no
                translation meets all requirements, or one text alone exceeds the memory.
        """
        request = self.request(n_best=1, banned=banned, glossary=glossary, align=False, **changes)
        return [best[0].text for best in self.stream(texts, request, chunk=None)]

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
        """Return the n best translations of every text, best first; fewer where the model has fewer, always one.

        The other arguments are those of `request` and `stream`.

        Raises:
            UserError: as `translate`, n_best is not between 1 and the beam, or the engine cannot align.
        """
        request = self.request(n_best=n_best, banned=banned, glossary=glossary, align=align, **changes)
        return list(self.stream(texts, request, chunk=None, on_progress=on_progress))

    def request(
        self,
        *,
        n_best: int = 1,
        banned: Sequence[str] = (),
        glossary: Glossary | None = None,
        align: bool = False,
        **changes: int | float | None,
    ) -> SearchRequest:
        """Return a request with the bundle's search settings, changed by changes; None changes nothing.

        Raises:
            UserError: a setting is unknown, or a value has the wrong type, is out of range or excludes another.
        """
        settings = change_search(self.search, changes)
        return SearchRequest(settings=settings, n_best=n_best, banned=banned, glossary=glossary, align=align)

    def stream(
        self,
        texts: Iterable[str | Text],
        request: SearchRequest,
        *,
        chunk: int | None = CHUNK_LINES,
        first_line: int = 1,
        on_progress: Callable[[int], object] | None = None,
    ) -> Iterator[list[Translation]]:
        """Translate any number of texts in order, holding `chunk` of them at a time.

        With sampling, the n best of a text are n samples. Of a text that is translated in pieces, the i-th translation
        joins the i-th of every piece.

        Args:
            texts: as for `translate`.
            request: what to search for each text.
            chunk: number of texts that are sorted and translated together; None: all.
            first_line: number of the first text; warnings name these numbers, and samples depend on them.
            on_progress: called with the number of texts begun since its last call, also before every step of a search;
                its exceptions end the work.

        Raises:
            UserError: as `translate`, or this engine cannot align.
        """
        settings, report = request.settings, on_progress or (lambda count: None)
        target = self.tokenizer.target
        banned = encode_phrases(request.banned, target)
        banned += [[symbol] for symbol in target.user_symbols.values()]
        texts = iter(require_iterable(texts, "texts"))
        while lines := list(itertools.islice(texts, chunk)):
            pieces = make_pieces(lines, self.tokenizer, first_line, request.glossary, self.trained_length)
            report(len(lines) - sum(piece.is_first for piece in pieces))  # texts without words are done
            parts: list[list[list[Spelt]]] = [[] for _ in lines]
            found = self._search(pieces, request, banned, report)
            spelt = iter(target.decode([one.ids for hypotheses in found for one in hypotheses]))
            for piece, hypotheses in zip(pieces, found, strict=True):
                parts[piece.text_index].append([(one, next(spelt)) for one in hypotheses])
            joined = [join(part, target, settings.length_penalty) for part in parts]
            best = [(least_risky(one) if settings.mbr else one)[: request.n_best] for one in joined]
            yield from self._aligned(pieces, best, settings.batch_tokens) if request.align else best
            first_line += len(lines)

    @property
    def can_align(self) -> bool:
        """Whether translations can have an alignment: PyTorch computes a model that attends to the source."""
        return isinstance(self.engine, ReadingEngine) and self.engine.can_align

    def score(
        self, sources: Iterable[str], translations: Iterable[str], *, align: bool = False, **changes: int | float | None
    ) -> list[Reading]:
        """Return the model's scores of given translations: the scores of producing exactly these translations.

        Args:
            sources: one text per string.
            translations: one translation of each source.
            align: whether to find for every target word the source word that it attends to most.
            changes: search settings by name; only length_penalty and batch_tokens have an effect.

        Raises:
            UserError: sources or translations is no list of strings, their numbers differ, this engine cannot score,
                or one pair alone exceeds the memory.
        """
        sources, translations = require_strings(sources, "sources"), require_strings(translations, "translations")
        if len(sources) != len(translations):
            raise UserError(f"{len(sources)} sources but {len(translations)} translations: give one for each")
        if not isinstance(self.engine, ReadingEngine):
            raise UserError("this engine cannot score given translations: use the pytorch engine")
        settings = change_search(self.search, changes)
        src, tgt = self.tokenizer.source.encode(sources), self.tokenizer.target.encode(translations)
        batches = self.engine.force(src, tgt, settings.batch_tokens, watch=align)
        readings: dict[int, Reading] = {}
        for index, forced in itertools.chain.from_iterable(batches):
            readings[index] = make_reading(src[index], tgt[index], forced, self.tokenizer, settings.length_penalty)
        return [readings[index] for index in range(len(sources))]

    def _search(
        self,
        pieces: list[Piece],
        request: SearchRequest,
        banned: list[list[int]],
        report: Callable[[int], object],
    ) -> list[list[Hypothesis]]:
        found: dict[int, list[Hypothesis]] = {}
        sources, on_step = [piece.source for piece in pieces], lambda: report(0)
        for batch in self.engine.search(sources, request.settings, request.candidates, banned, on_step=on_step):
            found |= dict(batch)
            report(sum(pieces[index].is_first for index, _ in batch))
        return [found[index] for index in range(len(pieces))]

    def _aligned(
        self, pieces: list[Piece], found: list[list[Translation]], batch_tokens: int
    ) -> list[list[Translation]]:
        """Add an alignment to every translation of every text, computed piece by piece in batches.

        So a text of any length needs no more memory than one piece, and the model reads no text that is too long.
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
            [text for text, _ in pairs], [part for _, part in pairs], align=True, batch_tokens=batch_tokens
        )
        alignments = iter(reading.alignment or [] for reading in readings)
        return [
            [dataclasses.replace(one, alignment=join_alignments(source, one.parts, alignments)) for one in best]
            for source, best in zip(sources, found, strict=True)
        ]


def _shorten(count: int) -> str:
    return f"{count / 1e6:.1f}M" if count >= 1e6 else f"{count / 1e3:.1f}k"
