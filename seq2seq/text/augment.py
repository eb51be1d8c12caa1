"""Training pairs to ids as they are seen once: sources spoilt, texts split into subwords at random; knows no order."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from jaxtyping import Int32

from seq2seq.settings.training import NoiseConfig, SubwordSamplingConfig
from seq2seq.text.noise import add_noise
from seq2seq.text.tokenizer import Tokenizer

_PIECE = 2000  # pairs split at a time, so that no other thread waits for long

Ids = list[list[int]]


class TokenBlock:
    """Tokenised pairs in memory, in two flat arrays."""

    def __init__(self, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]) -> None:
        assert len(src) == len(tgt)
        self._flat, self._starts, self._lengths = zip(*map(_flatten, (src, tgt)), strict=True)

    @property
    def src_lengths(self) -> Int32[np.ndarray, " n"]:
        """Tokens of each source."""
        return self._lengths[0]

    @property
    def tgt_lengths(self) -> Int32[np.ndarray, " n"]:
        """Tokens of each target."""
        return self._lengths[1]

    def __len__(self) -> int:
        return len(self._lengths[0])

    def __getitem__(self, index: int | np.integer) -> tuple[Int32[np.ndarray, " s"], Int32[np.ndarray, " t"]]:
        src, tgt = (
            flat[starts[index] : starts[index + 1]] for flat, starts in zip(self._flat, self._starts, strict=True)
        )
        return src, tgt


def _flatten(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    lengths = np.fromiter(map(len, rows), np.int32, len(rows))
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return np.fromiter(chain.from_iterable(rows), np.int32, int(starts[-1])), starts, lengths


def is_random(sampling: SubwordSamplingConfig, noise: NoiseConfig) -> bool:
    """Whether the settings let a pair look different each time it is seen."""
    return sampling.alpha > 0 or noise.is_on


@dataclass(frozen=True)
class Encoder:
    """Splits normalised pairs into ids, at random and spoilt if asked; the same seed gives the same ids.

    Where randomness makes a side longer than max_length tokens, the pair stays plain.
    """

    tokenizer: Tokenizer
    max_length: int  # tokens a side
    sampling: SubwordSamplingConfig
    noise: NoiseConfig

    @property
    def is_random(self) -> bool:
        """Whether a pair may look different the next time."""
        return is_random(self.sampling, self.noise)

    def encode(self, src: Sequence[str], tgt: Sequence[str], seed: Sequence[int]) -> tuple[Ids, Ids]:
        """Give the ids of both sides of the pairs; of a pair that is too long even when plain, those too."""
        seeds = np.random.SeedSequence(seed).generate_state(3).tolist()
        spoilt = add_noise(src, self.noise, seeds[0]) if self.noise.is_on else src
        sides = self._split(spoilt, seeds[1]), self._split(tgt, seeds[2])
        if self.is_random:
            for i, pair in enumerate(zip(*sides, strict=True)):
                if not all(0 < len(ids) <= self.max_length for ids in pair):
                    sides[0][i], sides[1][i] = self.tokenizer.encode_normalised([src[i], tgt[i]])
        return sides

    def _split(self, texts: Sequence[str], seed: int) -> Ids:
        pieces = [texts[start : start + _PIECE] for start in range(0, len(texts), _PIECE)]
        if self.sampling.alpha == 0:
            rows = map(self.tokenizer.encode_normalised, pieces)
        else:
            seeds = np.random.SeedSequence(seed).generate_state(len(pieces)).tolist()
            rows = (
                self.tokenizer.sample(piece, alpha=self.sampling.alpha, nbest=self.sampling.nbest, seed=of_piece)
                for piece, of_piece in zip(pieces, seeds, strict=True)
            )
        return list(chain.from_iterable(rows))
