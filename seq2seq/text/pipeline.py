"""The steps of preparation, from corpora to ids: clean, find repeats, hold out, remove overlap, tokenise.

Training text is stored in shards on disk and never held in memory as a whole; validation and test sets are held in
memory. Every step writes folders into the folder WORK beside the draft of the result, and a killed run resumes from
them. The result does not depend on the workers.
"""

import logging
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from seq2seq.cache import WORK, run_step, write_json
from seq2seq.errors import UserError
from seq2seq.settings import rules
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.text.corpus import Pair
from seq2seq.text.dataset import REPORT, TEXTS, Pairs, write_pairs
from seq2seq.text.filters import HELD_OUT, REASONS, OverlapIndex, name_held_out
from seq2seq.text.languages import check_sides
from seq2seq.text.normalise import normalise, one_line
from seq2seq.text.shards import (
    Shard,
    call,
    cleaning_tasks,
    draw_pairs,
    encode_in_chunks,
    list_shards,
    read_held_out,
    repeats_of,
    repeats_tasks,
    select,
    tokenise,
    write_held_out,
)
from seq2seq.text.splits import Splits
from seq2seq.text.vocabulary import learn_tokenizers, load_tokenizers, write_files
from seq2seq.workers import Workers

logger = logging.getLogger(__name__)
_EXAMPLES = 3  # overlapping pairs that the report shows for each held-out set
SetName = tuple[str, str]  # split and name of a held-out set


