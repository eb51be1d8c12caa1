"""Sees to it that a translation has every masked string of its source, whatever the model produced."""

from collections.abc import Sequence
from dataclasses import replace

from seq2seq.documents.marked import Kind
from seq2seq.documents.marked import Segment as Markup
from seq2seq.interface import SearchRequest
from seq2seq.repair import Found, Search, put_back, search_each
from seq2seq.text.masks import SYMBOL, Masked
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.translation import Segment


def keep(
    segments: Sequence[Segment],
    found: Sequence[Found],
    request: SearchRequest,
    search: Search,
    target: Tokenizer,
    *,
    has_phrases: bool,
) -> list[Found]:
    """Return the translations of segments; each of the n best has all symbols of its segment.

    If one of them lacks a symbol, the segment is searched again with its lost symbols as required phrases. Where the
    engine cannot do that, a lost symbol is put at the same relative position as in the segment.

    Args:
        segments: the segments.
        found: their translations.
        request: how these were searched.
        search: searches again.
        target: the tokenizer of the translations.
        has_phrases: whether the engine can search with required phrases.
    """
    kept = list(found)
    lost = {i: symbols for i, segment in enumerate(segments) if (symbols := _lost(segment, found[i], request.n_best))}
    if has_phrases and lost:
        ids = dict(zip(map(str, range(1, len(target.mask_ids) + 1)), target.mask_ids, strict=True))
        again = []
        for i, symbols in lost.items():
            required = [[ids[symbol]] for symbol in symbols]
            source = segments[i].source
            again.append(replace(segments[i], source=replace(source, phrases=[*source.phrases, *required])))
        for i, better in zip(lost, search_each(again, request, search), strict=True):
            kept[i] = better or kept[i]
    for i in lost:
        kept[i] = [(one, _insert(segments[i].masked, text)) for one, text in kept[i]]
    return kept


def _lost(segment: Segment, found: Found, n_best: int) -> list[str]:
    """Return the numbers of the symbols that one of the n best translations lacks."""
    lost = (number for _, text in found[:n_best] for number in segment.masked.lost(text))
    return list(dict.fromkeys(lost)) if segment.masked.strings else []


def _insert(masked: Masked, translation: str) -> str:
    """Return the translation with the symbols that it lacks, at the relative positions that they have in the text."""
    lost = masked.lost(translation)
    if not lost:
        return translation
    markup: Markup[str] = Markup()
    at = 0
    for match in SYMBOL.finditer(masked.text):
        if match[1] in lost:
            markup.add_text(masked.text[at : match.start()])
            markup.add_mark(Kind.POINT, match[0])
            at = match.end()
    markup.add_text(masked.text[at:])
    return put_back(markup, translation, None)
