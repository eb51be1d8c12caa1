"""Words and their subwords: numbers words, aligns them, and completes a word that is not finished. Knows no model."""

from bisect import bisect_left
from collections.abc import Sequence

from seq2seq.interface import UnfinishedWord
from seq2seq.text.tokenizer import EOS, Tokenizer

SPACE = "▁"  # begins every subword that begins a word


def word_of_subwords(subwords: Sequence[str]) -> list[int]:
    """Return the number of each subword's word (from 0, as in `text.split()`)."""
    words, number = [], -1
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


class WordCompleter:
    """Finds the subwords with which a translation can write and complete the last word of its prefix."""

    def __init__(self, target: Tokenizer, unproducible: Sequence[int]) -> None:
        """Sort the subwords of a vocabulary; a translation has no unproducible ones."""
        subwords = target.tokens(range(target.vocab_size))
        excluded = {*unproducible, *target.user_symbols.values()}
        self._target = target
        self._ids = {subword: number for number, subword in enumerate(subwords) if number not in excluded}
        self._sorted, self._longest = sorted(self._ids), max(map(len, self._ids), default=0)

    def last_word(self, prefix: Sequence[int]) -> UnfinishedWord | None:
        """Return the last word of a prefix's ids; None if subwords cannot spell it, such as unknown letters."""
        subwords = self._target.tokens(prefix)
        start = max((index for index, subword in enumerate(subwords) if subword.startswith(SPACE)), default=0)
        word = "".join(subwords[start:])
        spellings: list[dict[int, int]] = [{} for _ in word]
        for written in reversed(range(len(word))):
            rest = word[written : written + self._longest + 1]
            parts = (rest[:length] for length in range(1, min(len(rest), self._longest + 1)))
            spellings[written] = {
                self._ids[part]: len(part) for part in parts if part in self._ids and spellings[written + len(part)]
            }
            if len(rest) <= self._longest:
                first, end = (bisect_left(self._sorted, bound) for bound in (rest, rest + chr(0x10FFFF)))
                spellings[written] |= {self._ids[subword]: len(rest) for subword in self._sorted[first:end]}
        return UnfinishedWord(start, spellings, len(word)) if word and spellings[0] else None

    def new_word(self, start: int) -> UnfinishedWord:
        """Return a space, to be written after `start` ids: a new word begins there, or the translation ends."""
        ways = {number: 1 for subword, number in self._ids.items() if subword.startswith(SPACE)}
        return UnfinishedWord(start, [{**ways, EOS: 1}], 1)
