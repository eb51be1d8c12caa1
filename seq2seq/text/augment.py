"""Random variants of training pairs: noise in sources (case, typing errors, no final punctuation), sampled subwords."""

import random
import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np

from seq2seq.settings.training import NoiseConfig, SubwordSamplingConfig
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.vocabulary import Tokenizers

_ROWS_OF_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_FINAL_MARK = re.compile(r"(?<!\s)\s*+(?:(?<![.?!…])[.?!…]++|(?<![。？！])[。？！]++)(?=[\"'”’»)\]]*$)")
_WORDS_A_TYPO = 10  # a sentence with typing errors has one error, and one more per this many words
_PART = 2000  # texts split into subwords at a time, so that other threads do not wait long

Ids = list[list[int]]


def is_random(sampling: SubwordSamplingConfig, noise: NoiseConfig) -> bool:
    """Return whether the settings give a pair different ids in each epoch."""
    return sampling.alpha > 0 or noise.is_on


@dataclass(frozen=True)
class Encoder:
    """Splits normalised pairs into ids, with random splits and noise if set; the same seed gives the same ids.

    If randomness makes a side empty or longer than max_length tokens, the pair is split without randomness.
    """

    tokenizer: Tokenizers
    max_length: int  # tokens a side
    sampling: SubwordSamplingConfig
    noise: NoiseConfig

    def encode(self, src: Sequence[str], tgt: Sequence[str], seed: Sequence[int]) -> tuple[Ids, Ids]:
        """Return the ids of all sources and targets, including pairs that are too long even without randomness."""
        seeds = np.random.SeedSequence(seed).generate_state(3).tolist()
        source, target = self.tokenizer.source, self.tokenizer.target
        spoilt = add_noise(src, self.noise, seeds[0], source.user_symbols) if self.noise.is_on else src
        sides = self._split(source, spoilt, seeds[1]), self._split(target, tgt, seeds[2])
        if is_random(self.sampling, self.noise):
            for i, pair in enumerate(zip(*sides, strict=True)):
                if not all(0 < len(ids) <= self.max_length for ids in pair):
                    (sides[0][i],), (sides[1][i],) = (
                        source.encode_normalised([src[i]]),
                        target.encode_normalised([tgt[i]]),
                    )
        return sides

    def _split(self, side: Tokenizer, texts: Sequence[str], seed: int) -> Ids:
        parts = [texts[start : start + _PART] for start in range(0, len(texts), _PART)]
        if self.sampling.alpha == 0:
            rows = map(side.encode_normalised, parts)
        else:
            seeds = np.random.SeedSequence(seed).generate_state(len(parts)).tolist()
            rows = (
                side.sample(part, alpha=self.sampling.alpha, nbest=self.sampling.nbest, seed=seed_of_part)
                for part, seed_of_part in zip(parts, seeds, strict=True)
            )
        return list(chain.from_iterable(rows))


def _neighbours() -> dict[str, str]:
    """Map each letter to the neighbouring letters on a QWERTY keyboard."""
    neighbours: dict[str, str] = {}
    for number, row in enumerate(_ROWS_OF_KEYS):
        around = _ROWS_OF_KEYS[max(number - 1, 0) : number + 2]
        for column, key in enumerate(row):
            neighbours[key] = "".join(keys[max(column - 1, 0) : column + 2] for keys in around).replace(key, "")
    return neighbours


_NEIGHBOURS = _neighbours()


def add_noise(texts: Sequence[str], config: NoiseConfig, seed: int, symbols: Container[str] = ()) -> list[str]:
    """Return texts with each kind of noise in its own random share of them; the same seed changes the same texts.

    Words that are symbols or in angle brackets, such as <bt>, do not change.
    """
    rng = random.Random(seed)
    kinds: list[tuple[float, Callable[[str, random.Random], str]]] = [
        (config.punctuation, drop_final_mark),
        (config.typos, partial(mistype, symbols=symbols)),
        (config.case, partial(change_case, symbols=symbols)),
    ]
    result = list(texts)
    for rate, spoil in kinds:
        if rate > 0:
            for i, text in enumerate(result):
                if rng.random() < rate:
                    result[i] = spoil(text, rng) or text
    return result


def change_case(text: str, rng: random.Random, symbols: Container[str] = ()) -> str:
    """Return the text in lower case, in capitals, or with every word capitalised."""
    change = rng.choice((str.lower, str.upper, _capitalise))
    return " ".join(word if _is_symbol(word, symbols) else change(word) for word in text.split(" "))


def mistype(text: str, rng: random.Random, symbols: Container[str] = ()) -> str:
    """Put typing errors into words: swap two letters, drop or double one, or replace one by a neighbouring key."""
    words = text.split(" ")
    positions = [i for i, word in enumerate(words) if sum(map(str.isalpha, word)) > 1 and not _is_symbol(word, symbols)]
    for i in rng.sample(positions, min(len(positions), 1 + len(words) // _WORDS_A_TYPO)):
        words[i] = _mistype_word(words[i], rng)
    return " ".join(words)


def drop_final_mark(text: str, rng: random.Random) -> str:
    """Remove the final . ? ! or …, also before a closing quotation mark or bracket."""
    return _FINAL_MARK.sub("", text)


def _mistype_word(word: str, rng: random.Random) -> str:
    letters = [i for i, character in enumerate(word) if character.isalpha()]
    swaps = [i for i in letters if i + 1 in letters and word[i] != word[i + 1]]
    near = [i for i in letters if word[i].lower() in _NEIGHBOURS]
    kinds = [(_drop, letters), (_double, letters), (_swap, swaps), (_neighbour, near)]
    change, positions = rng.choice([kind for kind in kinds if kind[1]])
    return change(word, rng.choice(positions), rng)


def _swap(word: str, i: int, rng: random.Random) -> str:
    return word[:i] + word[i + 1] + word[i] + word[i + 2 :]


def _drop(word: str, i: int, rng: random.Random) -> str:
    return word[:i] + word[i + 1 :]


def _double(word: str, i: int, rng: random.Random) -> str:
    return word[: i + 1] + word[i:]


def _neighbour(word: str, i: int, rng: random.Random) -> str:
    key = rng.choice(_NEIGHBOURS[word[i].lower()])
    return word[:i] + (key.upper() if word[i].isupper() else key) + word[i + 1 :]


def _capitalise(word: str) -> str:
    return word[:1].upper() + word[1:]


def _is_symbol(word: str, symbols: Container[str]) -> bool:
    return word in symbols or (word.startswith("<") and word.endswith(">"))
