"""The usual case of texts in capitals or in title case, as a step of normalisation before the search."""

import re

from seq2seq.text.masks import hide
from seq2seq.text.tokenizer import Tokenizer

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
