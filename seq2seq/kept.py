"""Sees to it that a translation has every string that its text keeps, whatever the model produced.

A lost symbol (`seq2seq.text.masks`) is searched again as a required phrase. A model without symbols, and an engine or a
search without phrases, translates the text without its strings, and the alignment of words says where they go. Knows no
documents.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from seq2seq.errors import UserError
from seq2seq.interface import Hypothesis, SearchRequest
from seq2seq.text.masks import SYMBOL, Masked
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translation import Alignment, Segment, with_text

_SPACE_BEFORE_MARK = re.compile(r"(?<!\s)\s++([.,;:!?…)\]»”]++)(?=\s|$)")

Found = list[tuple[Hypothesis, str]]  # the hypotheses of a segment and their texts, best first
Search = Callable[[Sequence[Segment], SearchRequest], list[Found]]
Align = Callable[[Sequence[Segment], Sequence[Hypothesis]], list[Alignment]]


def keep(
    segments: Sequence[Segment],
    request: SearchRequest,
    search: Search,
    align: Align | None,
    tokenizers: Tokenizers,
    *,
    has_phrases: bool,
) -> list[Found]:
    """Return the translations of segments, with symbols; each has all symbols of its segment.

    Args:
        segments: the segments.
        request: what to search.
        search: searches.
        align: aligns the words of segments and hypotheses; None: by their relative position.
        tokenizers: the model's.
        has_phrases: whether the engine can search with required phrases.
    """
    found = [_with_symbols(segment, of) for segment, of in zip(segments, search(segments, request), strict=True)]
    if has_phrases:
        lost = {i: symbols for i, symbols in _lost(segments, found).items() if not segments[i].masked.is_spelt}
        again = [_with_required(segments[i], symbols, tokenizers.target) for i, symbols in lost.items()]
        for i, better in zip(lost, search_each(again, request, search), strict=True):
            found[i] = better or found[i]
    rest = {i: with_text(segments[i], SYMBOL.sub(" ", segments[i].text), tokenizers) for i in _lost(segments, found)}
    for i in rest:  # if no words are left, the text is its own translation
        found[i] = [(one, text if _has_words(rest[i]) else segments[i].text) for one, text in found[i]]
    rest = {i: segment for i, segment in rest.items() if _has_words(segment)}
    again = search_each(list(rest.values()), request, search)
    pairs = [(segment, one) for segment, better in zip(rest.values(), again, strict=True) for one, _ in better]
    ways = iter(align(*zip(*pairs, strict=True)) if align and pairs else [])
    for i, better in zip(rest, again, strict=True):
        (begun,) = tokenizers.target.decode([list(segments[i].source.prefix)])
        found[i] = [
            (one, insert(segments[i].masked, text, next(ways, None) if better else None, len(begun.split())))
            for one, text in _with_symbols(segments[i], better) or found[i]
        ]
    return found


def _has_words(segment: Segment) -> bool:
    return bool(segment.source.ids) and any(map(str.isalnum, segment.text))


def search_each(segments: Sequence[Segment], request: SearchRequest, search: Search) -> list[Found]:
    """Search all segments together or, if one of them cannot be searched, each alone; such a one has no translation."""
    if not segments:
        return []
    try:
        return search(segments, request)
    except UserError:  # a text is too short for its phrases, or no n-gram is left
        if len(segments) == 1:
            return [[]]
    return [one for segment in segments for one in search_each([segment], request, search)]


def insert(masked: Masked, translation: str, alignment: Alignment | None, num_first: int = 0) -> str:
    """Return the translation with the symbols that it lacks, as words of their own or before punctuation.

    Args:
        masked: the text.
        translation: its translation.
        alignment: of the words of the text without these symbols; None: by their relative position.
        num_first: number of the translation's first words that nothing may precede: those of a prefix.
    """
    lost, words = masked.lost(translation), translation.split()
    if not lost:
        return translation
    parts = re.split("|".join(f"(?:⟨{number}⟩)" for number in lost), masked.text)
    length, num_words = sum(len(part.split()) for part in parts), len(words)
    relative = [((2 * word + 1) * length // (2 * num_words), word) for word in range(num_words)]
    aligned: dict[int, list[int]] = {}
    for word, translated in alignment or relative:
        aligned.setdefault(word, []).append(translated)
    before = 0
    spaces: list[list[str]] = [[] for _ in range(num_words + 1)]
    for part, number in zip(parts, sorted(lost, key=lambda number: masked.text.index(f"⟨{number}⟩")), strict=False):
        before += len(part.split())
        if before in (0, length):
            position = num_words if before else 0
        elif before in aligned:
            position = min(aligned[before])
        else:
            position = max(aligned.get(before - 1, [before * num_words // length - 1])) + 1
        spaces[min(max(position, num_first), num_words)].append(f"⟨{number}⟩")
    placed = [one for space, word in zip(spaces, [*words, ""], strict=True) for one in (*space, word)]
    return _SPACE_BEFORE_MARK.sub(r"\1", " ".join(filter(None, placed)))


def _with_symbols(segment: Segment, found: Found) -> Found:
    return [(one, segment.masked.from_model(text)) for one, text in found]


def _lost(segments: Sequence[Segment], found: Sequence[Found]) -> dict[int, list[str]]:
    """Return the numbers of the symbols that a translation of a segment lacks, for each segment that has some."""
    lost = {
        i: list(dict.fromkeys(number for _, text in found[i] for number in segment.masked.lost(text)))
        for i, segment in enumerate(segments)
        if segment.masked.strings
    }
    return {i: numbers for i, numbers in lost.items() if numbers}


def _with_required(segment: Segment, symbols: Sequence[str], target: Tokenizer) -> Segment:
    required = [[target.mask_ids[int(symbol) - 1]] for symbol in symbols]
    return replace(segment, source=replace(segment.source, phrases=[*segment.source.phrases, *required]))
