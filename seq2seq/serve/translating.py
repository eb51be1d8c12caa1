"""Texts to translations through a batcher: lines and sentences, markup and what must stay as it is; knows no HTTP."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from seq2seq.documents import html
from seq2seq.documents.keeping import (
    Translate,
    Translated,
    cut_marked,
    cut_sentences,
    translate_marked,
    translate_texts,
)
from seq2seq.documents.kept import KEPT
from seq2seq.documents.marked import OBJECT, Marked
from seq2seq.errors import UserError
from seq2seq.serve.batching import Batcher
from seq2seq.serve.limits import Limits
from seq2seq.serve.worker import Worker
from seq2seq.translation import Translation

_USUAL = 200  # characters of a sentence at most, beyond which it is long
_RESERVED = str.maketrans({"\0": " ", OBJECT: " "})  # what stands for markup while it is kept


@dataclass(frozen=True)
class Wanted:
    """What sentences of one batch have in common."""

    n_best: int  # translations of each
    align: bool = False  # whether the alignment of words is wanted


Ranked = list[str]  # translations, best first; fewer than wanted where the model has fewer
SentenceBatcher = Batcher[Wanted, str, list[Translated]]
Found = dict[tuple[str, bool], list[Translated]]  # by sentence and whether aligned
T = TypeVar("T", str, Marked)


@runtime_checkable
class Translates(Protocol):
    """What a server needs of a `Translator`."""

    src_lang: str
    tgt_lang: str

    @property
    def can_align(self) -> bool:
        """Whether it gives alignments of words."""
        ...

    def translate_nbest(
        self,
        texts: Sequence[str],
        n_best: int,
        *,
        align: bool = False,
        on_progress: Callable[[int], object] | None = None,
    ) -> list[list[Translation]]:
        """Give the n best translations of every text, best first; what on_progress raises ends the work."""
        ...


class _MissingError(Exception):
    """Sentences have no translation yet."""

    def __init__(self, sentences: list[str], align: bool) -> None:
        super().__init__(f"{len(sentences)} sentences have no translation yet")
        self.sentences, self.align = sentences, align


def compute_with(
    translator: Translates,
) -> Callable[[Wanted, list[str], Callable[[], None]], list[list[Translated]]]:
    """Make of a translator what computes batches; a sentence that a batch has several times is translated once."""

    def compute(wanted: Wanted, sentences: list[str], check: Callable[[], None]) -> list[list[Translated]]:
        different = list(dict.fromkeys(sentences))
        check()
        align = wanted.align and translator.can_align
        done = translator.translate_nbest(different, wanted.n_best, align=align, on_progress=lambda _: check())
        found: dict[str, list[Translated]] = {
            sentence: [(one.text, one.alignment) for one in best]
            for sentence, best in zip(different, done, strict=True)
        }
        return [found[sentence] for sentence in sentences]

    return compute


@dataclass(frozen=True)
class TextTranslator:
    """Translates texts sentence by sentence: the batcher has nothing but sentences, so that requests share batches.

    Attributes:
        batcher: what translates sentences of usual length.
        long_batcher: what translates longer ones, apart, since a batch ends with its longest sentence.
        worker: where markup is found and placed; not the model's thread.
        languages: of texts and of translations, as codes.
        limits: of sentences and of what is kept in them.
    """

    batcher: SentenceBatcher
    long_batcher: SentenceBatcher
    worker: Worker
    languages: tuple[str, str]
    limits: Limits

    async def translate(self, texts: Sequence[str], n_best: int, *, is_html: bool) -> list[Ranked]:
        """Translate texts; line ends, the space between sentences, markup, URLs and placeholders stay.

        Of a text of several sentences the i-th translation joins the i-th of each.

        Raises:
            RefusedError: see `Batcher.submit`.
            UserError: a text cannot be translated, or has too many sentences, tags, links or placeholders.
        """
        texts = [text.translate(_RESERVED) for text in texts]
        if is_html:
            segments = await self.worker.run(self._segments_of, texts)
            await self.worker.run(self._require_small, segments)
            by_rank = await self._translate_around(translate_marked, segments, n_best)
            documents = [await self.worker.run(self._splice, texts, translated) for translated in by_rank]
            return _without_repetitions(documents)
        if any(KEPT.search(text) for text in texts):
            await self.worker.run(self._require_small, [Marked(text) for text in texts])
            return _without_repetitions(await self._translate_around(translate_texts, texts, n_best))
        return await self._translate_plain(texts, n_best)

    async def _translate_plain(self, texts: list[str], n_best: int) -> list[Ranked]:
        cut = [cut_sentences(text) for text in texts]  # in turn: a sentence, the gap after it
        sentences = list(dict.fromkeys(part.strip() for parts in cut for part in parts[::2] if part.strip()))
        self._require_few(len(sentences))
        done = await self._translate_sentences(sentences, Wanted(n_best))
        found = {one: [text for text, _ in best] for one, best in done.items()}
        translated = [
            [_around(part, found[part.strip()]) if part.strip() else [part] for part in parts[::2]] for parts in cut
        ]
        return [_joined(of_text, parts[1::2]) for of_text, parts in zip(translated, cut, strict=True)]

    async def _translate_around(
        self, keep: Callable[[Sequence[T], Translate], list[T]], texts: list[T], n_best: int
    ) -> list[list[T]]:
        """Translate what is words in texts, all of them together; gives all texts' best translations, then the next.

        Placing begins anew whenever the model has to be asked, since keep, which translates and places, cannot wait.
        """
        found: Found = {}
        by_rank: list[list[T]] = []
        while len(by_rank) < n_best:
            try:
                by_rank.append(await self.worker.run(keep, texts, _look_up(found, len(by_rank))))
            except _MissingError as missing:
                done = await self._translate_sentences(missing.sentences, Wanted(n_best, missing.align))
                found |= {(one, missing.align): best for one, best in done.items()}
        return by_rank

    async def _translate_sentences(self, sentences: list[str], wanted: Wanted) -> dict[str, list[Translated]]:
        """Translate sentences, none of them twice; when one batcher refuses, the other's work is given up."""
        usual = [one for one in sentences if len(one) <= _USUAL]
        long = [one for one in sentences if len(one) > _USUAL]
        parts = ((self.batcher, usual), (self.long_batcher, long))
        work = [asyncio.ensure_future(batcher.submit(part, wanted)) for batcher, part in parts if part]
        try:
            done = await asyncio.gather(*work)
        finally:
            for one in work:
                one.cancel()
        return dict(zip([*usual, *long], itertools.chain(*done), strict=True))

    def _segments_of(self, documents: list[str]) -> list[Marked]:
        segments: list[Marked] = []

        def collect(texts: Sequence[Marked]) -> list[Marked]:
            segments.extend(texts)
            return list(texts)

        for document in documents:
            html.translate_document(document, collect, *self.languages)
        return segments

    def _splice(self, documents: list[str], translated: list[Marked]) -> list[str]:
        """Put the translations of all documents' segments in their places."""
        done = iter(translated)
        take: Callable[[Sequence[Marked]], list[Marked]] = lambda texts: list(itertools.islice(done, len(texts)))  # noqa: E731
        return [html.translate_document(document, take, *self.languages) for document in documents]

    def _require_small(self, texts: list[Marked]) -> None:
        """Refuse what would take too long to place.

        Raises:
            UserError: there are too many sentences, or one has too many tags, links or placeholders.
        """
        sentences = dict.fromkeys(part for text in texts for part in cut_marked(text)[::2])
        marks = [len(sentence.marks) + len(KEPT.findall(sentence.text)) for sentence in sentences]
        most, limit = max(marks, default=0), self.limits.tag_limit
        if most > limit:
            raise UserError(f"a sentence has {most} tags, links or placeholders, at most {limit} can be kept")
        self._require_few(len(sentences) + sum(marks))

    def _require_few(self, count: int) -> None:
        if count > self.limits.sentence_limit:
            told = f"{count} sentences (parts between tags, links and placeholders count)"
            raise UserError(f"the request has {told}, at most {self.limits.sentence_limit} are translated")


