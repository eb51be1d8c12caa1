"""Translate texts with batchers, and keep markup, placeholders and line ends; this module does not know HTTP."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from seq2seq.apps.documents import html
from seq2seq.apps.documents.kept_strings import Translated, cut_marked, cut_sentences, prepare
from seq2seq.apps.documents.marked_text import KEPT, OBJECT, Document, Marked
from seq2seq.apps.serve.batching import Batcher, Compute, Ranked, Sentence, SentenceOptions
from seq2seq.apps.serve.limits import Limits
from seq2seq.apps.serve.worker import Kind, Worker
from seq2seq.errors import UserError
from seq2seq.text.glossary import Glossary
from seq2seq.translate.translator import Translator

_SHORT_SUBWORDS, _USUAL_SUBWORDS = 128, 64  # a request with more subwords, or more in a sentence, is long
_RESERVED = str.maketrans({"\0": " ", OBJECT: " "})  # characters that stand for markup inside `documents`


def compute_with(translator: Translator) -> Compute:
    """Return the `compute` function of a `Batcher`; it translates equal sentences of a batch once."""

    def compute(options: SentenceOptions, texts: list[str], check: Callable[[], None]) -> list[Ranked]:
        check()
        different = list(dict.fromkeys(texts))
        align = options.align and translator.can_align
        n_best = translator.translate_nbest(
            different, options.n_best, glossary=options.glossary, align=align, on_progress=lambda _: check()
        )
        by_text = dict(zip(different, n_best, strict=True))
        return [by_text[text] for text in texts]

    return compute


@dataclass(frozen=True)
class TranslatedText:
    """The different translations of a text, best first."""

    ranks: list[str]
    confidence: float | None  # of the best one's least sure sentence; None: it is not known for every sentence


@dataclass(frozen=True)
class TextTranslator:
    """Translates texts sentence by sentence, so that the sentences of all requests share batches.

    Attributes:
        batchers: for each kind of call; long ones have their own: a batch takes as long as its longest sentence.
        count_subwords: returns the length of each sentence; a few characters can be many subwords.
        worker: the thread that reads and places markup; not the model's thread.
        languages: codes of the source and the target language.
        limits: of the number of sentences of a request, and of the markup in each sentence.
    """

    batchers: Sequence[Batcher]
    count_subwords: Callable[[Sequence[str]], list[int]]
    worker: Worker
    languages: tuple[str, str]
    limits: Limits

    async def translate(
        self, texts: Sequence[str], n_best: int, *, is_html: bool, glossary: Glossary | None = None
    ) -> list[TranslatedText]:
        """Return up to n_best different translations of every text, best first; terms of the glossary have its words.

        Translations keep line ends, the space between sentences, markup, URLs and placeholders. The i-th translation of
        a text joins the i-th translations of its sentences.
        """
        options = SentenceOptions(n_best, glossary=glossary)
        texts = [text.translate(_RESERVED) for text in texts]
        if is_html or any(KEPT.search(text) for text in texts):
            by_rank, ranked = await self._translate_marked(texts, options, is_html)
        else:
            by_rank, ranked = await self._translate_plain(texts, options)
        return [
            TranslatedText(list(dict.fromkeys(ranks)), None if is_html else _least_confidence(text, ranked))
            for text, ranks in zip(texts, zip(*by_rank, strict=True), strict=True)
        ]

    async def _translate_plain(
        self, texts: list[str], options: SentenceOptions
    ) -> tuple[list[list[str]], dict[str, Ranked]]:
        """Return the texts' translations by rank, and the sentences' translations."""
        cut = [cut_sentences(text) for text in texts]
        sentences = list(dict.fromkeys(body for parts in cut for part in parts if (body := part.strip())))
        self._require_few(len(sentences))
        ranked = await self._translate_sentences(sentences, options)

        def translated(part: str, rank: int) -> str:
            body = part.strip()
            return part.replace(body, _at_rank(ranked[body], rank)[0], 1) if body else part

        ranks = range(options.n_best)
        return [["".join(translated(part, rank) for part in parts) for parts in cut] for rank in ranks], ranked

    async def _translate_marked(
        self, texts: list[str], options: SentenceOptions, is_html: bool
    ) -> tuple[list[list[str]], dict[str, Ranked]]:
        """Return translations that keep markup and placeholders, which the worker reads and places."""
        documents = await self.worker.run(self._read, texts, is_html)
        segments = [segment for document in documents for segment in document.segments]
        sentences, align, finish = await self.worker.run(prepare, segments)
        ranked = await self._translate_sentences(list(dict.fromkeys(sentences)), replace(options, align=align))

        def write(rank: int) -> list[str]:
            translated = iter(finish([_at_rank(ranked[text], rank) for text in sentences]))
            return [document.write([*itertools.islice(translated, len(document.segments))]) for document in documents]

        return [await self.worker.run(write, rank) for rank in range(options.n_best)], ranked

    async def _translate_sentences(self, texts: list[str], options: SentenceOptions) -> dict[str, Ranked]:
        """Return the translations of different sentences."""
        if options.glossary is not None:
            most = max((len(options.glossary.translations(text)) for text in texts), default=0)
            if most > (limit := self.limits.term_limit):
                raise UserError(f"a sentence has {most} terms of the glossary, at most {limit} can be required")
        sizes = await asyncio.to_thread(self.count_subwords, texts)  # in another thread: a text may take 40 ms
        is_short = sum(sizes) <= _SHORT_SUBWORDS and max(sizes, default=0) <= _USUAL_SUBWORDS
        batcher = self.batchers[Kind.SHORT if is_short else Kind.LONG]
        ranked = await batcher.submit([Sentence(*sized) for sized in zip(texts, sizes, strict=True)], options)
        return dict(zip(texts, ranked, strict=True))

    def _read(self, texts: list[str], is_html: bool) -> list[Document]:
        """Return texts as documents; refuse texts whose markup would take too long to place."""
        documents = [html.read(text, *self.languages, is_file=False) if is_html else _plain(text) for text in texts]
        segments = [segment for document in documents for segment in document.segments]
        sentences = dict.fromkeys(part for segment in segments for part in cut_marked(segment)[::2])
        marks = [len(sentence.marks) + len(KEPT.findall(sentence.text)) for sentence in sentences]
        most_marks, limit = max(marks, default=0), self.limits.tag_limit
        if most_marks > limit:
            raise UserError(f"a sentence has {most_marks} tags or placeholders, at most {limit} can be kept")
        self._require_few(len(sentences))
        return documents

    def words_of(self, page: str) -> str:
        """Return the text of HTML, without its markup."""
        return "\n".join(segment.text for segment in html.read(page, *self.languages, is_file=False).segments)

    def _require_few(self, count: int) -> None:
        if count > (limit := self.limits.sentence_limit):
            raise UserError(f"the request has {count} sentences, at most {limit} are translated")


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text, without the space around them."""
    return [body for part in cut_sentences(text) if (body := part.strip())]


def _plain(text: str) -> Document:
    return Document([Marked(text)], lambda translated: translated[0].text)


def _at_rank(best: Ranked, rank: int) -> Translated:
    """Return the translation of this rank, or the last one if the model found fewer."""
    translation = best[min(rank, len(best) - 1)]
    return translation.text, translation.alignment


def _least_confidence(text: str, ranked: Mapping[str, Ranked]) -> float | None:
    """Return the least confidence of a text's sentences; None if one has none, as a mere placeholder."""
    known = [ranked[sentence][0].confidence if sentence in ranked else None for sentence in sentences_of(text)]
    return min((one for one in known if one is not None), default=None) if None not in known else None
