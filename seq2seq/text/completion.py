"""The ways to write a word that may be continued, subword by subword: "az" may become "azul". Knows no model."""

from bisect import bisect_left
from collections.abc import Sequence

from seq2seq.interface import UnfinishedWord
from seq2seq.text.segments import SPACE
from seq2seq.text.tokenizer import EOS
from seq2seq.text.vocabulary import Side


class WordCompleter:
    """Finds the subwords with which a translation can write and complete the last word of its prefix."""

    def __init__(self, target: Side, unproducible: Sequence[int]) -> None:
        """Sort the subwords of a vocabulary; a translation has no unproducible ones."""
        subwords = target.tokens(range(target.vocab_size))
        excluded = {*unproducible, *target.user_symbols.values()}
        self._target = target
        self._ids = {subword: number for number, subword in enumerate(subwords) if number not in excluded}
        self._sorted, self._longest = sorted(self._ids), max(map(len, self._ids), default=0)

    def last_word(self, prefix: Sequence[int]) -> UnfinishedWord | None:
        """Return the last word of a prefix's ids; None if subwords cannot spell it, such as unknown letters."""
        subwords = self._target.tokens(prefix)
        start = max((index for index, one in enumerate(subwords) if one.startswith(SPACE)), default=0)
        word = "".join(subwords[start:])
        spellings: list[dict[int, int]] = [{} for _ in word]
        for written in reversed(range(len(word))):
            rest = word[written : written + self._longest + 1]
            parts = (rest[:length] for length in range(1, min(len(rest), self._longest + 1)))
            spellings[written] = {
                self._ids[part]: len(part) for part in parts if part in self._ids and spellings[written + len(part)]
            }
            if len(rest) <= self._longest:
                first, end = (bisect_left(self._sorted, one) for one in (rest, rest + chr(0x10FFFF)))
                spellings[written] |= {self._ids[one]: len(rest) for one in self._sorted[first:end]}
        return UnfinishedWord(start, spellings, len(word)) if word and spellings[0] else None

    def new_word(self, start: int) -> UnfinishedWord:
        """Return a space, to be written after `start` ids: a new word begins there, or the translation ends."""
        ways = {number: 1 for subword, number in self._ids.items() if subword.startswith(SPACE)}
        return UnfinishedWord(start, [{**ways, EOS: 1}], 1)
