"""Sentences, parts and words of a text: cuts a text that is too long for the model, and finds the words of subwords."""

import itertools
import re
from collections.abc import Callable, Sequence

_CLOSERS = "[\"'”’»)\\]]*"
_ABBREVIATIONS = r"(?<!\b[A-Z])(?<!\b(?:Mr|Ms|Dr|St|Sr|Jr))(?<!\bMrs)(?<!\bProf)"
_SENTENCE_END = re.compile(rf"{_ABBREVIATIONS}[.?!…]+{_CLOSERS}\s+|[。！？]+{_CLOSERS}\s*")
_CLAUSE_END = re.compile(rf"[;:,]+{_CLOSERS}\s+")
_WHITE_SPACE = re.compile(r"\s+")

SPACE = "▁"  # begins every piece that begins a word

Lengths = Callable[[Sequence[str]], list[int]]  # tokens of each string


def split_text(text: str, limit: int, lengths: Lengths) -> list[str]:
    """Cut text at sentence ends; cut a sentence that is too long at clauses, then at spaces, then anywhere.

    Every sentence becomes a piece of its own, since models are trained on sentences; smaller parts are joined again
    as far as the limit allows. Only white space between pieces is lost.

    Args:
        text: the text to cut.
        limit: largest number of tokens of a piece; at least the number of tokens that one character can have.
        lengths: counts the tokens of each string.
    """
    pieces = _cut(text, _SENTENCE_END)
    for cut_at in (_CLAUSE_END, _WHITE_SPACE):
        counts = lengths(pieces)
        parts = [
            [piece] if count <= limit else _join(_cut(piece, cut_at), limit, lengths)
            for piece, count in zip(pieces, counts, strict=True)
        ]
        pieces = [piece for part in parts for piece in part]
    return [part for piece in pieces for part in _halve(piece, limit, lengths)]


def number_words(text: str, parts: Sequence[str]) -> list[int]:
    """Return the number of each part's first word (from 0, as in `text.split()`), even if the part has only its end.

    Args:
        text: the text that was cut.
        parts: all parts that `split_text` cut the text into.
    """
    numbers, end = [], 0
    for part in parts:
        start = text.index(part, end)
        end = start + len(part)
        within_a_word = start > 0 and not text[start - 1].isspace() and not part[0].isspace()
        numbers.append(len(text[:start].split()) - within_a_word)
    return numbers


def _cut(text: str, at: re.Pattern[str]) -> list[str]:
    """Cut after every match; no piece is empty."""
    ends = [0, *(match.end() for match in at.finditer(text)), len(text)]
    pieces = (text[start:end].strip() for start, end in itertools.pairwise(ends))
    return [piece for piece in pieces if piece]


def _join(parts: list[str], limit: int, lengths: Lengths) -> list[str]:
    """Join neighbouring parts that together fit into limit tokens; a part that is too long stays alone."""
    joined: list[str] = []
    room = 0
    for part, count in zip(parts, lengths(parts), strict=True):
        if joined and count <= room:
            joined[-1] += " " + part
            room -= count
        else:
            joined.append(part)
            room = limit - count
    return joined


def _halve(text: str, limit: int, lengths: Lengths) -> list[str]:
    """Cut in halves until every part has at most limit tokens."""
    if len(text) < 2 or lengths([text])[0] <= limit:
        return [text]
    middle = len(text) // 2
    return _halve(text[:middle], limit, lengths) + _halve(text[middle:], limit, lengths)


def word_of_pieces(pieces: Sequence[str]) -> list[int]:
    """Return the number of each piece's word (from 0, as in `text.split()`)."""
    words, number = [], -1
    for piece in pieces:
        number += piece.startswith(SPACE) or number < 0
        words.append(number)
    return words


def align_words(
    source: Sequence[str], target: Sequence[str], attention: Sequence[Sequence[float]]
) -> list[tuple[int, int]]:
    """Align every target word with the source word that its pieces attend to most, as (source, target) from 0.

    A word whose pieces attend to nothing (a model without cross-attention) is left out.

    Args:
        source: the source's pieces, without EOS.
        target: the translation's pieces, without EOS.
        attention: weight of each source piece (column) for each target piece (row); further rows and columns, such as
            EOS, are ignored.
    """
    source_words, target_words = word_of_pieces(source), word_of_pieces(target)
    if not source_words or not target_words:
        return []
    sums = [[0.0] * (source_words[-1] + 1) for _ in range(target_words[-1] + 1)]
    for row, target_word in zip(attention, target_words, strict=False):
        for share, source_word in zip(row, source_words, strict=False):
            sums[target_word][source_word] += share
    return [(max(range(len(row)), key=row.__getitem__), word) for word, row in enumerate(sums) if any(row)]
