"""Sees to it that a translation has every string that its text keeps, whatever the model produced.

A lost symbol (`seq2seq.text.masks`) is searched again as a required phrase, and so is a lost number on request. A model
without symbols, and an engine or a search without phrases, translates the text without its strings, and the alignment
of words says where they go. Knows no documents.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from seq2seq.errors import UserError
from seq2seq.evaluation.faults import lost_numbers
from seq2seq.search.types import Hypothesis
from seq2seq.text.glossary import Glossary
from seq2seq.text.masks import SYMBOL, Masked
from seq2seq.text.sentences import sentence_ends
from seq2seq.text.tokenizer import UNK
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.segmenter import Alignment, Segment, encode_phrases, with_text

_SPACE_BEFORE_MARK = re.compile(r"(?<!\s)\s++([.,;:!?…)\]»”]++)(?=\s|$)")

Found = list[tuple[Hypothesis, str]]  # the hypotheses of a segment and their texts, best first
Search = Callable[[Sequence[Segment]], list[Found]]
Align = Callable[[Sequence[Segment], Sequence[Hypothesis]], list[Alignment]]


def keep(
    segments: Sequence[Segment],
    found: Sequence[Found],
    search: Search,
    align: Align | None,
    tokenizers: Tokenizers,
    *,
    has_phrases: bool,
    tgt_lang: str | None = None,
) -> list[Found]:
    """Return the found translations of segments, or better ones, with symbols; each has all symbols of its segment.

    search searches segments again. Without align, words of segments and hypotheses correspond by their relative
    position. has_phrases says whether the engine can search with required phrases. With tgt_lang, a number that the
    best translation lacks is searched again.
    """
    segments = list(segments)
    ranked = [_with_symbols(segment, of) for segment, of in zip(segments, found, strict=True)]
    if has_phrases:
        lost = {i: _lost_phrases(segment, ranked[i], tokenizers, tgt_lang) for i, segment in enumerate(segments)}
        more = {i: [*segments[i].source.phrases, *phrases] for i, phrases in lost.items() if phrases}
        required = {i: replace(one := segments[i], source=replace(one.source, phrases=more[i])) for i in more}
        for i, better in zip(required, _search_each(list(required.values()), search), strict=True):
            better = _with_symbols(segments[i], better)
            if better and len(_lost_phrases(segments[i], better, tokenizers, tgt_lang)) < len(lost[i]):
                segments[i], ranked[i] = required[i], better
    rest = {
        i: with_text(segment, SYMBOL.sub(" ", segment.masked.text), tokenizers)
        for i, segment in enumerate(segments)
        if _lost_symbols(segment, ranked[i])
    }
    for i in rest:  # if no words are left, the text is its own translation
        ranked[i] = [
            (hypothesis, text if _has_words(rest[i]) else segments[i].masked.text) for hypothesis, text in ranked[i]
        ]
    rest = {i: segment for i, segment in rest.items() if _has_words(segment)}
    again = _search_each(list(rest.values()), search)
    pairs = [(segment, hypothesis) for segment, new in zip(rest.values(), again, strict=True) for hypothesis, _ in new]
    ways = iter(align(*zip(*pairs, strict=True)) if align and pairs else [])
    for i, better in zip(rest, again, strict=True):
        (begun,) = tokenizers.target.decode([list(segments[i].source.prefix)])
        ranked[i] = [
            (hypothesis, insert(segments[i].masked, text, next(ways, None) if better else None, len(begun.split())))
            for hypothesis, text in _with_symbols(segments[i], better) or ranked[i]
        ]
    return ranked


def place_terms(
    segments: Sequence[Segment], found: Sequence[Found], glossary: Glossary, tokenizers: Tokenizers, search: Search
) -> list[Found]:
    """Return the found translations, or those of texts with symbols for terms, if terms follow the last sentence.

    A required translation of a term that is too improbable within a sentence is found behind it. As a symbol it has a
    place, but no word agrees with it, and none is aligned.
    """
    found, again = list(found), dict[int, Segment]()
    for i, (segment, ranked) in enumerate(zip(segments, found, strict=True)):
        if ranked and not segment.source.prefix and _terms_follow(segment.masked.text, ranked[0][1], glossary):
            masked = glossary.mask(segment.masked)
            count = len(segment.masked.strings) + len(segment.source.phrases)
            if count == len(masked.strings) <= len(tokenizers.target.mask_ids):
                plain = replace(segment, masked=masked, source=replace(segment.source, phrases=[]))
                again[i] = with_text(plain, masked.text, tokenizers)
    for i, ranked in zip(again, _search_each(list(again.values()), search), strict=True):
        placed = [(hypothesis, again[i].masked.restore(text)) for hypothesis, text in ranked]
        if placed and not _terms_follow(segments[i].masked.text, placed[0][1], glossary):
            found[i] = placed
    return found


def _terms_follow(text: str, translation: str, glossary: Glossary) -> bool:
    """Return whether a term's translation comes after as many sentences as the text has."""
    ends, last = sentence_ends(translation), len(sentence_ends(text))
    first = translation[: ends[last]] if last < len(ends) else translation
    return any(first.count(term) < count for term, count in Counter(glossary.translations(text)).items())


