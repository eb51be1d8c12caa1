"""Random splits of texts into subwords, the same in every process.

SentencePiece samples, too, but since version 0.2 its random generator starts differently in every process, whatever the
seed: a resumed run would see other subwords than an uninterrupted run.
"""

import heapq
import math
import random
import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import sentencepiece

_SPACE = "▁"
_UNKNOWN_PENALTY = 10.0  # as in SentencePiece: an unknown character's score is this far below the lowest score
_WORDS = 1 << 16  # words whose segmentations are cached

Ids = tuple[int, ...]


class _Ways(NamedTuple):
    """The possible last subwords of a word's prefix, and their probabilities."""

    cumulative: list[float]  # cumulative probabilities
    starts: list[int]  # the character at which each subword begins
    ids: list[Ids]  # the id of each subword, or the ids of the bytes of a character that no subword has


class Sampler:
    """Draws segmentations of texts with one strength of randomness."""

    def __init__(
        self, processor: sentencepiece.SentencePieceProcessor, user_symbols: dict[str, int], is_bpe: bool, alpha: float
    ) -> None:
        """Store the vocabulary of processor and alpha, which is as in `Tokenizer.sample`."""
        self._processor, self._alpha, self._is_bpe = processor, alpha, is_bpe
        self._symbols = user_symbols
        symbols = "|".join(map(re.escape, sorted(user_symbols, key=len, reverse=True)))
        self._around = re.compile(f"({symbols})") if user_symbols else None
        self._bytes: dict[int, int] = {}  # byte → id
        self._subwords: dict[str, int] = {}
        for token in range(processor.get_piece_size()):
            subword = processor.id_to_piece(token)
            if processor.is_byte(token):
                self._bytes[int(subword[3:5], 16)] = token
            elif not (processor.is_control(token) or processor.is_unknown(token) or processor.is_unused(token)):
                self._subwords[subword] = token
        for symbol in user_symbols:
            self._subwords.pop(symbol, None)
        self._scores = {subword: processor.get_score(token) for subword, token in self._subwords.items()}
        self._unknown_score = min(self._scores.values(), default=0.0) - _UNKNOWN_PENALTY
        self._longest = max(map(len, self._subwords), default=1)
        # if no subword reaches over a space, each word of a text is segmented by itself
        has_words = all(_SPACE not in subword[1:] for subword in self._subwords)
        self._words = re.compile(f"{_SPACE}[^{_SPACE}]*|[^{_SPACE}]+" if has_words else r"(?s:.+)")
        self._ways = lru_cache(_WORDS)(self._find_ways)

    def sample(self, texts: Sequence[str], seed: int) -> list[list[int]]:
        """Return the ids of each text; the same texts and seed give the same ids."""
        rng = random.Random(seed)
        return [self._draw(text, rng) for text in texts]

    def _draw(self, text: str, rng: random.Random) -> list[int]:
        split = self._drop_merges if self._is_bpe else self._walk
        ids: list[int] = []
        for word in self._words.findall(self._processor.normalize(text)):
            for part in self._around.split(word) if self._around else (word,):
                if part in self._symbols:
                    ids.append(self._symbols[part])
                elif part:
                    ids += split(part, rng)
        unknown = self._processor.unk_id()  # several in a row are one, as in SentencePiece
        return [token for i, token in enumerate(ids) if token != unknown or i == 0 or ids[i - 1] != unknown]

    def _walk(self, word: str, rng: random.Random) -> list[int]:
        """Draw from all segmentations in proportion to P(x)^alpha: sum forward, then sample backward."""
        ways, end, drawn = self._ways(word), len(word), list[Ids]()
        while end:
            last = ways[end]
            number = bisect_right(last.cumulative, rng.random()) if len(last.starts) > 1 else 0
            drawn.append(last.ids[number])
            end = last.starts[number]
        return [token for ids in reversed(drawn) for token in ids]

    def _find_ways(self, word: str) -> list[_Ways]:
        edges: list[list[tuple[float, int, Ids]]] = [[] for _ in range(len(word) + 1)]
        for start in range(len(word)):
            for end in range(start + 1, min(len(word), start + self._longest) + 1):
                subword = word[start:end]
                if subword in self._subwords:
                    edges[end].append((self._scores[subword], start, (self._subwords[subword],)))
                elif end == start + 1:
                    edges[end].append((self._unknown_score, start, self._spell(subword)))
        total, ways = [0.0], [_Ways([], [], [])]  # total: log of the sum of P^alpha up to each character
        for arriving in edges[1:]:
            logs = [total[start] + self._alpha * score for score, start, _ in arriving]
            highest = max(logs)
            sums = list(accumulate(math.exp(log - highest) for log in logs))
            total.append(highest + math.log(sums[-1]))
            shares = [value / sums[-1] for value in sums[:-1]] + [1.0]
            ways.append(_Ways(shares, [start for _, start, _ in arriving], [ids for _, _, ids in arriving]))
        return ways

    def _drop_merges(self, word: str, rng: random.Random) -> list[int]:
        """Merge the pair with the best score, again and again, but skip each merge with probability alpha."""
        parts: list[str] = list(word)
        after, before = list(range(1, len(parts) + 1)), list(range(-1, len(parts) - 1))
        pairs = [(left, left + 1) for left in range(len(parts) - 1)]  # new neighbours
        waiting: list[tuple[float, int, int, str]] = []  # of a merge: -score, where its halves begin, merged string
        while pairs or waiting:
            for left, right in pairs:
                if left >= 0 and right < len(parts) and (merged := parts[left] + parts[right]) in self._scores:
                    heapq.heappush(waiting, (-self._scores[merged], left, right, merged))
            pairs = []
            if not waiting:
                break
            _, left, right, merged = heapq.heappop(waiting)
            if after[left] != right or not parts[left] or parts[left] + parts[right] != merged:
                continue  # one of its halves has been merged meanwhile
            if rng.random() < self._alpha:
                continue
            parts[left], parts[right] = merged, ""
            after[left] = after[right]
            if after[left] < len(parts):
                before[after[left]] = left
            pairs = [(before[left], left), (left, after[left])]
        ids = ((self._subwords[part],) if part in self._subwords else self._spell(part) for part in parts if part)
        return [token for of_part in ids for token in of_part]

    def _spell(self, character: str) -> Ids:
        if not self._bytes:
            return (self._processor.unk_id(),)
        return tuple(self._bytes[byte] for byte in character.encode())
