"""Translates unusual texts as a model's usual ones, and searches again where a translation has a plain fault.

A model of everyday sentences has seen neither capitals nor placeholders, and copies numbers badly. So (a) text in
capitals is translated in small letters, (b) text without a final stop, to whose translation the model adds one, is
translated with it, (c) placeholders, links and emoji that a translation loses are taken out and put back by the
alignment of words, (d) a translation that lacks a number is searched again with this number as a required phrase, and
(e) one that repeats itself endlessly is searched again without repeated n-grams.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from seq2seq.documents.marked import KEPT, OBJECT, Kind
from seq2seq.documents.marked import Segment as Markup
from seq2seq.documents.placing import place
from seq2seq.errors import UserError
from seq2seq.evaluation.faults import DIGITS, lost_numbers
from seq2seq.evaluation.loops import has_loop, without_runs
from seq2seq.interface import Hypothesis, SearchRequest
from seq2seq.text.tokenizer import UNK, Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translation import Alignment, Segment, encode_phrases

NGRAM = 3  # tokens: no such n-gram is repeated when a looping translation is searched again
_KEPT_OR_NUMBER = re.compile(rf"(?:{KEPT.pattern})|{DIGITS.pattern}", re.VERBOSE)
_STOP_OF_WORD = re.compile(r"(?:\.|\.\w+|\b(?:[^\W\d_a-zà-ÿ]+|[^\W\d_]|etc))\.$")  # of "…", "p.m.", "EE. UU.", "p. m."
_LETTER = re.compile(r"[^\W\d_]")
_SENTENCE = re.compile(r"(?:^|[.!?…:]\s+)[\"'“«‘(\[¿¡-]*(\w)")

Found = list[tuple[Hypothesis, str]]  # the hypotheses of a segment and their texts, best first
Search = Callable[[Sequence[Segment], SearchRequest], list[Found]]
Align = Callable[[Sequence[Segment], Sequence[Hypothesis]], list[Alignment]]


def in_usual_case(text: str, tokenizer: Tokenizer) -> str:
    """Return a text in capitals, or of four words and more with capitals, as a sentence; any other text unchanged.

    Every word gets the form that the vocabulary splits into the fewest subwords: small letters, or one or all capitals,
    as names have. Between two single subwords, the likelier one decides; else small letters.
    """
    parts = re.split(r"(\s+)", text)
    lettered = [part for part in parts if _LETTER.search(part)]
    is_title = len(lettered) > 3 and all(part.lstrip("\"'“«‘([¿¡-")[:1].isupper() for part in lettered)
    if not (is_in_capitals(text) or is_title):
        return text
    written = "".join(
        _usual_form(part, tokenizer) if _LETTER.search(part) and not KEPT.search(part) else part for part in parts
    )
    return _SENTENCE.sub(lambda match: match[0][:-1] + match[1].upper(), written)


def is_in_capitals(text: str) -> bool:
    """Return whether a text is in capitals and is no mere abbreviation: it has at least four letters."""
    return text.isupper() and len(_LETTER.findall(text)) > 3


def _usual_form(word: str, tokenizer: Tokenizer) -> str:
    forms = list(dict.fromkeys((word.lower(), word.lower().capitalize(), word)))
    return min(zip(tokenizer.rarities(forms), forms, strict=True), key=lambda pair: pair[0])[1]


def repair(
    segments: Sequence[Segment],
    found: Sequence[Found],
    request: SearchRequest,
    search: Search,
    align: Align | None,
    tokenizers: Tokenizers,
    tgt_lang: str,
    *,
    has_phrases: bool,
    keeps: bool,
) -> list[Found]:
    """Return the translations of segments, with better ones where the best translation has a fault.

    Args:
        segments: the segments.
        found: their translations.
        request: how these were searched.
        search: searches again.
        align: aligns the words of segments and hypotheses; None: by their relative position.
        tokenizers: the model's.
        tgt_lang: language of the translations, whose words for small numbers are known if it is in LANGUAGES.
        has_phrases: whether the engine can search with required phrases.
        keeps: whether kept strings are taken out and put back; else the caller needs the words of the hypotheses.
    """
    may_change = [keeps and _is_plain(segment, tokenizers.source) for segment in segments]
    open_ended = [i for i, one in enumerate(segments) if may_change[i] and _adds_stop(one.text, found[i][0][1])]
    segments, found = list(segments), list(found)
    for i in open_ended:
        segments[i] = _with_text(segments[i], f"{segments[i].text}.", tokenizers.source)
    closed = search_each([segments[i] for i in open_ended], request, search)
    for i, better in zip(open_ended, closed, strict=True):
        found[i] = better or found[i]
    taken, mended, markups = list(segments), list(found), dict[int, Markup[str]]()

    def search_again(chosen: Mapping[int, Segment], request: SearchRequest = request) -> None:
        chosen = {i: segment for i, segment in chosen.items() if segment.source.ids}
        for i, better in zip(chosen, search_each(list(chosen.values()), request, search), strict=True):
            if better:
                taken[i], mended[i] = chosen[i], better

    def lift(chosen: Iterable[int], pattern: re.Pattern[str]) -> None:
        lifted = {i: _lift(segments[i], pattern, tokenizers.source) for i in chosen if may_change[i]}
        search_again({i: segment for i, (segment, _) in lifted.items()})
        for i, (segment, markup) in lifted.items():
            if taken[i] is segment or not segment.source.ids:
                taken[i], markups[i] = segment, markup

    def lacking_numbers() -> dict[int, list[str]]:
        texts = [_without_marks(one.text, tokenizers.source) for one in taken]
        lost = {i: lost_numbers(text, mended[i][0][1], tgt_lang) for i, text in enumerate(texts)}
        return {i: numbers for i, numbers in lost.items() if numbers and not segments[i].source.phrases}

    lift([i for i, one in enumerate(segments) if not _keeps(one.text, found[i][0][1])], KEPT)
    wanted: dict[int, Segment] = {}
    if has_phrases:
        wanted = {i: _with_phrases(taken[i], lost, tokenizers) for i, lost in lacking_numbers().items()}
        search_again(wanted)
    doubtful = [i for i in wanted if lost_numbers(mended[i][0][1], taken[i].text, tgt_lang)]  # other numbers came in
    lift(dict.fromkeys([*doubtful, *lacking_numbers()]), _KEPT_OR_NUMBER)
    if not request.settings.no_repeat_ngram:
        settings = replace(request.settings, no_repeat_ngram=NGRAM)
        looping = {i: one for i, one in enumerate(taken) if has_loop(one.text, mended[i][0][1])}
        search_again(looping, replace(request, settings=settings))
        for i, segment in looping.items():
            if may_change[i] and has_loop(segment.text, mended[i][0][1]):
                mended[i] = [(one, without_runs(text)) for one, text in mended[i]]
    for i, markup in markups.items():
        hypotheses = [one for one, _ in mended[i]]
        has_words = bool(taken[i].source.ids)
        ways = align([taken[i]] * len(hypotheses), hypotheses) if align and has_words else [None] * len(hypotheses)
        texts = [
            put_back(markup, text if has_words else "", way) for (_, text), way in zip(mended[i], ways, strict=True)
        ]
        mended[i] = list(zip(hypotheses, texts, strict=True))
    for i in open_ended:
        mended[i] = [(one, _without_stop(text)) for one, text in mended[i]]
    return mended


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


def _without_marks(text: str, tokenizer: Tokenizer) -> str:
    """Return a text without its kept strings and the symbols of its vocabulary, whose digits are no numbers."""
    for symbol in tokenizer.user_symbols:
        text = text.replace(symbol, " ")
    return KEPT.sub(" ", text)


def _is_plain(segment: Segment, tokenizer: Tokenizer) -> bool:
    """Return whether a part of a segment may be taken out: nothing is required of it, and no tag begins it."""
    is_free = not (segment.source.prefix or segment.source.phrases or OBJECT in segment.text)
    return is_free and not segment.text.startswith(tuple(tokenizer.user_symbols))


def _with_phrases(segment: Segment, phrases: Sequence[str], tokenizers: Tokenizers) -> Segment:
    """Require phrases of a segment, if the model can produce them."""
    encoded = encode_phrases(phrases, tokenizers.target)
    possible = [ids for ids in encoded if not {UNK, *tokenizers.unproducible}.intersection(ids)]
    return replace(segment, source=replace(segment.source, phrases=possible))


def _adds_stop(source: str, translation: str) -> bool:
    return source[-1:].isalnum() and _without_stop(translation) != translation


def _without_stop(text: str) -> str:
    return text if _STOP_OF_WORD.search(text) else text.removesuffix(".")


def _keeps(source: str, translation: str) -> bool:
    return Counter(KEPT.findall(source)) <= Counter(KEPT.findall(translation))


def _lift(segment: Segment, pattern: re.Pattern[str], tokenizer: Tokenizer) -> tuple[Segment, Markup[str]]:
    """Take the matches of a pattern out of a segment; return the rest, and the text with marks in their places."""
    markup: Markup[str] = Markup()
    at = 0
    for match in pattern.finditer(segment.text):
        before = segment.text[at : match.start()].strip()
        markup.add_text(f"{before} " if before else "")
        markup.add_mark(Kind.POINT, match[0])
        at = match.end()
    markup.add_text(segment.text[at:].strip())
    return _with_text(segment, markup.marked.text.strip(), tokenizer), markup


def _with_text(segment: Segment, text: str, tokenizer: Tokenizer) -> Segment:
    """Return a segment with another text, after the same tag."""
    (ids,) = tokenizer.encode([text])
    tag = segment.source.ids[: segment.tag_length]
    return replace(segment, text=text, source=replace(segment.source, ids=[*tag, *ids] if ids else []))


def put_back(markup: Markup[str], translation: str, alignment: Alignment | None) -> str:
    """Return the translation with what was taken out, in its order, as words of their own or before punctuation."""
    places = [place(markup.marked, translation, way) for way in (alignment, None)]
    in_order = next(
        (one for one in places if list(one.marks) == sorted(one.marks, key=lambda mark: mark.number)), places[1]
    )
    text = " ".join(f"{part} {kept or ''}" for part, kept in markup.fill(in_order))
    return re.sub(r"\s+([.,;:!?…)\]»”]+)(?=\s|$)", r"\1", " ".join(text.split()))
