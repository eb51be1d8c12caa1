"""Random variants of training pairs, other ones in each epoch: unusual forms, and sampled subwords."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, starmap

import numpy as np

from seq2seq.data.modifiers import Modifiers
from seq2seq.settings.training import ModifiersConfig, SubwordSamplingConfig
from seq2seq.text.tokenizer import UNK, Tokenizer
from seq2seq.text.vocabulary import Tokenizers

_PART = 2000  # texts split into subwords at a time, so that other threads do not wait long

Ids = list[list[int]]


def is_random(sampling: SubwordSamplingConfig, modifiers: ModifiersConfig) -> bool:
    """Return whether the settings give a pair different ids in each epoch."""
    return sampling.alpha > 0 or modifiers.share > 0


@dataclass(frozen=True)
class Encoder:
    """Gives pairs new ids, by modifiers and random splits; the same seed gives the same ids.

    A pair keeps its ids if it has an unknown token, or if randomness makes a side empty or longer than max_length. The
    texts are decoded from the ids, without loss, since a tokenizer with byte fallback has every byte.
    """

    tokenizer: Tokenizers
    max_length: int  # tokens a side
    sampling: SubwordSamplingConfig
    modifiers: ModifiersConfig
    languages: tuple[str, str]  # codes of source and target

    def encode(self, src: Ids, tgt: Ids, seed: Sequence[int]) -> tuple[Ids, Ids]:
        """Return this epoch's ids of all sources and targets, from their plain ids."""
        seeds = np.random.SeedSequence(seed).generate_state(3).tolist()
        rng, share, is_sampled = random.Random(seeds[0]), self.modifiers.share, self.sampling.alpha > 0
        drawn = [rng.random() < share for _ in src] if share else [False] * len(src)
        rows = [i for i, is_drawn in enumerate(drawn) if (is_drawn or is_sampled) and UNK not in chain(src[i], tgt[i])]
        sides = self.tokenizer.source, self.tokenizer.target
        decoded = (side.decode([ids[i] for i in rows]) for side, ids in zip(sides, (src, tgt), strict=True))
        texts = list(zip(*decoded, strict=True))
        changed = [
            self._modifiers.modify(pair, rng.choice(texts), rng) if drawn[i] else pair
            for i, pair in zip(rows, texts, strict=True)
        ]
        if (masker := self.tokenizer.masker) is not None:  # strings that a modifier inserted
            changed = list(starmap(masker.mask_pair, changed))
        new = (self._split(sides[n], [pair[n] for pair in changed], seeds[n + 1]) for n in (0, 1))
        result = list(src), list(tgt)
        for i, *pair in zip(rows, *new, strict=True):
            if all(0 < len(ids) <= self.max_length for ids in pair):
                result[0][i], result[1][i] = pair
        return result

    @cached_property
    def _modifiers(self) -> Modifiers:
        return Modifiers(self.modifiers, self.languages, self.tokenizer)

    def _split(self, side: Tokenizer, texts: Sequence[str], seed: int) -> Ids:
        parts = [texts[start : start + _PART] for start in range(0, len(texts), _PART)]
        if self.sampling.alpha == 0:
            rows = map(side.encode_normalised, parts)
        else:
            seeds = np.random.SeedSequence(seed).generate_state(len(parts)).tolist()
            rows = (
                side.sample(part, alpha=self.sampling.alpha, seed=seed_of_part)
                for part, seed_of_part in zip(parts, seeds, strict=True)
            )
        return list(chain.from_iterable(rows))
