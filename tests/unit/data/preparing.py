"""A small corpus with its three splits, and short ways to prepare it and to read what comes out."""

import random
from pathlib import Path
from typing import Any

from seq2seq.data.dataset import PreparedData
from seq2seq.data.prepare import prepare
from seq2seq.settings.data import DataConfig, TokenizerConfig

Pair = tuple[str, str]
SMALL = TokenizerConfig(vocab_size=320, split_digits=False)


def make_pairs(count: int, seed: int) -> list[Pair]:
    """Distinct sentences of made-up words, no two alike."""
    rng = random.Random(seed)

    def sentence(number: int) -> str:
        words = ("".join(rng.choices("bcdfg", k=1) + rng.choices("aeiouñ", k=1)) * 2 for _ in range(rng.randint(2, 6)))
        return f"{' '.join(words)} {seed}x{number}."

    return [(sentence(i), "¿" + sentence(i)) for i in range(count)]


def write(path: Path, pairs: list[Pair]) -> None:
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")


TRAIN, VALIDATION, TEST = make_pairs(300, 1), make_pairs(20, 2), make_pairs(30, 3)


def config(root: Path, **changes: Any) -> DataConfig:
    settings = {"train": ["train.tsv"], "validation": ["validation.tsv"], "test": ["test.tsv"], "held_out": 10}
    return DataConfig(root=str(root), **(settings | changes))


def run(root: Path, vocabulary: TokenizerConfig = SMALL, **changes: Any) -> PreparedData:
    return prepare(config(root, **changes), vocabulary)


def files(cache: Path) -> dict[str, bytes]:
    """All files of the one folder in a cache."""
    (folder,) = (path for path in cache.iterdir() if path.is_dir())
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def texts(prepared: PreparedData) -> list[Pair]:
    rows = [prepared.train[i] for i in range(len(prepared.train))]
    src, tgt = (prepared.tokenizer.target.decode([row[side].tolist() for row in rows]) for side in (0, 1))
    return list(zip(src, tgt, strict=True))
