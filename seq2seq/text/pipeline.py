"""The steps of preparation, from corpora to Arrow: clean, find repeats, hold out, remove overlap, tokenise.

Training text goes through files in shards and is never held in memory; validation and test sets are. Every step leaves
pieces in the folder's sub-folder WORK, from which a killed run goes on. The result does not depend on the workers.
"""

import logging
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from seq2seq.errors import UserError
from seq2seq.settings import rules
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.text.cache import WORK, piece, value_of, write_json
from seq2seq.text.corpus import Corpus, Pair
from seq2seq.text.dataset import TokenWriter
from seq2seq.text.filters import HELD_OUT, REASONS
from seq2seq.text.normalise import normalise, one_line
from seq2seq.text.overlap import OverlapIndex
from seq2seq.text.shards import (
    SelectingTask,
    Shard,
    clean_stripe,
    cleaning_tasks,
    find_repeats,
    list_shards,
    read_held_out,
    read_overlaps,
    read_rows,
    read_shard,
    repeats_of,
    repeats_tasks,
    select,
)
from seq2seq.text.tokenizer import Tokenizer, VocabularySizeError, make_tokenizer
from seq2seq.text.workers import Workers

logger = logging.getLogger(__name__)
_CHUNK = 10_000  # pairs tokenised at a time
_HELD, _MODEL, _TOKENS = "texts.json", "tokenizer.model", "tokens.arrow"
Ids = list[list[int]]


