"""Translates strings: encodes, sorts by length, searches in batches, decodes, restores the order; knows no files."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.errors import UserError
from seq2seq.search.types import Hypothesis, Source, TokenScores
from seq2seq.settings.bundle import Calibration
from seq2seq.settings.checks import IntOrAuto
from seq2seq.settings.search import Compile, SearchConfig, change_search
from seq2seq.storage.output import find_models
from seq2seq.text.glossary import Glossary
from seq2seq.text.masks import Masked
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.text.words import in_usual_case, is_in_capitals
from seq2seq.translate.kept import Found, keep, place_terms
from seq2seq.translate.segmenter import (
    Alignment,
    Segment,
    Segmenter,
    align_text,
    encode_phrases,
    join,
    least_risky,
    scored_translation,
    split_to_match,
    without_repeats,
)
from seq2seq.translate.types import (
    ScoredTranslation,
    ScoringEngine,
    SearchEngine,
    SearchRequest,
    Text,
    Translation,
    refuse_string,
)

if TYPE_CHECKING:  # an engine of another kind needs no PyTorch
    import torch

    from seq2seq.model.decoders import Ensemble
    from seq2seq.model.encoder_decoder import EncoderDecoder
    from seq2seq.search.shortlist import Shortlist

# segments of a text, ids of their translations, the text, and the texts of the segments' translations (`align_text`)
_ToAlign = tuple[Sequence[Segment], Sequence[list[int]], str, Sequence[str] | None]
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
        calibration: gives translations their confidence; None: they have none.
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
        compiles: Compile = "auto",
        shortlist: "Shortlist | None" = None,
        calibration: Calibration | None = None,
    ) -> None:
        """Wrap a model that is on device already; it is put into evaluation mode.

        After training goes on, make another translator: this one may search with a copy of the weights. Several threads
        may use one translator. Texts of more than trained_length source tokens are translated sentence by sentence
        (`segmenter.Segmenter`); None: of more than 200. dtype is the type of matrix products: None means bfloat16 on
        a GPU and float32 elsewhere. `compiles` says whether a Transformer is searched by compiled code on the CPU, as
        in `load`. With a shortlist, a search predicts only the ids that the sources need. Instead of a model, an engine
        of another kind can search; such an engine has its own device and dtype, and no shortlist.

        Raises:
            UserError: the shortlist belongs to another model, or the search cannot be compiled.
        """
        if shortlist is not None:
            shortlist.require(tokenizer.digest)
        self.tokenizer, self.src_lang, self.tgt_lang = tokenizer, src_lang, tgt_lang
        self.num_parameters, self.trained_length, self.calibration = num_parameters, trained_length, calibration
        self.search = SearchConfig() if search is None else search
        self._segmenter = Segmenter(tokenizer, trained_length)
        self.engine: SearchEngine
        self._device = device
        if isinstance(model, SearchEngine):
            self.engine = model
        else:
            from seq2seq.translate.engine import Engine

            self.engine = Engine(
                *(model, device, dtype), compiles=compiles, shortlist=shortlist,
                start=tokenizer.start, unproducible=tokenizer.unproducible, renormalises=tokenizer.renormalises,
            )  # fmt: skip

    @classmethod
    def load(
        cls,
        folder: str | Path | Sequence[str | Path],
        device: "str | torch.device" = "auto",
        dtype: "torch.dtype | None" = None,
        *,
        compiles: Compile = "auto",
        shortlist: str | Path | None = None,
    ) -> "Translator":
        """Read the model of a run; several models with one vocabulary translate together, as an ensemble.

        Args:
            folder: folder of the run (runs/NAME) or of its bundle (runs/NAME/model), or a list of folders; the first
                bundle's settings apply.
            device: cpu, cuda, cuda:N, or auto for a GPU if there is one.
            dtype: type of matrix products; None means bfloat16 on a GPU and float32 elsewhere.
            compiles: whether a Transformer is searched by compiled code, on the CPU in float32: "auto" if the machine
                has a C compiler, "on" or else an error, or "off". The results are the same.
            shortlist: file of `seq2seq shortlist`; with it, a search predicts only the ids that the sources need.

        Raises:
            UserError: a bundle or the shortlist is missing or damaged, the bundles' vocabularies differ, the shortlist
                belongs to another model, the device does not exist, or the search cannot be compiled.
        """
        from seq2seq.device import choose_device
        from seq2seq.model.decoders import Ensemble
        from seq2seq.search.shortlist import Shortlist
        from seq2seq.translate.bundle import load_bundles

        chosen_ids = None if shortlist is None else Shortlist.load(Path(shortlist))  # before the model: it is fast
        chosen = choose_device(device)
        bundles = load_bundles(find_models(folder))
        size = sum(parameter.numel() for bundle in bundles for parameter in bundle.model.parameters())
        models = [bundle.model.to(chosen).eval() for bundle in bundles]
        config = bundles[0].config
        model = models[0] if len(models) == 1 else Ensemble(models)
        return cls(
            *(model, bundles[0].tokenizer), search=config.search, src_lang=config.src_lang, tgt_lang=config.tgt_lang,
            device=chosen, dtype=dtype, num_parameters=size, trained_length=config.trained_length, compiles=compiles,
            shortlist=chosen_ids, calibration=config.calibration if len(models) == 1 else None,
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
            UserError: a setting is out of range, texts is one string, no translation meets all requirements, or one
                text alone exceeds the memory.
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
            UserError: a value is out of range or excludes another.
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

        With sampling, the n best of a text are n samples. Otherwise they are different texts, and fewer than n where
        subwords spell one text in several ways. Of a text that is translated in segments, the i-th translation joins
        the i-th of every segment.

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
        report = on_progress or (lambda count: None)
        lines = (text if isinstance(text, Text) else Text(text) for text in refuse_string(texts, "texts"))
        while part := list(itertools.islice(lines, chunk)):
            usual = self._in_usual_case(part, request)
            by_text = self._segmenter.segments(usual, request.glossary, first_line)
            report(by_text.count([]))  # texts without words are done
            found = iter(self._search(list(itertools.chain(*by_text)), request, report))
            best = [self._best(segments, [next(found) for _ in segments], request) for segments in by_text]
            if request.align:
                best = self._aligned(usual, by_text, best, request)
            yield from map(_in_capitals, part, usual, best)
            first_line += len(part)

    def _best(self, segments: Sequence[Segment], parts: Sequence[Found], request: SearchRequest) -> list[Translation]:
        """Return a text's n best translations, joined from its segments'."""
        settings = request.settings
        joined = join(segments, parts, self.tokenizer.target, settings.length_penalty, self.calibration)
        ranked = least_risky(joined) if settings.mbr else joined
        return (ranked if settings.sampling else without_repeats(ranked))[: request.n_best]

    @property
    def can_align(self) -> bool:
        """Whether translations can have an alignment: PyTorch computes a model that attends to the source."""
        return isinstance(self.engine, ScoringEngine) and self.engine.can_align

    def count_subwords(self, texts: Sequence[str]) -> list[int]:
        """Return the number of subwords of each text; a search takes time by them, not by characters."""
        return [len(ids) for ids in self.tokenizer.source.encode(texts)]

    def score(
        self, sources: Iterable[str], translations: Iterable[str], *, align: bool = False, **changes: int | float | None
    ) -> list[ScoredTranslation]:
        """Return the model's scores of given translations: the scores of producing exactly these translations.

        A long source is cut as `translate` cuts it, and its translation is cut into as many segments.

        Args:
            sources: one text per string.
            translations: one translation of each source.
            align: whether to find for every target word the source word that it attends to most.
            changes: search settings by name; only length_penalty and batch_tokens have an effect.

        Raises:
            UserError: sources or translations is one string, their numbers differ, this engine cannot score, or one
                pair alone exceeds the memory.
        """
        sources = list(refuse_string(sources, "sources"))
        translations = list(refuse_string(translations, "translations"))
        if len(sources) != len(translations):
            raise UserError(f"{len(sources)} sources but {len(translations)} translations: give one for each")
        settings, target = change_search(self.search, changes), self.tokenizer.target
        cut = self._segmenter.segments([Text(source) for source in sources])
        segments = [of_text or [Segment(Masked(""), Source([]))] for of_text in cut]
        hypotheses: list[list[list[int]]] = []
        for of_text, translation in zip(segments, translations, strict=True):
            parts = split_to_match(translation, [len(segment.source.ids) for segment in of_text])
            masks = [segment.masked for segment in of_text]
            hypotheses.append(target.encode([m.in_model(m.apply(part)) for m, part in zip(masks, parts, strict=True)]))
        scores = self._score(segments, hypotheses, settings.batch_tokens, align=align)
        return [
            scored_translation(
                *(of_text, ids), align_text(of_segments, ids, of_text, text, self.tokenizer) if align else None, target,
                settings.length_penalty,
            )
            for of_text, ids, of_segments, text in zip(scores, hypotheses, segments, sources, strict=True)
        ]  # fmt: skip

    def _search(
        self, segments: Sequence[Segment], request: SearchRequest, report: Callable[[int], object]
    ) -> list[Found]:
        """Return the hypotheses of every segment and their texts, best first, with all symbols of the segment."""

        def search(segments: Sequence[Segment]) -> list[Found]:
            return self._search_once(segments, request, lambda count: report(0))

        def align(segments: Sequence[Segment], hypotheses: Sequence[Hypothesis]) -> list[Alignment]:
            rows: list[_ToAlign] = [
                ([segment], [hypothesis.ids], segment.masked.restore(segment.masked.text), None)
                for segment, hypothesis in zip(segments, hypotheses, strict=True)
            ]
            return self._alignments(rows, request.settings.batch_tokens)

        settings, found = request.settings, self._search_once(segments, request, report)
        is_plain = not settings.early_stopping and not settings.sampling
        kept = keep(
            *(segments, found, search, align if self.can_align else None, self.tokenizer),
            has_phrases=is_plain and isinstance(self.engine, ScoringEngine),
            tgt_lang=self.tgt_lang if settings.repair else None,
        )
        plain = dataclasses.replace(request, glossary=None)
        search_plain = functools.partial(self._search, request=plain, report=lambda count: report(0))
        if request.glossary is None or request.banned:  # what is banned is not known of symbols
            return kept
        return place_terms(segments, kept, request.glossary, self.tokenizer, search_plain)

    def _search_once(
        self, segments: Sequence[Segment], request: SearchRequest, report: Callable[[int], object]
    ) -> list[Found]:
        """Return the hypotheses of every segment and their texts, best first, as the engine finds them."""
        hypotheses, target = dict[int, list[Hypothesis]](), self.tokenizer.target
        banned = [*encode_phrases(request.banned, target), *([symbol] for symbol in target.user_symbols.values())]
        sources, on_step = [segment.source for segment in segments], lambda: report(0)
        for batch in self.engine.search(sources, request.settings, request.candidates, banned, on_step=on_step):
            hypotheses |= dict(batch)
            report(sum(segments[index].is_first for index, _ in batch))
        rows = [hypothesis.ids for index in range(len(segments)) for hypothesis in hypotheses[index]]
        texts = iter(target.decode(rows))
        return [[(hypothesis, next(texts)) for hypothesis in hypotheses[index]] for index in range(len(segments))]

    def _in_usual_case(self, texts: Sequence[Text], request: SearchRequest) -> Sequence[Text]:
        """Return texts in which capitals and title case are those of usual text, if the request asks for repair."""
        settings, source = request.settings, self.tokenizer.source
        if not settings.repair or settings.sampling or request.glossary:
            return texts
        return [
            text if text.prefix or text.phrases else dataclasses.replace(text, text=in_usual_case(text.text, source))
            for text in texts
        ]

    def _score(
        self,
        segments: Sequence[Sequence[Segment]],
        hypotheses: Sequence[Sequence[list[int]]],
        batch_tokens: IntOrAuto,
        *,
        align: bool,
    ) -> list[list[TokenScores]]:
        """Return the scores of each text's segments, computed in batches, each given the ids of its translation."""
        if not isinstance(self.engine, ScoringEngine):
            raise UserError("this engine cannot score given translations: use the pytorch engine")
        src = [segment.source.ids for of_text in segments for segment in of_text]
        tgt = [ids for of_text in hypotheses for ids in of_text]
        batches = self.engine.score(src, tgt, batch_tokens, align=align)
        scores = dict(itertools.chain.from_iterable(batches))
        numbers = iter(range(len(src)))
        return [[scores[next(numbers)] for _ in of_text] for of_text in segments]

    def _aligned(
        self,
        texts: Sequence[Text],
        segments: list[list[Segment]],
        best: list[list[Translation]],
        request: SearchRequest,
    ) -> list[list[Translation]]:
        """Add an alignment to every translation of every text, from the attention to its own hypotheses' subwords."""
        rows = [
            (of_text, [part.ids for part in translation.parts], text.text, translation.part_texts)
            for text, of_text, translations in zip(texts, segments, best, strict=True)
            for translation in translations
        ]
        alignments = iter(self._alignments(rows, request.settings.batch_tokens))
        return [[dataclasses.replace(one, alignment=next(alignments)) for one in translations] for translations in best]

    def _alignments(self, rows: Sequence[_ToAlign], batch_tokens: IntOrAuto) -> list[Alignment]:
        """Return the alignment of words of each text and its translation."""
        scores = self._score([row[0] for row in rows], [row[1] for row in rows], batch_tokens, align=True)
        return [
            align_text(segments, ids, of_text, text, self.tokenizer, part_texts)
            for (segments, ids, text, part_texts), of_text in zip(rows, scores, strict=True)
        ]


def _in_capitals(text: Text, usual: Text, translations: list[Translation]) -> list[Translation]:
    """Return translations in capitals if the text is in capitals and was translated as usual text."""
    if usual.text == text.text or not is_in_capitals(text.text):
        return translations
    return [dataclasses.replace(translation, text=translation.text.upper()) for translation in translations]


def _shorten(count: int) -> str:
    return f"{count / 1e6:.1f}M" if count >= 1e6 else f"{count / 1e3:.1f}k"
