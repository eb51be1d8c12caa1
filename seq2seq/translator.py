"""Translates strings: encodes, sorts by length, searches in batches, decodes, restores the order; knows no files."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.errors import UserError
from seq2seq.files import find_models
from seq2seq.glossary import Glossary
from seq2seq.interface import (
    Compile,
    Hypothesis,
    ScoredTranslation,
    ScoringEngine,
    SearchEngine,
    SearchRequest,
    Source,
    Text,
    TokenScores,
    Translation,
    require_iterable,
    require_strings,
)
from seq2seq.kept import Align, Found, keep
from seq2seq.settings.bundle import Calibration
from seq2seq.settings.checks import IntOrAuto
from seq2seq.settings.search import SearchConfig, change_search
from seq2seq.text.case import in_usual_case, is_in_capitals
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translation import (
    Alignment,
    Segment,
    Segmenter,
    align_text,
    as_text,
    encode_phrases,
    join,
    least_risky,
    scored_translation,
    split_to_match,
    without_repeats,
)

if TYPE_CHECKING:  # an engine of another kind needs no PyTorch
    import torch

    from seq2seq.model.encoder_decoder import EncoderDecoder
    from seq2seq.model.ensemble import Ensemble
    from seq2seq.search.shortlist import Shortlist

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
        (`translation.Segmenter`); None: of more than 200. dtype is the type of matrix products: None means bfloat16 on
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
            from seq2seq.engine import Engine

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
        from seq2seq.bundle import load_bundles
        from seq2seq.device import choose_device
        from seq2seq.model.ensemble import Ensemble
        from seq2seq.search.shortlist import Shortlist

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
        settings, report = request.settings, on_progress or (lambda count: None)
        target = self.tokenizer.target
        banned = encode_phrases(request.banned, target)
        banned += [[symbol] for symbol in target.user_symbols.values()]
        lines = enumerate(require_iterable(texts, "texts"), start=first_line)
        while part := [as_text(text, number) for number, text in itertools.islice(lines, chunk)]:
            is_recased = settings.repair and not (settings.sampling or request.glossary)
            texts = [self._in_usual_case(text) for text in part] if is_recased else part
            segments = self._segmenter.segments(texts, request.glossary, first_line)
            report(len(part) - sum(segment.is_first for segment in segments))  # texts without words are done
            found = self._search(segments, request, banned, report)
            of_text: list[list[Found]] = [[] for _ in part]
            for segment, of_segment in zip(segments, found, strict=True):
                of_text[segment.text_index].append(of_segment)
            joined = [
                join(of_segments, parts, target, settings.length_penalty, self.calibration)
                for of_segments, parts in zip(_by_text(segments, len(part)), of_text, strict=True)
            ]
            ranked = list(map(least_risky, joined)) if settings.mbr else joined
            ranked = ranked if settings.sampling else list(map(without_repeats, ranked))
            best = [translations[: request.n_best] for translations in ranked]
            best = self._aligned(texts, segments, best, settings.batch_tokens) if request.align else best
            for text, usual, translations in zip(part, texts, best, strict=True):
                is_shouted = usual is not text and is_in_capitals(text.text)
                yield list(map(_in_capitals, translations)) if is_shouted else translations
            first_line += len(part)

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
            UserError: sources or translations is no list of strings, their numbers differ, this engine cannot score,
                or one pair alone exceeds the memory.
        """
        sources, translations = require_strings(sources, "sources"), require_strings(translations, "translations")
        if len(sources) != len(translations):
            raise UserError(f"{len(sources)} sources but {len(translations)} translations: give one for each")
        settings, target = change_search(self.search, changes), self.tokenizer.target
        texts = [Text(source) for source in sources]
        segments = _by_text(self._segmenter.segments(texts), len(texts))
        segments = [of_text or [Segment(index, "", Source([]))] for index, of_text in enumerate(segments)]
        hypotheses = [
            target.encode(
                [one.masked.in_model(one.masked.apply(part)) for one, part in zip(of_text, parts, strict=True)]
            )
            for of_text, parts in (
                (of_text, split_to_match(translation, [len(segment.source.ids) for segment in of_text]))
                for of_text, translation in zip(segments, translations, strict=True)
            )
        ]
        scores = self._score(segments, hypotheses, settings.batch_tokens, has_attention=align)
        return [
            scored_translation(
                *(of_text, ids), align_text(of_segments, ids, of_text, text, self.tokenizer) if align else None, target,
                settings.length_penalty,
            )
            for of_text, ids, of_segments, text in zip(scores, hypotheses, segments, sources, strict=True)
        ]  # fmt: skip

    def _search(
        self,
        segments: Sequence[Segment],
        request: SearchRequest,
        banned: list[list[int]],
        report: Callable[[int], object],
    ) -> list[Found]:
        """Return the hypotheses of every segment and their texts, best first, with all symbols of the segment."""

        def search(segments: Sequence[Segment], request: SearchRequest) -> list[Found]:
            hypotheses: dict[int, list[Hypothesis]] = {}
            sources, on_step = [segment.source for segment in segments], lambda: report(0)
            for batch in self.engine.search(sources, request.settings, request.candidates, banned, on_step=on_step):
                hypotheses |= dict(batch)
                report(0 if is_begun else sum(segments[index].is_first for index, _ in batch))
            is_begun.append(True)
            rows = [hypothesis.ids for index in range(len(segments)) for hypothesis in hypotheses[index]]
            texts = iter(self.tokenizer.target.decode(rows))
            return [[(one, next(texts)) for one in hypotheses[index]] for index in range(len(segments))]

        is_begun = list[bool]()  # only the first search begins texts
        has_phrases, align = self._has_phrases(request), self._align(request) if self.can_align else None
        tgt_lang = self.tgt_lang if request.settings.repair else None
        return keep(segments, request, search, align, self.tokenizer, has_phrases=has_phrases, tgt_lang=tgt_lang)

    def _align(self, request: SearchRequest) -> Align:
        """Return a function that aligns the words of segments and their hypotheses."""

        def align(segments: Sequence[Segment], hypotheses: Sequence[Hypothesis]) -> list[Alignment]:
            ids = [one.ids for one in hypotheses]
            scores = self._score(
                [[one] for one in segments], [[one] for one in ids], request.settings.batch_tokens, has_attention=True
            )
            texts = [segment.masked.restore(segment.text) for segment in segments]
            return [
                align_text([segment], [row], of_segment, text, self.tokenizer)
                for segment, row, of_segment, text in zip(segments, ids, scores, texts, strict=True)
            ]

        return align

    def _in_usual_case(self, text: Text) -> Text:
        is_free = not (text.prefix or text.phrases)
        usual = in_usual_case(text.text, self.tokenizer.source) if is_free else text.text
        return text if usual == text.text else dataclasses.replace(text, text=usual)

    def _has_phrases(self, request: SearchRequest) -> bool:
        """Return whether this engine can search with required phrases, which some settings exclude."""
        settings = request.settings
        is_plain = not settings.early_stopping and not settings.sampling
        return is_plain and isinstance(self.engine, ScoringEngine)

    def _score(
        self,
        segments: Sequence[Sequence[Segment]],
        hypotheses: Sequence[Sequence[list[int]]],
        batch_tokens: IntOrAuto,
        *,
        has_attention: bool,
    ) -> list[list[TokenScores]]:
        """Return the scores of each text's segments, computed in batches, each given the ids of its translation."""
        if not isinstance(self.engine, ScoringEngine):
            raise UserError("this engine cannot score given translations: use the pytorch engine")
        src = [segment.source.ids for of_text in segments for segment in of_text]
        tgt = [ids for of_text in hypotheses for ids in of_text]
        batches = self.engine.score(src, tgt, batch_tokens, align=has_attention)
        scores = dict(itertools.chain.from_iterable(batches))
        numbers = iter(range(len(src)))
        return [[scores[next(numbers)] for _ in of_text] for of_text in segments]

    def _aligned(
        self, texts: Sequence[Text], segments: list[Segment], best: list[list[Translation]], batch_tokens: IntOrAuto
    ) -> list[list[Translation]]:
        """Add an alignment to every translation of every text, from the attention to its own hypotheses' subwords."""
        of_text = _by_text(segments, len(texts))
        pairs = [(index, translation) for index, translations in enumerate(best) for translation in translations]
        hypotheses = [[part.ids for part in translation.parts] for _, translation in pairs]
        scores = self._score([of_text[index] for index, _ in pairs], hypotheses, batch_tokens, has_attention=True)
        alignments = (
            align_text(of_text[index], ids, of_segments, texts[index].text, self.tokenizer, best_one.part_texts)
            for (index, best_one), ids, of_segments in zip(pairs, hypotheses, scores, strict=True)
        )
        return [
            [dataclasses.replace(each, alignment=next(alignments)) for each in translations] for translations in best
        ]


def _in_capitals(translation: Translation) -> Translation:
    return dataclasses.replace(translation, text=translation.text.upper())


def _by_text(segments: Iterable[Segment], num_texts: int) -> list[list[Segment]]:
    of_text: list[list[Segment]] = [[] for _ in range(num_texts)]
    for segment in segments:
        of_text[segment.text_index].append(segment)
    return of_text


def _shorten(count: int) -> str:
    return f"{count / 1e6:.1f}M" if count >= 1e6 else f"{count / 1e3:.1f}k"
