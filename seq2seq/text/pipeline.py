"""The steps of preparation, from corpora to ids: clean, find repeats, hold out, remove overlap, tokenise.

Training text is stored in shards on disk and never held in memory as a whole; validation and test sets are held in
memory. Every step writes pieces into the folder WORK beside the draft of the result, and a killed run resumes from the
pieces. The result does not depend on the workers.
"""

import logging
import random
import re
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
from seq2seq.text.corpus import Corpus, Pair, names_corpus
from seq2seq.text.dataset import Pairs, write_pairs
from seq2seq.text.filters import HELD_OUT, REASONS, name_held_out
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
_EXAMPLES = 3  # overlapping pairs that the report shows for each held-out set
_KINDS = (".source", ".reference", ".before")  # a run's files of a test set end so, see training/baseline.py
SetName = tuple[str, str]  # split and name of a held-out set
ShardRows = dict[int, list[int]]  # rows of each shard, by its number


class Pipeline:
    """One run of the pipeline into a folder.

    Attributes:
        counts: for each training file, the number of read pairs, of kept pairs, and of dropped pairs by reason.
        overlap: for each held-out set, how many training pairs share any side, the source, and the target with the set;
            and the first of these pairs as examples.
    """

    def __init__(self, folder: Path, data: DataConfig, splits: dict[str, list[Corpus]], workers: Workers) -> None:
        self.folder, self.data, self.splits, self.workers = folder, data, splits, workers
        self.work = folder.parent / WORK
        self.counts: list[Counter[str]] = [Counter() for _ in splits["train"]]
        self.overlap: dict[str, dict[str, Any]] = {}
        self.sources = _find_sources(data, splits["train"])

    def run(self, tokenizer_config: TokenizerConfig, seed: int) -> None:
        """Write all files that `load_prepared` reads."""
        sets = {"validation": self._read_validation(), "test": self._read_tests()}
        shards = self._clean()
        repeats = self._find_repeats(shards)
        rows = self._hold_out(shards, repeats, seed, [split for split, given in sets.items() if not given])
        for (split, name), drawn in rows.items():
            sets[split][name] = _read_rows(shards, drawn)
        validation, tests = list(chain.from_iterable(sets["validation"].values())), sets["test"]
        texts = {"validation": validation, "tests": tests}
        piece(self.work / "held_out", lambda draft: write_json(draft / _HELD, texts))
        self.overlap = {
            name: {"pairs": 0, "source": 0, "target": 0, "examples": []} for name in name_held_out(validation, tests)
        }
        size = self._select(shards, repeats, rows)
        logger.info("%s the tokenizer", "training" if tokenizer_config.model is None else "loading")
        self._learn_tokenizers(shards, size, tokenizer_config)
        write_pairs(self.folder / "train", self._tokenise(shards))
        self._require_kept()
        write_pairs(self.folder / "validation", encode_in_chunks(self.folder, validation))
        write_json(self.folder / _HELD, texts)
        write_json(self.folder / "report.json", self._report(sets["validation"], tests))

    def _read_validation(self) -> dict[str, list[Pair]]:
        sets: dict[str, list[Pair]] = {}
        for name, corpus in zip(self._names("validation"), self.splits["validation"], strict=False):
            pairs = [(normalise(src), normalise(tgt)) for src, tgt in corpus.pairs()]
            sets[name] = [(src, tgt) for src, tgt in pairs if src and tgt]
            if not sets[name]:
                raise UserError(f"{corpus.name} has no pair with text on both sides: it cannot serve as validation")
        return sets

    def _read_tests(self) -> dict[str, list[Pair]]:
        named = zip(self._names("test"), self.splits["test"], strict=False)
        return {name: [(one_line(src), one_line(tgt)) for src, tgt in corpus.pairs()] for name, corpus in named}

    def _names(self, split: str) -> list[str]:
        """Return names for a split's sets, by their files: first the given sets, then those of data.held_out_from."""
        corpora = [*self.splits[split], *(self.splits["train"][number] for number in self.sources)]
        stems = [corpus.stem for corpus in corpora]
        if split == "validation":  # loggers do not accept every character
            stems = [re.sub(r"[^\w.-]+", "_", stem) for stem in stems]
        count = Counter(stems)
        names = [
            stem if count[stem] == 1 else f"{corpus.paths[0].parent.name}-{stem}"
            for stem, corpus in zip(stems, corpora, strict=True)
        ]
        for name in names:
            if names.count(name) > 1:
                raise UserError(f"data.{split} has two sets called {name}: rename one of the files")
            if split == "test" and name.endswith(_KINDS):
                raise UserError(
                    f"data.test has a set called {name}, whose files would be taken for those of "
                    f"{name.rpartition('.')[0]}: rename its file, without {name[name.rindex('.') :]}"
                )
        return names

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
        for corpus, counts in zip(corpora, self.counts, strict=True):
            if not counts["read"]:
                raise UserError(f"{corpus.name} is empty: it has no sentence pair")
        self._require_kept()
        return shards

    def _find_repeats(self, shards: list[Shard]) -> list[Path]:
        """Return the folders that list the pairs that repeat an earlier pair; count these pairs as dropped."""
        if not self.data.drop_duplicates:
            return []
        found = list(self.workers.map(call, repeats_tasks(self.work / "repeats", shards)))
        for shard in shards:
            self._drop(shard.corpus, "duplicate", len(repeats_of(found, shard)))
        return found

    def _hold_out(
        self, shards: list[Shard], repeats: list[Path], seed: int, missing: list[str]
    ) -> dict[SetName, ShardRows]:
        """Draw held-out sets from the training pairs.

        Each corpus of data.held_out_from gives two sets. The sets do not depend on the other corpora, unless a pair of
        the corpus repeats a pair of an earlier corpus. Without data.held_out_from, the missing splits are drawn from
        all corpora together.
        """
        numbered = dict(enumerate(shards))
        if not self.sources:
            names = {"validation": "validation", "test": "held_out"}
            way_out = f"lower it, or give data.{missing[0]}" if missing else ""
            return self._draw(numbered, repeats, seed, [(split, names[split]) for split in missing], "", way_out)
        drawn: dict[SetName, ShardRows] = {}
        for place, source in enumerate(self.sources):
            sets = [(split, self._names(split)[len(self.splits[split]) + place]) for split in ("validation", "test")]
            own = {number: shard for number, shard in numbered.items() if shard.corpus == source}
            name = self.splits["train"][source].name
            way_out = f"lower it, or leave {name} out of data.held_out_from"
            drawn |= self._draw(own, repeats, seed, sets, f" of {name}", way_out)
        return drawn

    def _draw(
        self,
        shards: dict[int, Shard],
        repeats: list[Path],
        seed: int,
        sets: list[SetName],
        of: str,
        way_out: str,
    ) -> dict[SetName, ShardRows]:
        """Draw sets of data.held_out pairs each from shards, which are given by their numbers."""
        numbers, ends = list(shards), list(accumulate(s.size - len(repeats_of(repeats, s)) for s in shards.values()))
        total = ends[-1] if ends else 0
        size = rules.held_out(total) if self.data.held_out == rules.AUTO else self.data.held_out
        if 2 * size * len(sets) > total:
            raise UserError(
                f"data.held_out={size} for {' and '.join(split for split, _ in sets)} takes more than half of {total} "
                f"training pairs{of}: {way_out}"
            )
        drawn = random.Random(seed).sample(range(total), size * len(sets))
        rows: dict[SetName, ShardRows] = {name: {} for name in sets}
        left: dict[int, np.ndarray] = {}
        for i, place in sorted(enumerate(drawn), key=lambda entry: entry[1]):
            found = bisect_right(ends, place)
            shard = shards[numbers[found]]
            if found not in left:  # places come in order: one shard's rows at a time
                left = {found: np.delete(np.arange(shard.size), repeats_of(repeats, shard))}
            row = int(left[found][place - (ends[found - 1] if found else 0)])
            rows[sets[i // size]].setdefault(numbers[found], []).append(row)
            self._drop(shard.corpus, HELD_OUT, 1)
        return rows

    def _select(self, shards: list[Shard], repeats: list[Path], held_out: dict[SetName, ShardRows]) -> int:
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
            for pair in found["shared"]:
                self._count_overlap(*pair)
            self._drop(shard.corpus, "overlap", len(found["shared"]) if remove else 0)
        self._require_kept()
        return size

    def _count_overlap(self, src: str, tgt: str, src_sets: list[str], tgt_sets: list[str]) -> None:
        for name in {*src_sets, *tgt_sets}:
            counts = self.overlap[name]
            counts["pairs"] += 1
            counts["source"] += name in src_sets
            counts["target"] += name in tgt_sets
            if len(counts["examples"]) < _EXAMPLES:
                counts["examples"].append([src, tgt])

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

    def _report(self, validation: dict[str, list[Pair]], tests: dict[str, list[Pair]]) -> dict[str, Any]:
        sizes = {name: len(pairs) for name, pairs in validation.items()}
        files = []
        for corpus, counts in zip(self.splits["train"], self.counts, strict=True):
            drops = {reason: counts[reason] for reason in (*REASONS, HELD_OUT) if counts[reason]}
            files.append({"name": corpus.name, "read": counts["read"], "kept": counts["kept"], **drops})
        return {
            "files": files,
            "overlap": {"removed": self.data.remove_overlap, "sets": self.overlap},
            "sizes": {
                "train": sum(counts["kept"] for counts in self.counts),
                "validation": sum(sizes.values()),
                **({"validation_sets": sizes} if len(sizes) > 1 else {}),
                "tests": {name: len(pairs) for name, pairs in tests.items()},
            },
        }


def _find_sources(data: DataConfig, corpora: list[Corpus]) -> list[int]:
    """Return the numbers of the corpora that data.held_out_from names.

    Raises:
        UserError: a key names no corpus.
    """
    for key in data.held_out_from:
        if not any(names_corpus(key, corpus.name) for corpus in corpora):
            names = ", ".join(corpus.name for corpus in corpora)
            raise UserError(
                f"data.held_out_from has {key}, which names none of the corpora: {names}; leave it out, or name one"
            )
    return [
        number
        for number, corpus in enumerate(corpora)
        if any(names_corpus(key, corpus.name) for key in data.held_out_from)
    ]


def _read_rows(shards: list[Shard], rows: dict[int, list[int]]) -> list[Pair]:
    pairs: list[Pair] = []
    for number, of_shard in rows.items():
        wanted = set(of_shard)
        pairs += [pair for row, pair in enumerate(shards[number].pairs()) if row in wanted]
    return pairs
