"""Training text that is read from its sources during training, with the checks of preparation; no disk is used.

Duplicates are found only within a chunk: the digests of all pairs would take more and more memory, and a few integers
in a checkpoint could not restore them.
"""

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice

import numpy as np

from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig
from seq2seq.text.augment import Encoder, Ids
from seq2seq.text.corpus import Corpus
from seq2seq.text.dataset import Pairs
from seq2seq.text.epochs import Block, Place, cumulative_draws, weighted_shares
from seq2seq.text.filters import REASONS, Cleaner, OverlapIndex
from seq2seq.text.formats import Pair, with_places

_TURN = 1000  # pairs read at a time of all sources together, for the sample


@dataclass(frozen=True)
class StreamBlocks:
    """Blocks of pairs straight from the corpora.

    Without weights, an epoch reads every corpus once. Every chunk takes pairs of each corpus in proportion to its size
    in bytes, so that all corpora end at about the same time; if a size is not known, the chunk takes equally many pairs
    of each. If an epoch's last chunk has less than half of data.block pairs, it joins the block before. With weights,
    there are no epochs: every chunk takes pairs of each corpus by its share, and a corpus that ends begins again.
    """

    corpora: list[Corpus]
    data: DataConfig
    encoder: Encoder
    overlap: OverlapIndex
    seed: int

    @property
    def shares(self) -> list[float] | None:
        """Each corpus's share of every chunk; None without weights, when chunks follow the sizes of the corpora."""
        if not self.data.weights:
            return None
        return weighted_shares([corpus.name for corpus in self.corpora], self.data.weights).tolist()

    @cached_property
    def sizes(self) -> list[int]:
        """Relative sizes of the corpora without weights: bytes of their files, or 1 each if there are no files."""
        if not all(corpus.paths for corpus in self.corpora):
            return [1 for _ in self.corpora]
        return [max(1, sum(path.stat().st_size for path in corpus.paths)) for corpus in self.corpora]

    def _start(self) -> Place:
        corpora = self.corpora
        return {
            "epoch": 0,
            "chunk": 0,
            "ended": [False for _ in corpora],  # whether this epoch has read the whole corpus
            "places": [[] for _ in corpora],
            "passes": [0 for _ in corpora],
            "counts": [{} for _ in corpora],  # of the pairs read since the last report
        }

    def __call__(self, place: Place) -> Generator[Block, None, None]:
        """Yield blocks from a place on.

        Raises:
            UserError: a corpus cannot be read, cleaning drops all its pairs, or the place is of another version.
        """
        place = place or self._start()
        if "ended" not in place:
            raise UserError(
                "the checkpoint is of a version that streamed one corpus after the other, so this one cannot go on "
                "with its text: resume with that version, or begin a new run with init="
            )
        chunks = _Chunks(self, place).read()
        chunk = next(chunks)
        for following in chunks:
            ends_epoch = following.after["epoch"] > following.seed[1] == chunk.seed[1]
            if ends_epoch and 2 * len(following.pairs) < self.data.block:
                ids = np.concatenate([chunk.pairs.ids, following.pairs.ids])
                pairs = Pairs(ids, np.concatenate([chunk.pairs.lengths, following.pairs.lengths]))
                chunk = Block(pairs, chunk.seed, following.after, chunk.told + following.told)
                continue
            if len(chunk.pairs):
                yield chunk
            chunk = following


