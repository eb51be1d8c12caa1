"""The sentence pairs that contestants share: prepared from a folder as for training, or random ids."""

from pathlib import Path

import numpy as np

from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.text.batching import Batch, BatchLoader, TokenPairs
from seq2seq.text.corpus import read_pairs
from seq2seq.text.dataset import PreparedData
from seq2seq.text.prepare import prepare


class DrawnPairs:
    """Seeded random ids, about as long as everyday sentences, for measurements of time only."""

    def __init__(self, count: int, vocab_size: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.src_lengths = np.clip(rng.gamma(4.0, 2.4, count), 2, 60).astype(np.int32)
        self.tgt_lengths = np.clip(self.src_lengths * rng.uniform(0.8, 1.3, count), 2, 60).astype(np.int32)
        self.seed, self.vocab_size = seed, vocab_size

    def __len__(self) -> int:
        return len(self.src_lengths)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng([self.seed, index])
        src, tgt = (
            rng.integers(4, self.vocab_size, lengths[index]) for lengths in (self.src_lengths, self.tgt_lengths)
        )
        return src, tgt


def read_folder(folder: Path, vocab_size: int) -> PreparedData:
    """Prepare train.tsv, validation.tsv and test.tsv of a folder as `train.py` does, or take them from its cache.

    Raises:
        UserError: a file is missing or malformed.
    """
    data = DataConfig(root=str(folder), train=["train.tsv"], validation=["validation.tsv"], test=["test.tsv"])
    return prepare(data, TokenizerConfig(vocab_size=vocab_size), 1)


def read_test(folder: Path) -> list[tuple[str, str]]:
    """Read test.tsv without cleaning.

    Raises:
        UserError: it is missing or malformed.
    """
    return list(read_pairs("test.tsv", str(folder), DataConfig()))


def draw_batches(pairs: TokenPairs, count: int, max_tokens: int, seed: int) -> list[Batch]:
    """Take the first batches of an epoch, in its order.

    Raises:
        UserError: there are fewer.
    """
    loader = BatchLoader(pairs, max_tokens=max_tokens, seed=seed)
    if len(loader) < count:
        raise UserError(f"{count} batches are wanted, the data has {len(loader)} of {max_tokens} tokens: ask for fewer")
    return [batch for _, batch in zip(range(count), loader, strict=False)]


def to_device(batch: Batch, device: str) -> Batch:
    """Move a batch to the device."""
    return Batch(*(side.to(device) for side in batch))
