"""Endless repetition: the fault of a search that a reader sees first. Reads texts only."""

import re
from collections import Counter
from collections.abc import Sequence

LONGEST = 8  # words of a phrase that is repeated at once
_WORD = re.compile(r"[^\W\d_]+")
_LETTERS = re.compile(r"([^\W\d_]{1,4}?)\1{3,}", re.IGNORECASE)  # up to four letters, four times or more


def has_loop(source: str, translation: str) -> bool:
    """Return whether a translation repeats something as its source does not.

    A loop is a phrase of at most LONGEST words that comes three times at once; three words that come four times
    anywhere; or up to four letters that come four times at once within a word. What the source repeats as often does
    not count.
    """
    source, translation = source.lower(), translation.lower()
    ours, theirs = (_WORD.findall(text) for text in (translation, source))
    if any((count := _run(ours, size)) >= 3 and count > _run(theirs, size) for size in range(1, LONGEST + 1)):
        return True
    if (count := _most_frequent(ours)) >= 4 and count > _most_frequent(theirs):
        return True
    return bool(_LETTERS.search(translation)) and not _LETTERS.search(source)


def _run(tokens: Sequence[str], size: int) -> int:
    """Return how often a phrase of this size comes at once, at most."""
    longest = same = 0  # tokens in a row that are equal to the token `size` places before
    for token, before in zip(tokens[size:], tokens, strict=False):
        same = same + 1 if token == before else 0
        longest = max(longest, same)
    return longest // size + 1


def _most_frequent(tokens: Sequence[str]) -> int:
    return max(Counter(zip(tokens, tokens[1:], tokens[2:], strict=False)).values(), default=0)