class Pipeline:
    """One run of the pipeline, in a folder of its own; `counts` has what became of the pairs of each training file."""

    def __init__(self, folder: Path, data: DataConfig, splits: dict[str, list[Corpus]], workers: Workers) -> None:
        self.folder, self.data, self.splits, self.workers = folder, data, splits, workers
        self.work = folder / WORK
        self.counts: list[Counter[str]] = [Counter() for _ in splits["train"]]

    def run(
        self,
        tokenizer_config: TokenizerConfig,
        seed: int,
    ) -> None:
        """Write all files that `load_prepared` reads."""
        validation = self._read_validation()
        tests = self._read_tests()
        shards = self._clean()
        repeats = self._find_repeats(shards)
        rows = self._draw(shards, repeats, seed, validation is None, not tests)
        held_out = {name: self._read_rows(shards, drawn) for name, drawn in rows.items()}
        validation = held_out.get("validation", validation) or []
        tests = {"held_out": held_out["test"]} if "test" in held_out else tests
        texts = {"validation": validation, "tests": tests}
        piece(self.work / "held_out", lambda draft: write_json(draft / _HELD, texts))
        chosen, overlap = self._select(shards, repeats, rows)
        logger.info("%s the tokenizer", "training" if tokenizer_config.model is None else "loading")
        self._train_tokenizer(shards, chosen, tokenizer_config)
        self._tokenise(shards, chosen)
        with TokenWriter(self.folder / "validation.arrow") as writer:
            for src, tgt in encode_in_chunks(self.folder / _MODEL, validation):
                writer.write(src, tgt)
        write_json(self.folder / _HELD, texts)
        write_json(self.folder / "report.json", self._report(overlap, len(validation), tests))

    def _read_validation(self) -> list[Pair] | None:
        corpora = self.splits["validation"]
        pairs = [(normalise(src), normalise(tgt)) for corpus in corpora for src, tgt in corpus.pairs()]
        pairs = [(src, tgt) for src, tgt in pairs if src and tgt]
        if corpora and not pairs:
            raise UserError(f"{corpora[0].name} has no pair with text on both sides: it cannot serve as validation")
        return pairs if corpora else None

    def _read_tests(self) -> dict[str, list[Pair]]:
        corpora = self.splits["test"]
        stems = Counter(corpus.stem for corpus in corpora)
        tests: dict[str, list[Pair]] = {}
        for corpus in corpora:
            name = corpus.stem if stems[corpus.stem] == 1 else f"{corpus.paths[0].parent.name}-{corpus.stem}"
            if name in tests:
                raise UserError(f"data.test has two sets called {name}: rename one of the files")
            tests[name] = [(one_line(src), one_line(tgt)) for src, tgt in corpus.pairs()]
        return tests

    def _clean(self) -> list[Shard]:
        tasks = list(cleaning_tasks(self.work / "cleaned", self.splits["train"], self.data, self.workers.size))
        for task, _ in zip(tasks, self.workers.map(clean_stripe, tasks), strict=True):
            if task.stripe + 1 == task.stripes:
                logger.info("cleaned %s", task.corpus.name)
        shards = list_shards(tasks)
        for shard in shards:
            self.counts[shard.corpus].update(shard.counts)
        self._require_kept()
        return shards

    def _find_repeats(self, shards: list[Shard]) -> list[Path]:
        """The rows of every shard that repeat an earlier pair, in so many files."""
        if not self.data.drop_duplicates:
            return []
        found = list(self.workers.map(find_repeats, repeats_tasks(self.work / "repeats", shards)))
        for shard in shards:
            self._drop(shard.corpus, "duplicate", len(repeats_of(found, shard)))
        return found

    def _draw(
        self, shards: list[Shard], repeats: list[Path], seed: int, validation: bool, test: bool
    ) -> dict[str, dict[int, list[int]]]:
        """Draw the splits that were not given out of the training pairs: the rows of each shard, by split."""
        names = [name for name, wanted in (("validation", validation), ("test", test)) if wanted]
        total = sum(counts["kept"] for counts in self.counts)
        size = rules.held_out(total) if self.data.held_out == rules.AUTO else self.data.held_out
        if 2 * size * len(names) > total:
            raise UserError(
                f"data.held_out={size} for {' and '.join(names)} takes more than half of {total} training pairs: "
                f"lower it, or give data.{names[0]}"
            )
        drawn = random.Random(seed).sample(range(total), size * len(names))
        ends = list(accumulate(shard.size - len(repeats_of(repeats, shard)) for shard in shards)) if names else []
        rows: dict[str, dict[int, list[int]]] = {name: {} for name in names}
        left: dict[int, np.ndarray] = {}
        for i, place in sorted(enumerate(drawn), key=lambda entry: entry[1]):
            number = bisect_right(ends, place)
            shard = shards[number]
            if number not in left:  # places come in order: one shard's rows at a time
                left = {number: np.delete(np.arange(shard.size), repeats_of(repeats, shard))}
            row = int(left[number][place - (ends[number - 1] if number else 0)])
            rows[names[i // size]].setdefault(number, []).append(row)
            self._drop(shard.corpus, HELD_OUT, 1)
        return rows

    def _read_rows(self, shards: list[Shard], rows: dict[int, list[int]]) -> list[Pair]:
        pairs: list[Pair] = []
        for number, of_shard in rows.items():
            wanted = set(of_shard)
            pairs += [pair for row, pair in enumerate(read_shard(shards[number].folder)) if row in wanted]
        return pairs

    def _select(
        self,
        shards: list[Shard],
        repeats: list[Path],
        held_out: dict[str, dict[int, list[int]]],
    ) -> tuple[list[Path], OverlapIndex]:
        """Choose what is trained on: where the rows of each shard are noted, and what was found of held-out sets."""
        texts, remove = self.work / "held_out" / _HELD, self.data.remove_overlap
        tasks = (
            SelectingTask(
                self.work / "selected" / shard.folder.name,
                shard,
                tuple(repeats),
                tuple(row for rows in held_out.values() for row in rows.get(number, ())),
                texts,
                remove,
            )
            for number, shard in enumerate(shards)
        )
        overlap, chosen = OverlapIndex(read_held_out(texts)), []
        for shard, folder in zip(shards, self.workers.map(select, tasks), strict=True):
            chosen.append(folder)
            shared = sum(overlap.shares(src, tgt) for src, tgt in read_overlaps(folder))
            self._drop(shard.corpus, "overlap", shared if remove else 0)
        self._require_kept()
        return chosen, overlap

    def _train_tokenizer(self, shards: list[Shard], chosen: list[Path], config: TokenizerConfig) -> None:
        def make(size: int) -> Tokenizer:
            pairs = chain.from_iterable(map(read_rows, shards, chosen))
            return make_tokenizer((side for pair in pairs for side in pair), replace(config, vocab_size=size))

        def train(draft: Path) -> None:
            size = config.vocab_size
            if size == rules.AUTO:
                size = rules.vocab_size(sum(value_of(folder)["kept"] for folder in chosen))
            try:
                tokenizer = make(size)
            except VocabularySizeError as error:
                if config.vocab_size != rules.AUTO:
                    raise
                tokenizer = make(error.nearest)
            (draft / _MODEL).write_bytes(tokenizer.model_bytes)

        piece(self.work / "tokenizer", train)
        (self.folder / _MODEL).write_bytes((self.work / "tokenizer" / _MODEL).read_bytes())

    def _tokenise(self, shards: list[Shard], chosen: list[Path]) -> None:
        model = self.work / "tokenizer" / _MODEL
        tasks = (
            TokenizingTask(self.work / "tokens" / shard.folder.name, shard, folder, model, self.data.max_length)
            for shard, folder in zip(shards, chosen, strict=True)
        )
        with TokenWriter(self.folder / "train.arrow") as writer:
            for shard, (tokens, dropped) in zip(shards, self.workers.map(tokenise, tasks), strict=True):
                writer.copy(tokens)
                self._drop(shard.corpus, "tokens", dropped)
        self._require_kept()

    def _drop(self, number: int, reason: str, count: int) -> None:
        self.counts[number]["kept"] -= count
        self.counts[number][reason] += count

    def _require_kept(self) -> None:
        if not any(counts["kept"] for counts in self.counts):
            total = sum(self.counts, Counter())
            raise UserError(f"no training pair is left after cleaning: {dict(total)}; see the limits under data")

    def _report(self, overlap: OverlapIndex, validation_size: int, tests: dict[str, list[Pair]]) -> dict[str, Any]:
        files = []
        for corpus, counts in zip(self.splits["train"], self.counts, strict=True):
            drops = {reason: counts[reason] for reason in (*REASONS, HELD_OUT) if counts[reason]}
            files.append({"name": corpus.name, "read": counts["read"], "kept": counts["kept"], **drops})
        return {
            "files": files,
            "overlap": {"removed": self.data.remove_overlap, "sets": overlap.report()},
            "sizes": {
                "train": sum(counts["kept"] for counts in self.counts),
                "validation": validation_size,
                "tests": {name: len(pairs) for name, pairs in tests.items()},
            },
        }


@dataclass(frozen=True)
class TokenizingTask:
    """One shard whose chosen pairs are tokenised."""

    piece: Path
    shard: Shard
    chosen: Path
    model: Path
    max_length: int  # tokens a side


def tokenise(task: TokenizingTask) -> tuple[Path, int]:
    """Write the tokens of pairs that are short enough; return the file and the number of dropped pairs."""

    def build(draft: Path) -> int:
        dropped = 0
        with TokenWriter(draft / _TOKENS) as writer:
            for sides in encode_in_chunks(task.model, read_rows(task.shard, task.chosen)):
                kept = [pair for pair in zip(*sides, strict=True) if max(map(len, pair)) <= task.max_length]
                dropped += len(sides[0]) - len(kept)
                writer.write([src for src, _ in kept], [tgt for _, tgt in kept])
        return dropped

    return task.piece / _TOKENS, piece(task.piece, build)


def encode_in_chunks(model: Path, pairs: Iterable[Pair]) -> Iterator[tuple[Ids, Ids]]:
    """Tokenise both sides of pairs, some thousands at a time."""
    tokenizer, iterator = Tokenizer.load(model), iter(pairs)
    while chunk := list(islice(iterator, _CHUNK)):
        yield tokenizer.encode([src for src, _ in chunk]), tokenizer.encode([tgt for _, tgt in chunk])
