"""Tokens of a run of training pairs, as an Arrow file of its own."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from seq2seq.text.arrow import TokenWriter
from seq2seq.text.corpus import Pair
from seq2seq.text.pieces import piece, value_of
from seq2seq.text.shards import Shard, read_rows
from seq2seq.text.tokenizer import Tokenizer

_CHUNK = 10_000  # pairs tokenised at a time
_TOKENS = "tokens.arrow"
Ids = list[list[int]]


@dataclass(frozen=True)
class Slice:
    """Some of the chosen pairs of a shard."""

    shard: Shard
    chosen: Path
    start: int
    stop: int


@dataclass(frozen=True)
class TokenizingTask:
    """One run of pairs."""

    piece: Path
    slices: tuple[Slice, ...]
    model: Path
    max_length: int  # tokens a side


def tokenise(task: TokenizingTask) -> tuple[Path, list[tuple[int, int]]]:
    """Write the tokens of pairs that are short enough; the file, and how many of each corpus were dropped."""

    def build(draft: Path) -> list[tuple[int, int]]:
        dropped: Counter[int] = Counter()
        pairs = (
            (piece_.shard.corpus, pair)
            for piece_ in task.slices
            for pair in read_rows(piece_.shard, piece_.chosen, piece_.start, piece_.stop)
        )
        tokenizer = Tokenizer.load(task.model)
        with TokenWriter(draft / _TOKENS) as writer:
            while chunk := list(islice(pairs, _CHUNK)):
                kept: tuple[Ids, Ids] = [], []
                for (corpus, _), src, tgt in zip(chunk, *_encode(tokenizer, [pair for _, pair in chunk]), strict=True):
                    if max(len(src), len(tgt)) > task.max_length:
                        dropped[corpus] += 1
                    else:
                        kept[0].append(src)
                        kept[1].append(tgt)
                writer.write(*kept)
        return list(dropped.items())

    piece(task.piece, build)
    return task.piece / _TOKENS, [(corpus, count) for corpus, count in value_of(task.piece)]


def encode_in_chunks(model: Path, pairs: Iterable[Pair]) -> Iterator[tuple[Ids, Ids]]:
    """Tokenise both sides of pairs, some thousands at a time."""
    tokenizer, iterator = Tokenizer.load(model), iter(pairs)
    while chunk := list(islice(iterator, _CHUNK)):
        yield _encode(tokenizer, chunk)


def _encode(tokenizer: Tokenizer, pairs: list[Pair]) -> tuple[Ids, Ids]:
    return tokenizer.encode([src for src, _ in pairs]), tokenizer.encode([tgt for _, tgt in pairs])
