"""Translates unusual texts as a model's usual ones, and searches again where a translation has a plain fault.

A model of everyday sentences has not seen capitals, and copies numbers badly. So (a) text in capitals is translated in
small letters, (b) text without a final stop, to whose translation the model adds one, is translated with it, (c) a
translation that lacks a number is searched again with this number as a required phrase, and (d) one that repeats itself
endlessly is searched again without repeated n-grams. `seq2seq.kept` keeps strings such as placeholders.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from seq2seq.evaluation.faults import DIGITS, lost_numbers
from seq2seq.evaluation.loops import has_loop, without_runs
from seq2seq.interface import SearchRequest
from seq2seq.kept import Align, Found, Search, insert, search_each
from seq2seq.text.masks import SYMBOL, Masked, hide, symbol
from seq2seq.text.tokenizer import UNK, Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translation import Alignment, Segment, encode_phrases, with_text

NGRAM = 3  # tokens: no such n-gram is repeated when a looping translation is searched again
_SYMBOL_OR_NUMBER = re.compile(rf"{SYMBOL.pattern}|{DIGITS.pattern}")
_STOP_OF_WORD = re.compile(r"(?:\.|\.\w+|\b(?:[^\W\d_a-zà-ÿ]+|[^\W\d_]|etc))\.$")  # of "…", "p.m.", "EE. UU.", "p. m."
_LETTER = re.compile(r"[^\W\d_]")
_SENTENCE = re.compile(r"(?:^|[.!?…:]\s+)[\"'“«‘(\[¿¡-]*(\w)")


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
        _usual_form(part, tokenizer) if _LETTER.search(part) and hide(part, "") == part else part for part in parts
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
        keeps: whether numbers are taken out and put back; else the caller needs the words of the hypotheses.
    """
    may_change = [keeps and _is_plain(segment, tokenizers.source) for segment in segments]
    open_ended = [i for i, one in enumerate(segments) if may_change[i] and _adds_stop(one.text, found[i][0][1])]
    segments, found = list(segments), list(found)
    for i in open_ended:
        segments[i] = with_text(segments[i], f"{segments[i].text}.", tokenizers)
    closed = search_each([segments[i] for i in open_ended], request, search)
    for i, better in zip(open_ended, closed, strict=True):
        found[i] = better or found[i]
    taken, mended, texts = list(segments), list(found), dict[int, Masked]()

    def search_again(chosen: Mapping[int, Segment], request: SearchRequest = request) -> None:
        chosen = {i: segment for i, segment in chosen.items() if segment.source.ids}
        for i, better in zip(chosen, search_each(list(chosen.values()), request, search), strict=True):
            if better:
                taken[i], mended[i] = chosen[i], better

    def lift(chosen: Iterable[int]) -> None:
        lifted = {i: _lift(segments[i], tokenizers) for i in chosen if may_change[i]}
        search_again({i: segment for i, (segment, _) in lifted.items()})
        for i, (segment, masked) in lifted.items():
            if taken[i] is segment or not segment.source.ids:
                taken[i], texts[i] = segment, masked

    def lost_from(i: int) -> list[str]:
        text, translation = (_without_symbols(text, tokenizers.source) for text in (taken[i].text, mended[i][0][1]))
        return lost_numbers(text, translation, tgt_lang)

    def lacking_numbers() -> dict[int, list[str]]:
        lost = {i: lost_from(i) for i, segment in enumerate(segments) if not segment.source.phrases}
        return {i: numbers for i, numbers in lost.items() if numbers}

    wanted: dict[int, Segment] = {}
    if has_phrases:
        wanted = {i: _with_phrases(taken[i], lost, tokenizers) for i, lost in lacking_numbers().items()}
        search_again(wanted)
    doubtful = [i for i in wanted if lost_numbers(mended[i][0][1], taken[i].text, tgt_lang)]  # other numbers came in
    lift(dict.fromkeys([*doubtful, *lacking_numbers()]))
    if not request.settings.no_repeat_ngram:
        settings = replace(request.settings, no_repeat_ngram=NGRAM)
        looping = {i: one for i, one in enumerate(taken) if has_loop(one.text, mended[i][0][1])}
        search_again(looping, replace(request, settings=settings))
        for i, segment in looping.items():
            if may_change[i] and has_loop(segment.text, mended[i][0][1]):
                mended[i] = [(one, without_runs(text)) for one, text in mended[i]]
    for i, masked in texts.items():
        hypotheses = [one for one, _ in mended[i]]
        has_words = bool(taken[i].source.ids)
        ways = align([taken[i]] * len(hypotheses), hypotheses) if align and has_words else [None] * len(hypotheses)
        mended[i] = [
            (one, _put_back(masked, segments[i], text if has_words else "", way))
            for (one, text), way in zip(mended[i], ways, strict=True)
        ]
    for i in open_ended:
        mended[i] = [(one, _without_stop(text)) for one, text in mended[i]]
    return mended


def _without_symbols(text: str, tokenizer: Tokenizer) -> str:
    """Return a text without its strings' symbols and those of its vocabulary, whose digits are no numbers."""
    for tag in tokenizer.user_symbols:
        text = text.replace(tag, " ")
    return SYMBOL.sub(" ", text)


def _is_plain(segment: Segment, tokenizer: Tokenizer) -> bool:
    """Return whether a part of a segment may be taken out: nothing is required of it, and no tag begins it."""
    is_free = not (segment.source.prefix or segment.source.phrases)
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


def _lift(segment: Segment, tokenizers: Tokenizers) -> tuple[Segment, Masked]:
    """Take the numbers out of a segment; return the rest, and the text with further symbols in place of the numbers."""
    strings = list(segment.masked.strings)

    def number(match: re.Match[str]) -> str:
        if match[1] is None:
            strings.append(match[0])
        return match[0] if match[1] else symbol(len(strings))

    text = _SYMBOL_OR_NUMBER.sub(number, segment.text)
    rest = _SYMBOL_OR_NUMBER.sub(lambda match: match[0] if match[1] else " ", segment.text)
    return with_text(segment, rest, tokenizers), Masked(text, tuple(strings))


def _put_back(masked: Masked, segment: Segment, translation: str, alignment: Alignment | None) -> str:
    """Return the translation with the numbers that `_lift` took out, and with the symbols of the segment."""
    text = insert(masked, translation, alignment)
    for index in range(len(segment.masked.strings), len(masked.strings)):
        text = text.replace(symbol(index + 1), masked.strings[index])
    return text
