"""Words: their numbers by subword, their alignment, and the usual case of a text. Knows no model."""

import re
from collections.abc import Sequence

from seq2seq.text.masks import hide
from seq2seq.text.tokenizer import Tokenizer

SPACE = "▁"  # begins every subword that begins a word
_LETTER = re.compile(r"[^\W\d_]")
_SENTENCE = re.compile(r"(?:^|[.!?…:]\s+)[\"'“«‘(\[¿¡-]*(\w)")


def word_of_subwords(subwords: Sequence[str]) -> list[int]:
    """Return the number of each subword's word (from 0, as in `text.split()`)."""
    words: list[int] = []
    number = -1
    for subword in subwords:
        number += subword.startswith(SPACE) or number < 0
        words.append(number)
    return words


def align_words(
    source: Sequence[str], target: Sequence[str], attention: Sequence[Sequence[float]]
) -> list[tuple[int, int]]:
    """Align every target word with the source word that its subwords attend to most, as (source, target) from 0.

    A word whose subwords attend to nothing (a model without cross-attention) is left out.

    Args:
        source: the source's subwords, without EOS.
        target: the translation's subwords, without EOS.
        attention: weight of each source subword (column) for each target subword (row); further rows and columns, such
            as EOS, are ignored.
    """
    source_words, target_words = word_of_subwords(source), word_of_subwords(target)
    if not source_words or not target_words:
        return []
    sums = [[0.0] * (source_words[-1] + 1) for _ in range(target_words[-1] + 1)]
    for row, target_word in zip(attention, target_words, strict=False):
        for share, source_word in zip(row, source_words, strict=False):
            sums[target_word][source_word] += share
    return [(max(range(len(row)), key=row.__getitem__), word) for word, row in enumerate(sums) if any(row)]


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