def _look_up(found: Found, rank: int) -> Translate:
    """Make what gives those translations of sentences that have this rank; it raises `_MissingError` for others."""

    def look_up(sentences: Sequence[str], align: bool) -> list[Translated]:
        if missing := [one for one in dict.fromkeys(sentences) if (one, align) not in found]:
            raise _MissingError(missing, align)
        return [found[one, align][min(rank, len(found[one, align]) - 1)] for one in sentences]

    return look_up


def _without_repetitions(by_rank: list[list[str]]) -> list[Ranked]:
    return [list(dict.fromkeys(of_text)) for of_text in zip(*by_rank, strict=True)]


def _around(sentence: str, ranked: Ranked) -> Ranked:
    """Give every translation the space that stands around the sentence."""
    body = sentence.strip()
    before, _, after = sentence.partition(body)
    return [before + one + after for one in ranked]


def _joined(sentences: list[Ranked], gaps: list[str]) -> Ranked:
    count = max(len(ranked) for ranked in sentences)
    chosen = ([ranked[min(rank, len(ranked) - 1)] for ranked in sentences] for rank in range(count))
    texts = ("".join(itertools.chain(*itertools.zip_longest(parts, gaps, fillvalue=""))) for parts in chosen)
    return list(dict.fromkeys(texts))