def _has_words(segment: Segment) -> bool:
    return bool(segment.source.ids) and any(map(str.isalnum, segment.masked.text))


def _search_each(segments: Sequence[Segment], search: Search) -> list[Found]:
    """Search all segments together or, if one of them cannot be searched, each alone; such a one has no translation."""
    if not segments:
        return []
    try:
        return search(segments)
    except UserError:  # a text is too short for its phrases, or no n-gram is left
        if len(segments) == 1:
            return [[]]
    return [ranked for segment in segments for ranked in _search_each([segment], search)]


def insert(masked: Masked, translation: str, alignment: Alignment | None, num_first: int = 0) -> str:
    """Return the translation with the symbols that it lacks, as words of their own or before punctuation.

    The alignment is of the words of the text without these symbols; None: by their relative position. Nothing precedes
    the translation's first `num_first` words, which are those of a prefix.
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
    placed = [piece for space, word in zip(spaces, [*words, ""], strict=True) for piece in (*space, word)]
    return _SPACE_BEFORE_MARK.sub(r"\1", " ".join(filter(None, placed)))


def _with_symbols(segment: Segment, ranked: Found) -> Found:
    return [(hypothesis, segment.masked.from_model(text)) for hypothesis, text in ranked]


def _lost_symbols(segment: Segment, ranked: Found) -> list[str]:
    """Return the numbers of the symbols that some of the translations lack."""
    return list(dict.fromkeys(number for _, text in ranked for number in segment.masked.lost(text)))


def _lost_phrases(segment: Segment, ranked: Found, tokenizers: Tokenizers, tgt_lang: str | None) -> list[list[int]]:
    """Return the ids of the symbols that some translation lacks, and of the numbers that the best translation lacks.

    A number is left out if the model cannot produce it, or if other phrases are required, which may spell it out.
    """
    target, text = tokenizers.target, segment.masked.text
    symbols = [] if segment.masked.is_spelt else _lost_symbols(segment, ranked)
    phrases = [[target.mask_ids[int(number) - 1]] for number in symbols]
    if tgt_lang is None or segment.source.phrases:
        return phrases
    for tag in tokenizers.source.user_symbols:  # their digits are no numbers
        text = text.replace(tag, " ")
    text, translation = (SYMBOL.sub(" ", side) for side in (text, ranked[0][1]))
    numbers = encode_phrases(lost_numbers(text, translation, tgt_lang), target)
    return phrases + [ids for ids in numbers if not {UNK, *tokenizers.unproducible}.intersection(ids)]
