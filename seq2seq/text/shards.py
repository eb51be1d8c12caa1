"""The tasks that prepare training text in shards, one after the other or in several processes.

A shard's contents depend on its corpus alone and not on the worker. A shard of an uncompressed .tsv or .jsonl file is a
range of its bytes, so that every task reads only its own shards. A shard of another corpus is a number of pairs: every
task reads the corpus from the beginning and cleans its own shards. Processes send each other no text.

Repeats are found by sorting digests. Each task sorts one range of digests. Each shard's digests are sorted, so that a
task reads only its range of each shard. A task's memory depends on the range, not on the corpus: about 50 bytes for
each of PART pairs.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int64

from seq2seq.cache import run_step, value_of, write_json
from seq2seq.settings.data import DataConfig
from seq2seq.text.corpus import Corpus
from seq2seq.text.dataset import TEXTS, Pairs, id_type, read_texts, write_pairs
from seq2seq.text.filters import HELD_OUT, Cleaner, OverlapIndex, digest_pair, name_held_out
from seq2seq.text.formats import Pair, Record
from seq2seq.text.vocabulary import load_tokenizers
from seq2seq.workers import is_stopping

SHARD = 50_000  # pairs read for one shard of a corpus that is not divisible
SHARD_BYTES = 4 << 20  # bytes read for one shard of a divisible corpus
PART = 2_000_000  # pairs whose digests one task sorts
_CHUNK = 10_000  # pairs tokenised at a time
_TEXT, _ROWS = "pairs.tsv", "rows.npy"
_DIGEST = "S12"  # NumPy's type of a digest
_DIGESTS, _ORDER = "digests.npy", "order.npy"  # sorted digests of a shard's pairs, and the row of each digest's pair

Result = TypeVar("Result")


def call(task: Callable[[], Result]) -> Result:
    """Run a task and return its result."""
    return task()


@dataclass(frozen=True)
class Shard:
    """Cleaned pairs of one corpus."""

    folder: Path
    corpus: int
    start: int  # number of cleaned pairs in the shards before this shard
    counts: dict[str, int]

    @property
    def size(self) -> int:
        """Number of cleaned pairs."""
        return self.counts.get("kept", 0)

    def pairs(self) -> Iterator[Pair]:
        """Read the cleaned pairs."""
        with (self.folder / _TEXT).open(encoding="utf-8", newline="\n") as file:
            for line in file:
                src, tgt = line.rstrip("\n").split("\t")
                yield src, tgt

    def at(self, rows: np.ndarray) -> Iterator[Pair]:
        """Read the cleaned pairs in these rows, in the order of the text; the text is not opened for no rows."""
        if len(rows):
            mask = np.zeros(self.size, bool)
            mask[rows] = True
            yield from compress(self.pairs(), mask.tolist())

    def chosen(self, selected: Path) -> Iterator[Pair]:
        """Read the pairs that `select` chose."""
        return self.at(np.load(selected / _ROWS))

    def digests(self) -> np.ndarray:
        """Read the sorted digests of the cleaned pairs."""
        return np.load(self.folder / _DIGESTS)

    def rows_of(self, digests: np.ndarray) -> np.ndarray:
        """Return the rows of the cleaned pairs that have one of these digests."""
        return np.load(self.folder / _ORDER)[np.isin(self.digests(), digests)]


def cleaning_tasks(folder: Path, corpus: Corpus, data: DataConfig, workers: int) -> list[Callable[[], int]]:
    """Return the tasks that clean a corpus, several for a large corpus; each returns the number of the corpus's shards.

    A task is one stripe: every n-th shard, if there are n tasks.
    """
    stripes = min(workers, 1 + corpus.size // SHARD_BYTES)
    size = SHARD_BYTES if corpus.is_divisible else SHARD
    return [partial(clean_stripe, folder, corpus, data, size, range(i, 1 << 40, stripes)) for i in range(stripes)]


def clean_stripe(folder: Path, corpus: Corpus, data: DataConfig, size: int, mine: range) -> int:
    """Clean the missing shards of a corpus whose numbers are in `mine`; return the number of all shards.

    Raises:
        UserError: the corpus cannot be read.
    """
    cleaner, shards = Cleaner(data), 0
    for records in _cut(corpus, size):
        if is_stopping():  # nobody waits for the result
            break
        if shards in mine:
            run_step(_shard_folder(folder, shards), partial(_clean, records, cleaner))
        shards += 1
    return shards


def _cut(corpus: Corpus, size: int) -> Iterator[Iterable[Record]]:
    """Yield the records of each shard; size is in bytes if the corpus is divisible, else in records."""
    if corpus.is_divisible:
        for begin in range(0, corpus.size, size):
            yield corpus.read(begin, begin + size)
    else:
        records = corpus.read()
        for first in records:
            shard = islice(records, size - 1)
            yield chain([first], shard)
            deque(shard, maxlen=0)  # the records that the caller left


def _shard_folder(corpus: Path, number: int) -> Path:
    return corpus.with_name(f"{corpus.name}-{number:06}")


def _clean(raw: Iterable[Record], cleaner: Cleaner, draft: Path) -> dict[str, int]:
    counts: Counter[str] = Counter()
    digests: list[bytes] = []
    with (draft / _TEXT).open("w", encoding="utf-8", newline="\n") as file:
        for src, tgt in cleaner.clean(raw, counts):
            file.write(f"{src}\t{tgt}\n")
            digests.append(digest_pair(src, tgt))
    table = np.array(digests, _DIGEST)
    order = np.argsort(table, kind="stable")
    np.save(draft / _DIGESTS, table[order])
    np.save(draft / _ORDER, order.astype(np.uint32))
    return counts


def list_shards(folders: Sequence[Path], sizes: Sequence[int]) -> list[Shard]:
    """List the shards of all corpora in their order, given each corpus's folder and number of shards."""
    shards: list[Shard] = []
    start = 0
    for corpus, (folder, size) in enumerate(zip(folders, sizes, strict=True)):
        for number in range(size):
            path = _shard_folder(folder, number)
            shards.append(Shard(path, corpus, start, value_of(path)))
            start += shards[-1].size
    return shards


