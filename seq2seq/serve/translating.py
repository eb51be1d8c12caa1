"""Texts to translations through a batcher: lines and sentences, markup and what must stay as it is; knows no HTTP."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from seq2seq.documents import html
from seq2seq.documents.keeping import BOUNDARY, KEPT, OBJECT, cut_sentences, translate_texts
from seq2seq.serve.batching import Batcher
from seq2seq.translation import Translation

_RESERVED = str.maketrans({BOUNDARY: " ", OBJECT: " "})  # what stands for markup while it is kept


class Kind(StrEnum):
    """What an item is."""

    sentence = "sentence"  # words only
    text = "text"  # has URLs, placeholders, tags or the like, which stay as they are
    html = "html"  # a document, or a part of one


@dataclass(frozen=True)
class Wanted:
    """What items of one batch have in common."""

    kind: Kind
    n_best: int  # translations of each


Ranked = list[str]  # translations, best first; fewer than wanted where the model has fewer
TextBatcher = Batcher[Wanted, str, Ranked]


@runtime_checkable
class Translates(Protocol):
    """What a server needs of a `Translator`."""

    src_lang: str
    tgt_lang: str

    def translate_nbest(
        self, texts: Sequence[str], n_best: int, *, on_progress: Callable[[int], object] | None = None
    ) -> list[list[Translation]]:
        """Give the n best translations of every text, best first; what on_progress raises ends the work."""
        ...


def compute_with(translator: Translates) -> Callable[[Wanted, list[str], Callable[[], None]], list[Ranked]]:
    """Make of a translator what computes batches; texts that are asked for several times are translated once."""

    def compute(wanted: Wanted, items: list[str], check: Callable[[], None]) -> list[Ranked]:
        found: dict[str, Ranked] = {}

        def ranked(texts: Sequence[str]) -> list[Ranked]:
            new = list(dict.fromkeys(text for text in texts if text not in found))
            check()
            done = translator.translate_nbest(new, wanted.n_best, on_progress=lambda _: check()) if new else []
            for text, best in zip(new, done, strict=True):
                found[text] = [one.text for one in best]
            return [found[text] for text in texts]

        if wanted.kind is Kind.sentence:
            return ranked(items)
        by_rank = [
            _translate_around(items, wanted.kind, _of_rank(ranked, rank), translator) for rank in range(wanted.n_best)
        ]
        return [list(dict.fromkeys(of_item)) for of_item in zip(*by_rank, strict=True)]

    return compute


async def translate_all(
    batcher: TextBatcher, texts: Sequence[str], *, n_best: int, is_html: bool, deadline: float
) -> list[Ranked]:
    """Translate texts, sentence by sentence; line ends and the space between sentences stay.

    Of a text of several sentences the i-th translation joins the i-th of each.

    Raises:
        RefusedError: see `Batcher.submit`.
        UserError: a text cannot be translated.
    """
    texts = [text.translate(_RESERVED) for text in texts]
    if is_html or any(KEPT.search(text) for text in texts):
        kind = Kind.html if is_html else Kind.text
        return await batcher.submit(texts, Wanted(kind, n_best), deadline)
    cut = [cut_sentences(text) for text in texts]  # in turn: a sentence, the gap after it
    sentences = [part.strip() for parts in cut for part in parts[::2] if part.strip()]
    done = iter(await batcher.submit(sentences, Wanted(Kind.sentence, n_best), deadline))
    translated = [[_around(part, next(done)) if part.strip() else [part] for part in parts[::2]] for parts in cut]
    return [_joined(of_text, parts[1::2]) for of_text, parts in zip(translated, cut, strict=True)]


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


def _of_rank(ranked: Callable[[Sequence[str]], list[Ranked]], rank: int) -> Callable[[Sequence[str]], list[str]]:
    return lambda texts: [best[min(rank, len(best) - 1)] for best in ranked(texts)]


def _translate_around(
    items: list[str], kind: Kind, translate: Callable[[Sequence[str]], list[str]], translator: Translates
) -> list[str]:
    """Translate what is words in texts or documents, all of them together.

    Raises:
        UserError: a document is malformed, or not to be kept as it is.
    """
    if kind is Kind.text:
        return translate_texts(items, translate)
    languages = translator.src_lang, translator.tgt_lang
    segments: list[str] = []

    def collect(texts: Sequence[str]) -> list[str]:
        segments.extend(texts)
        return list(texts)

    for document in items:
        html.translate_document(document, collect, *languages)
    done = iter(translate_texts(segments, translate))
    return [
        html.translate_document(document, lambda texts: list(itertools.islice(done, len(texts))), *languages)
        for document in items
    ]
