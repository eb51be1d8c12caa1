"""Sentence pairs for all contestants: prepared from a folder as for training, made-up text, or random ids."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from seq2seq.data.batching import Batch, BatchLoader
from seq2seq.data.corpus import read_pairs
from seq2seq.data.dataset import Pairs, PreparedData, id_type
from seq2seq.data.epochs import PreparedEpochs
from seq2seq.data.prepare import prepare
from seq2seq.errors import UserError
from seq2seq.search.types import Source
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.translator import Translator

BUNDLED = Path(__file__).parents[1] / "data/bundled"
_WORDS = 3_000  # made-up words
_WRITTEN = 100_000  # pairs per write
_FILES = 4


def drawn_pairs(count: int, vocab_size: int, seed: int) -> Pairs:
    """Return pairs of random ids, about as long as everyday sentences, for benchmarks that measure only time."""
    rng = np.random.default_rng(seed)
    lengths = drawn_lengths(rng, count)
    return Pairs(rng.integers(4, vocab_size, int(lengths.sum()), dtype=id_type((vocab_size, None))), lengths)


def drawn_lengths(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return the lengths of `drawn_pairs`."""
    src = np.clip(rng.gamma(4.0, 2.4, count), 2, 60).astype(np.int32)
    tgt = np.clip(src * rng.uniform(0.8, 1.3, count), 2, 60).astype(np.int32)
    return np.stack([src, tgt], axis=1)


def read_folder(folder: Path, vocab_size: int) -> PreparedData:
    """Return train.tsv, validation.tsv and test.tsv of a folder, prepared as by `train.py` or read from its cache."""
    data = DataConfig(root=str(folder), train=["train.tsv"], validation=["validation.tsv"], test=["test.tsv"])
    return prepare(data, TokenizerConfig(vocab_size=vocab_size))


def read_test(folder: Path | None) -> list[tuple[str, str]]:
    """Read test.tsv of a folder without cleaning; None: the bundled test sentences that were written by hand."""
    name, root = ("test.tsv", folder) if folder else ("everyday.test.tsv", BUNDLED)
    pairs = list(read_pairs(name, str(root), DataConfig()))
    if not pairs:
        raise UserError(f"{root} has no sentence to translate: give --data with a test.tsv that has some")
    return pairs


def read_or_draw(folder: Path | None, vocab_size: int, count: int, seed: int) -> Pairs:
    """Return the training pairs of a folder; None: `count` pairs of random ids."""
    return read_folder(folder, vocab_size).train if folder else drawn_pairs(count, vocab_size, seed)


def epochs_of(pairs: Pairs, max_tokens: int, seed: int = 0) -> BatchLoader:
    """Return a loader with the batches of training, epoch after epoch."""
    return BatchLoader(PreparedEpochs(pairs, seed), max_tokens=max_tokens)


def to_device(batch: Batch, device: str) -> Batch:
    """Return a batch on the device."""
    return Batch(*(side.to(device) for side in batch))


def joint(tokenizer: Tokenizers) -> Tokenizer:
    """Return the tokenizer of both sides."""
    if not tokenizer.is_joint:
        raise UserError("this model has a tokenizer for each side: give --model with one tokenizer for both sides")
    return tokenizer.source


def search_alone(
    translator: Translator, texts: Sequence[str], search: SearchConfig, banned: Sequence[Sequence[int]] = ()
) -> list[str]:
    """Return what the model alone makes of each text as a whole, without what the translator does around the search."""
    sources = [Source(ids) for ids in translator.tokenizer.source.encode(texts)]
    batches = translator.engine.search(sources, search, 1, banned)
    best = {index: hypotheses[0].ids for batch in batches for index, hypotheses in batch}
    return translator.tokenizer.target.decode([best[index] for index in range(len(texts))])


def write_corpus(folder: Path, pairs: int) -> None:
    """Write made-up sentences of everyday length: several training files, and one for validation.

    The frequencies of words follow Zipf's law. The words repeat every _WRITTEN pairs, but with other numbers at the
    end, so that no two pairs are equal.
    """
    rng = np.random.default_rng(1)
    letters = list("abcdefghijklmnñopqrstuvwxyzáéíóú")
    words = ["".join(rng.choice(letters, size)) for size in rng.integers(1, 10, _WORDS)]
    chances = 1 / np.arange(10, _WORDS + 10)
    lengths = np.clip(rng.gamma(4.0, 2.0, _WRITTEN), 2, 40).astype(int)
    drawn = iter(rng.choice(words, 2 * int(lengths.sum()), p=chances / chances.sum()).tolist())
    pattern = ["\t".join(" ".join(islice(drawn, size)) + " %d." for _ in range(2)) + "\n" for size in lengths.tolist()]
    each, first = -(-pairs // _FILES), 0
    sizes = {f"train{number}": min(each, pairs - number * each) for number in range(_FILES)}
    for name, size in {"validation": 500, **sizes}.items():
        with (folder / f"{name}.tsv").open("w", encoding="utf-8") as file:
            for start in range(0, size, _WRITTEN):
                count = min(_WRITTEN, size - start)
                numbers = np.repeat(np.arange(first + start, first + start + count), 2).tolist()
                file.write("".join(pattern[:count]) % tuple(numbers))
        first += size