def repeats_tasks(folder: Path, shards: Sequence[Shard]) -> Iterator[Callable[[], Path]]:
    """Yield the tasks that find repeats, each for one range of digests; their folders begin with the folder's name."""
    parts = -(-sum(shard.size for shard in shards) // PART)
    return (
        partial(find_repeats, folder.with_name(f"{folder.name}-{i:05}of{parts}"), shards, i, parts)
        for i in range(parts)
    )


def find_repeats(folder: Path, shards: Sequence[Shard], part: int, parts: int) -> Path:
    """Write the numbers, counted through all shards, of the pairs that equal an earlier pair; return the folder."""

    def build(draft: Path) -> None:
        digests, rows = (np.concatenate(column) for column in zip(*map(read, shards), strict=True))
        order = np.argsort(digests, kind="stable")  # equal digests stay in the order of the corpora
        digests = digests[order]
        np.save(draft / _ROWS, np.sort(rows[order[1:][digests[1:] == digests[:-1]]]))

    def read(shard: Shard) -> tuple[np.ndarray, Int64[np.ndarray, " n"]]:
        digests, order = (np.load(shard.folder / name, mmap_mode="r") for name in (_DIGESTS, _ORDER))
        first, last = (np.searchsorted(digests, bound.to_bytes(9, "big")[1:]) for bound in bounds)
        last = len(digests) if part + 1 == parts else last
        # copies, so that the files of thousands of shards do not all stay mapped
        return digests[first:last].copy(), order[first:last].astype(np.int64) + shard.start

    bounds = [(number << 64) // parts for number in (part, part + 1)]
    run_step(folder, build)
    return folder


def repeats_of(repeats: Sequence[Path], shard: Shard) -> Int64[np.ndarray, " n"]:
    """Return the rows of a shard that repeat an earlier pair."""
    columns = [np.empty(0, np.int64)]
    for folder in repeats:
        rows = np.load(folder / _ROWS, mmap_mode="r")
        first, last = np.searchsorted(rows, [shard.start, shard.start + shard.size])
        columns.append(rows[first:last] - shard.start)
    return np.sort(np.concatenate(columns))


def draw_pairs(shards: Sequence[Shard], size: int, taken: OverlapIndex, *, largest: bool) -> list[Pair]:
    """Return the `size` pairs with the smallest or largest digests that share no side with the taken sets.

    A digest is uniform and depends on its pair alone, so the drawn pairs do not depend on the order of files, on other
    corpora or on a seed, and runs with different seeds have the same test set. If text is added, a pair leaves a drawn
    set only for a new pair with a smaller or larger digest. The digests need no salt: nothing else in preparation sorts
    text by them.

    The pairs are in the order of their digests; there are fewer than `size` if no other pair is left.
    """
    count = size
    while True:
        digests = _outermost_digests(shards, count, largest=largest)
        pairs = [pair for pair in _pairs_with_digests(shards, digests) if not any(taken.shares(*pair))]
        if len(pairs) >= size or len(digests) < count:
            return pairs[-size:] if largest else pairs[:size]
        count *= 2


def _outermost_digests(shards: Sequence[Shard], count: int, *, largest: bool) -> np.ndarray:
    """Return the smallest or largest digests of the shards' pairs, sorted, without repeats."""
    outermost = np.empty(0, _DIGEST)
    for shard in shards:
        digests = np.unique(np.concatenate([outermost, shard.digests()]))
        outermost = digests[-count:] if largest else digests[:count]
    return outermost


def _pairs_with_digests(shards: Sequence[Shard], digests: np.ndarray) -> list[Pair]:
    """Return the pairs that have these digests, each once, in the order of the digests."""
    pairs = (pair for shard in shards for pair in shard.at(shard.rows_of(digests)))
    return [pair for _, pair in sorted({digest_pair(*pair): pair for pair in pairs}.items())]


def write_held_out(
    folder: Path, validation: Sequence[Pair], tests: Mapping[str, Sequence[Pair]], drawn: Iterable[Pair]
) -> Path:
    """Write the texts of all held-out sets and the digests of the pairs drawn from training text; return the folder."""

    def build(draft: Path) -> None:
        write_json(draft / TEXTS, {"validation": validation, "tests": tests})
        np.save(draft / _DIGESTS, np.array([digest_pair(src, tgt) for src, tgt in drawn], _DIGEST))

    run_step(folder, build)
    return folder


def select(folder: Path, shard: Shard, repeats: Sequence[Path], held_out: Path, remove_overlap: bool) -> dict[str, Any]:
    """Write the rows of a shard to train on; return what `Pipeline` counts.

    Left out are the pairs that `write_held_out` recorded as drawn, repeats and, with remove_overlap, the pairs that
    share a side with a held-out set. The result holds the numbers of pairs that were left out, by reason, and the
    pairs that share a side, each with the names of the sets that have its source and of the sets that have its target.
    """

    def build(draft: Path) -> dict[str, Any]:
        overlap, drawn = read_held_out(held_out)
        out = dict.fromkeys(shard.rows_of(drawn).tolist(), HELD_OUT)
        out |= dict.fromkeys(repeats_of(repeats, shard).tolist(), "duplicate")
        dropped, kept, shared = Counter(out.values()), list[int](), list[tuple[str, str, list[str], list[str]]]()
        for row, (src, tgt) in enumerate(shard.pairs()):
            if row in out:
                continue
            src_sets, tgt_sets = overlap.shares(src, tgt)
            if src_sets or tgt_sets:
                shared.append((src, tgt, src_sets, tgt_sets))
                if remove_overlap:
                    dropped["overlap"] += 1
                    continue
            kept.append(row)
        np.save(draft / _ROWS, np.array(kept, np.uint32))
        return {"dropped": dropped, "shared": shared}

    return run_step(folder, build)


@lru_cache(maxsize=1)  # `Pipeline` clears it
def read_held_out(folder: Path) -> tuple[OverlapIndex, np.ndarray]:
    """Index the held-out sets and read the drawn pairs' digests, once per process."""
    return OverlapIndex(name_held_out(*read_texts(folder / TEXTS))), np.load(folder / _DIGESTS)


def tokenise(folder: Path, shard: Shard, chosen: Path, model: Path, max_length: int) -> int:
    """Write the ids of the chosen pairs with 1 to max_length tokens a side; return the number of dropped pairs.

    A tokenizer of another program may leave no token of a text.
    """

    def build(draft: Path) -> int:
        def parts() -> Iterator[Pairs]:
            for pairs in encode_in_chunks(model, shard.chosen(chosen)):
                fits = (pairs.lengths.min(axis=1) > 0) & (pairs.lengths.max(axis=1) <= max_length)
                dropped.append(len(pairs) - int(fits.sum()))
                yield Pairs(pairs.ids[np.repeat(fits, pairs.lengths.sum(axis=1))], pairs.lengths[fits])

        dropped: list[int] = []
        write_pairs(draft / "tokens", parts())
        return sum(dropped)

    return run_step(folder, build)


def encode_in_chunks(tokenizers: Path, pairs: Iterable[Pair]) -> Iterator[Pairs]:
    """Tokenise normalised pairs with the tokenizers in a folder, some thousands at a time."""
    both, iterator = load_tokenizers(tokenizers), iter(pairs)
    dtype = id_type(both.sizes)
    while chunk := list(islice(iterator, _CHUNK)):
        src, tgt = zip(*chunk, strict=True)
        yield Pairs.of(*both.encode_pairs(src, tgt), dtype)