class _Chunks:
    """One pass through a stream, from a place on."""

    def __init__(self, stream: StreamBlocks, place: Place) -> None:
        self.stream, self.data, self.shares = stream, stream.data, stream.shares
        self.place, self.cleaner = deepcopy(place), Cleaner(self.data)
        self.counts = [Counter(counts) for counts in place["counts"]]
        self.readers: dict[int, Iterator[Pair]] = {}

    def read(self) -> Iterator[Block]:
        """Yield blocks of data.block pairs, or of the rest of an epoch, without end."""
        while True:
            epoch, number = self.place["epoch"], self.place["chunk"]
            pairs = self._draw(number) if self.shares else self._go_on()
            seed = [self.stream.seed, epoch, number]
            ids = self._encode(pairs, seed)
            if self.shares and not ids[0]:
                raise UserError(f"none of {len(pairs)} pairs has at most data.max_length={self.data.max_length} tokens")
            told = self._end_epoch() if all(self.place["ended"]) else []
            if self.shares and (number + 1) % 100 == 0:
                told = self._tell(f"the stream's last {100 * self.data.block:,} draws")
            self.place["chunk"] = 0 if self.place["epoch"] > epoch else number + 1
            self.place["counts"] = [dict(counts) for counts in self.counts]
            yield Block(Pairs.of(*ids), seed, deepcopy(self.place), told)

    def _go_on(self) -> list[tuple[int, str, str]]:
        """Return the next pairs of every corpus that has not ended, in proportion to the sizes."""
        seen, pairs, ended = self._no_digests(), [], self.place["ended"]
        while (room := self.data.block - len(pairs)) and not all(ended):
            live = [corpus for corpus, has_ended in enumerate(ended) if not has_ended]
            total = sum(self.stream.sizes[corpus] for corpus in live)
            for corpus in live:
                share = max(1, round(room * self.stream.sizes[corpus] / total))
                wanted = min(len(pairs) + share, self.data.block)
                pairs += islice(self._kept(corpus, seen), wanted - len(pairs))
                if len(pairs) < wanted:
                    self._rewind(corpus)
                    ended[corpus] = True
        return pairs

    def _draw(self, number: int) -> list[tuple[int, str, str]]:
        """Return the next pairs of each corpus, by the shares; a corpus that ends begins again."""
        assert self.shares is not None
        before, after = number * self.data.block, (number + 1) * self.data.block
        of_chunk, pairs = self._no_digests(), []
        for corpus, share in enumerate(self.shares):
            wanted = len(pairs) + cumulative_draws(share, after) - cumulative_draws(share, before)
            seen = of_chunk
            while len(pairs) < wanted:
                is_whole = not any(self.place["places"][corpus])
                start, repeated = len(pairs), self.counts[corpus]["duplicate"]
                pairs += islice(self._kept(corpus, seen), wanted - start)
                if len(pairs) < wanted:
                    if is_whole and len(pairs) == start and self.counts[corpus]["duplicate"] == repeated:
                        raise UserError(
                            f"nothing of {self._name(corpus)} is left after cleaning: {self._counted(corpus)}"
                        )
                    self._rewind(corpus)
                    seen = self._no_digests()  # a pair that comes again in a later pass is no duplicate
        return pairs

    def _no_digests(self) -> set[bytes] | None:
        return set() if self.data.drop_duplicates else None

    def _kept(self, corpus: int, seen: set[bytes] | None) -> Iterator[tuple[int, str, str]]:
        counts, overlap = self.counts[corpus], self.stream.overlap
        for src, tgt in self.cleaner.clean(self._reader(corpus), counts, seen):
            if self.data.remove_overlap and overlap.shares(src, tgt):
                self._drop(corpus, "overlap")
            else:
                yield corpus, src, tgt

    def _encode(self, pairs: list[tuple[int, str, str]], seed: list[int]) -> tuple[Ids, Ids]:
        kept: tuple[Ids, Ids] = [], []
        src, tgt = self.stream.encoder.encode([pair[1] for pair in pairs], [pair[2] for pair in pairs], seed)
        for (corpus, _, _), *sides in zip(pairs, src, tgt, strict=True):
            if max(map(len, sides)) > self.data.max_length:
                self._drop(corpus, "tokens")
            else:
                kept[0].append(sides[0])
                kept[1].append(sides[1])
        return kept

    def _reader(self, corpus: int) -> Iterator[Pair]:
        def read() -> Iterator[Pair]:
            for pair, place in self.stream.corpora[corpus].read(self.place["places"][corpus]):
                self.place["places"][corpus] = place
                yield pair

        return self.readers.setdefault(corpus, read())

    def _rewind(self, corpus: int) -> None:
        self.readers.pop(corpus, None)
        self.place["places"][corpus] = []
        self.place["passes"][corpus] += 1

    def _end_epoch(self) -> list[str]:
        if not any(counts["kept"] for counts in self.counts):
            total = dict(sum(self.counts, Counter()))
            raise UserError(f"no training pair is left after cleaning: {total}; see the limits under data")
        told = self._tell(f"epoch {self.place['epoch']} of the stream")
        self.place["epoch"] += 1
        self.place["ended"] = [False for _ in self.counts]
        return told

    def _tell(self, what: str) -> list[str]:
        """Return a message for each corpus: pairs read, dropped and kept since the last report; reset the counts."""
        told = [f"{what}, {self._name(corpus)}: {self._counted(corpus)}" for corpus in range(len(self.counts))]
        self.counts = [Counter() for _ in self.counts]
        return told

    def _counted(self, corpus: int) -> str:
        counts, passes = self.counts[corpus], self.place["passes"][corpus]
        dropped = "".join(f", {reason} {counts[reason]:,}" for reason in REASONS if counts[reason])
        return f"read {counts['read']:,}{dropped}, kept {counts['kept']:,}" + f" ({passes} times through)" * (
            passes > 0
        )

    def _drop(self, corpus: int, reason: str) -> None:
        self.counts[corpus]["kept"] -= 1
        self.counts[corpus][reason] += 1

    def _name(self, corpus: int) -> str:
        return self.stream.corpora[corpus].name


def sample_corpora(corpora: Sequence[Corpus], data: DataConfig, size: int) -> Corpus:
    """Return a corpus of the first pairs of all corpora, `size` pairs in all, to learn a vocabulary from.

    Pairs are read in turns, by the corpora's shares; when one corpus ends, the others go on.
    """
    weights = {name: float(weight) for name, weight in data.weights.items()}
    name = f"sample of {', '.join(corpus.name for corpus in corpora)}" + (f" by {weights}" if weights else "")
    shares = weighted_shares([corpus.name for corpus in corpora], data.weights).tolist()
    paths = tuple(path for corpus in corpora for path in corpus.paths)
    return Corpus(name, "sample", paths, partial(with_places, partial(_read_sample, list(corpora), shares, size)))


def _read_sample(corpora: list[Corpus], shares: list[float], size: int, skipped: int) -> Iterator[Pair]:
    def in_turns() -> Iterator[Pair]:
        open_ = {corpus.name: (corpus.pairs(), share) for corpus, share in zip(corpora, shares, strict=True) if share}
        while open_:
            for name, (pairs, share) in list(open_.items()):
                taken = list(islice(pairs, max(1, round(share * _TURN))))
                yield from taken
                if not taken:
                    del open_[name]

    return islice(in_turns(), skipped, max(size, skipped))