class Pipeline:
    """One run of the pipeline into a folder.

    Attributes:
        counts: for each training file, the number of read pairs, of kept pairs, and of dropped pairs by reason.
        overlap: for each held-out set, how many training pairs share any side, the source, and the target with the set;
            and the first of these pairs as examples.
    """

    def __init__(self, folder: Path, data: DataConfig, splits: Splits, workers: Workers) -> None:
        self.folder, self.data, self.splits, self.workers = folder, data, splits, workers
        self.work = folder.parent / WORK
        self.counts: list[Counter[str]] = [Counter() for _ in splits.train]
        self.overlap: dict[str, dict[str, Any]] = {}

    def run(self, tokenizer_config: TokenizerConfig) -> None:
        """Write all files that `load_prepared` reads."""
        for corpus in self.splits.corpora:
            check_sides(corpus, self.data)
        sets = {"validation": self._read_validation(), "test": self._read_tests()}
        shards = self._clean()
        drawn = self._hold_out(shards, sets)
        for (split, name), pairs in drawn.items():
            sets[split][name] = pairs
        validation, tests = list(chain.from_iterable(sets["validation"].values())), sets["test"]
        held_out = write_held_out(self.work / "held_out", validation, tests, chain.from_iterable(drawn.values()))
        self.overlap = {
            name: {"pairs": 0, "source": 0, "target": 0, "examples": []} for name in name_held_out(validation, tests)
        }
        size = self._select(shards, held_out)
        logger.info("%s the tokenizer", "training" if tokenizer_config.model is None else "loading")
        self._learn_tokenizers(shards, size, tokenizer_config)
        write_pairs(self.folder / "train", self._tokenise(shards))
        self._require_kept()
        write_pairs(self.folder / "validation", encode_in_chunks(self.folder, validation))
        shutil.copyfile(held_out / TEXTS, self.folder / TEXTS)
        write_json(self.folder / REPORT, self._report(sets["validation"], tests))

    def _read_validation(self) -> dict[str, list[Pair]]:
        sets: dict[str, list[Pair]] = {}
        for name, corpus in zip(self.splits.validation_names, self.splits.validation, strict=False):  # then drawn sets
            pairs = [(normalise(src), normalise(tgt)) for src, tgt in corpus.pairs()]
            sets[name] = [(src, tgt) for src, tgt in pairs if src and tgt]
            if not sets[name]:
                raise UserError(f"{corpus.name} has no pair with text on both sides: it cannot serve as validation")
        return sets

    def _read_tests(self) -> dict[str, list[Pair]]:
        named = zip(self.splits.test_names, self.splits.test, strict=False)
        return {name: [(one_line(src), one_line(tgt)) for src, tgt in corpus.pairs()] for name, corpus in named}

    def _clean(self) -> list[Shard]:
        corpora = self.splits.train
        folders = [self.work / "cleaned" / f"{number:05}" for number in range(len(corpora))]
        tasks = [
            cleaning_tasks(folder, corpus, self.data, self.workers.size)
            for folder, corpus in zip(folders, corpora, strict=True)
        ]
        done, sizes = self.workers.map(call, chain.from_iterable(tasks)), list[int]()
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

    def _find_repeats(self, name: str, shards: list[Shard]) -> list[Path]:
        """Return the folders that list the pairs of these shards that repeat an earlier pair of these shards."""
        return list(self.workers.map(call, repeats_tasks(self.work / "repeats" / name, shards)))

    def _hold_out(
        self, shards: list[Shard], given: Mapping[str, Mapping[str, list[Pair]]]
    ) -> dict[SetName, list[Pair]]:
        """Return the held-out sets that are drawn from the training pairs; `given` has the other sets by split.

        Each corpus of data.held_out_from gives two sets. Without data.held_out_from, the splits without a given set are
        drawn from all corpora together.
        """
        others = [pair for of_split in given.values() for pairs in of_split.values() for pair in pairs]
        if not self.splits.held_out_from:
            missing = [split for split, of_split in given.items() if not of_split]
            sets = [(split, {"validation": "validation", "test": "held_out"}[split]) for split in missing]
            return self._draw("all", shards, sets, others, "", f"give data.{missing[0]}") if missing else {}
        drawn: dict[SetName, list[Pair]] = {}
        numbers = self.splits.held_out_from
        names = self.splits.validation_names[-len(numbers) :], self.splits.test_names[-len(numbers) :]
        for number, validation, test in zip(numbers, names[0], names[1], strict=True):
            sets = [("validation", validation), ("test", test)]
            of_corpus = [shard for shard in shards if shard.corpus == number]
            name = self.splits.train[number].name
            advice = f"leave {name} out of data.held_out_from"
            taken = [*others, *chain.from_iterable(drawn.values())]
            drawn |= self._draw(f"{number:05}", of_corpus, sets, taken, f" of {name}", advice)
        return drawn

    def _draw(
        self, step: str, shards: list[Shard], sets: list[SetName], others: list[Pair], of: str, advice: str
    ) -> dict[SetName, list[Pair]]:
        """Return sets of data.held_out pairs each, drawn from all different pairs of these shards.

        With data.remove_overlap, a drawn pair shares no side with the other held-out pairs nor with another drawn set.
        """
        repeats = self._find_repeats(step, shards)
        total = sum(shard.size - len(repeats_of(repeats, shard)) for shard in shards)
        size = rules.held_out(total) if self.data.held_out == rules.AUTO else self.data.held_out
        if 2 * size * len(sets) > total:
            raise UserError(
                f"data.held_out={size} for {' and '.join(split for split, _ in sets)} takes more than half of {total} "
                f"training pairs{of}: lower it, or {advice}"
            )
        drawn: dict[SetName, list[Pair]] = {}
        for split, name in sets:
            taken = [*others, *chain.from_iterable(drawn.values())] if self.data.remove_overlap else []
            pairs = draw_pairs(shards, size, OverlapIndex({"taken": taken}), largest=split == "test")
            if len(pairs) < size:
                raise UserError(
                    f"data.held_out={size}: only {len(pairs)} training pairs{of} share no side with another held-out "
                    f"set: lower it, {advice}, or set data.remove_overlap=false"
                )
            drawn[split, name] = pairs
        return drawn

    def _select(self, shards: list[Shard], held_out: Path) -> int:
        """Choose the rows of each shard to train on, count the others and the overlap; return the number of rows."""
        duplicates = self._find_repeats("all", shards) if self.data.drop_duplicates else []
        tasks = (
            partial(select, self._result_of("selected", shard), shard, duplicates, held_out, self.data.remove_overlap)
            for shard in shards
        )
        for shard, result in zip(shards, self.workers.map(call, tasks), strict=True):
            for reason, count in result["dropped"].items():
                self._drop(shard.corpus, reason, count)
            for pair in result["shared"]:
                self._count_overlap(*pair)
        read_held_out.cache_clear()  # not needed in training
        self._require_kept()
        return sum(counts["kept"] for counts in self.counts)

    def _count_overlap(self, src: str, tgt: str, src_sets: list[str], tgt_sets: list[str]) -> None:
        for name in {*src_sets, *tgt_sets}:
            counts = self.overlap[name]
            counts["pairs"] += 1
            counts["source"] += name in src_sets
            counts["target"] += name in tgt_sets
            if len(counts["examples"]) < _EXAMPLES:
                counts["examples"].append([src, tgt])

    def _result_of(self, step: str, shard: Shard) -> Path:
        return self.work / step / shard.folder.name

    def _learn_tokenizers(self, shards: list[Shard], size: int, config: TokenizerConfig) -> None:
        def pairs() -> Iterator[Pair]:
            return (pair for shard in shards for pair in shard.chosen(self._result_of("selected", shard)))

        folder = self.work / "tokenizer"
        run_step(folder, lambda draft: write_files(draft, learn_tokenizers(pairs, config, rules.vocab_size(size))))
        write_files(self.folder, load_tokenizers(folder))

    def _tokenise(self, shards: list[Shard]) -> Iterator[Pairs]:
        model = self.work / "tokenizer"
        limit = self.data.max_length
        tasks = (
            partial(tokenise, self._result_of("tokens", shard), shard, self._result_of("selected", shard), model, limit)
            for shard in shards
        )
        for shard, dropped in zip(shards, self.workers.map(call, tasks), strict=True):
            self._drop(shard.corpus, "tokens", dropped)
            yield Pairs.load(self._result_of("tokens", shard) / "tokens")

    def _drop(self, number: int, reason: str, count: int) -> None:
        self.counts[number]["kept"] -= count
        self.counts[number][reason] += count

    def _require_kept(self) -> None:
        if not any(counts["kept"] for counts in self.counts):
            total = sum(self.counts, Counter[str]())
            hint = ", or set data.remove_overlap=false" if total["overlap"] else ""
            raise UserError(f"no training pair is left after cleaning: {dict(total)}; see the limits under data{hint}")

    def _report(self, validation: dict[str, list[Pair]], tests: dict[str, list[Pair]]) -> dict[str, Any]:
        sizes = {name: len(pairs) for name, pairs in validation.items()}
        files: list[dict[str, int]] = []
        for counts in self.counts:
            drops = {reason: counts[reason] for reason in (*REASONS, HELD_OUT) if counts[reason]}
            files.append({"read": counts["read"], "kept": counts["kept"], **drops})
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
