"""The steps of preparation, from corpora to ids: clean, find repeats, hold out, remove overlap, tokenise.

Training text goes through files in shards and is never held in memory; validation and test sets are. Every step leaves
pieces in the folder WORK beside the draft of the result, and a killed run goes on from them. The result does not depend
on the workers.
"""

import logging
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np

from seq2seq.errors import UserError
from seq2seq.settings import rules
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.text.cache import WORK, piece, write_json
from seq2seq.text.corpus import Corpus, Pair
from seq2seq.text.dataset import Pairs, write_pairs
from seq2seq.text.filters import HELD_OUT, REASONS, OverlapIndex, name_held_out
from seq2seq.text.normalise import normalise, one_line
from seq2seq.text.shards import (
    Shard,
    call,
    cleaning_tasks,
    encode_in_chunks,
    list_shards,
    repeats_of,
    repeats_tasks,
    select,
    tokenise,
)
from seq2seq.text.vocabulary import learn_tokenizers, read_files, write_files
from seq2seq.workers import Workers

logger = logging.getLogger(__name__)
_HELD = "texts.json"


class Pipeline:
    """One run of the pipeline into a folder; `counts` has what became of the pairs of each training file."""

    def __init__(self, folder: Path, data: DataConfig, splits: dict[str, list[Corpus]], workers: Workers) -> None:
        self.folder, self.data, self.splits, self.workers = folder, data, splits, workers
        self.work = folder.parent / WORK
        self.counts: list[Counter[str]] = [Counter() for _ in splits["train"]]

    def run(self, tokenizer_config: TokenizerConfig, seed: int) -> None:
        """Write all files that `load_prepared` reads."""
        validation, tests = self._read_validation(), self._read_tests()
        shards = self._clean()
        repeats = self._find_repeats(shards)
        rows = self._draw(shards, repeats, seed, validation is None, not tests)
        held_out = {name: _read_rows(shards, drawn) for name, drawn in rows.items()}
        validation = held_out.get("validation", validation) or []
        tests = {"held_out": held_out["test"]} if "test" in held_out else tests
        texts = {"validation": validation, "tests": tests}
        piece(self.work / "held_out", lambda draft: write_json(draft / _HELD, texts))
        overlap = OverlapIndex(name_held_out(validation, tests))
        size = self._select(shards, repeats, rows, overlap)
        logger.info("%s the tokenizer", "training" if tokenizer_config.model is None else "loading")
        self._learn_tokenizers(shards, size, tokenizer_config)
        write_pairs(self.folder / "train", self._tokenise(shards))
        self._require_kept()
        write_pairs(self.folder / "validation", encode_in_chunks(self.folder, validation))
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
        corpora = self.splits["train"]
        folders = [self.work / "cleaned" / f"{number:05}" for number in range(len(corpora))]
        tasks = [
            cleaning_tasks(folder, corpus, self.data, self.workers.size)
            for folder, corpus in zip(folders, corpora, strict=True)
        ]
        done, sizes = self.workers.map(call, chain.from_iterable(tasks)), []
        for corpus, stripes in zip(corpora, tasks, strict=True):
            counts = {next(done) for _ in stripes}  # every stripe counts all shards
            if len(counts) > 1:
                raise UserError(f"{corpus.name} changed while it was read: run the same command again")
            sizes += counts
            logger.info("cleaned %s", corpus.name)
        shards = list_shards(folders, sizes)
        for shard in shards:
            self.counts[shard.corpus].update(shard.counts)
        self._require_kept()
        return shards

    def _find_repeats(self, shards: list[Shard]) -> list[Path]:
        """Find the rows of every shard that repeat an earlier pair."""
        if not self.data.drop_duplicates:
            return []
        found = list(self.workers.map(call, repeats_tasks(self.work / "repeats", shards)))
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

    def _select(
        self, shards: list[Shard], repeats: list[Path], held_out: dict[str, dict[int, list[int]]], overlap: OverlapIndex
    ) -> int:
        """Choose the rows of each shard to train on and count them; count the overlap with held-out sets."""
        texts, remove = self.work / "held_out" / _HELD, self.data.remove_overlap
        tasks = (
            partial(
                *(select, self._piece("selected", shard), shard, repeats),
                *([row for rows in held_out.values() for row in rows.get(number, ())], texts, remove),
            )
            for number, shard in enumerate(shards)
        )
        size = 0
        for shard, found in zip(shards, self.workers.map(call, tasks), strict=True):
            size += found["kept"]
            shared = sum(overlap.shares(src, tgt) for src, tgt in found["shared"])
            self._drop(shard.corpus, "overlap", shared if remove else 0)
        self._require_kept()
        return size

    def _piece(self, step: str, shard: Shard) -> Path:
        return self.work / step / shard.folder.name

    def _learn_tokenizers(self, shards: list[Shard], size: int, config: TokenizerConfig) -> None:
        def pairs() -> Iterator[Pair]:
            return (pair for shard in shards for pair in shard.chosen(self._piece("selected", shard)))

        folder = self.work / "tokenizer"
        piece(folder, lambda draft: write_files(draft, learn_tokenizers(pairs, config, rules.vocab_size(size))))
        for name, content in read_files(folder).items():
            (self.folder / name).write_bytes(content)

    def _tokenise(self, shards: list[Shard]) -> Iterator[Pairs]:
        model = self.work / "tokenizer"
        limit = self.data.max_length
        tasks = (
            partial(tokenise, self._piece("tokens", shard), shard, self._piece("selected", shard), model, limit)
            for shard in shards
        )
        for shard, dropped in zip(shards, self.workers.map(call, tasks), strict=True):
            self._drop(shard.corpus, "tokens", dropped)
            yield Pairs.load(self._piece("tokens", shard) / "tokens")

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
            "overlap": {"removed": self.data.remove_overlap, "sets": overlap.report},
            "sizes": {
                "train": sum(counts["kept"] for counts in self.counts),
                "validation": validation_size,
                "tests": {name: len(pairs) for name, pairs in tests.items()},
            },
        }


def _read_rows(shards: list[Shard], rows: dict[int, list[int]]) -> list[Pair]:
    pairs: list[Pair] = []
    for number, of_shard in rows.items():
        wanted = set(of_shard)
        pairs += [pair for row, pair in enumerate(shards[number].pairs()) if row in wanted]
    return pairs
