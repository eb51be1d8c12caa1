"""The steps of preparation, from corpora to ids: split, clean, find repeats, hold out, remove overlap, tokenise.

Training text is stored on disk (`data.cleaned`) and never held in memory as a whole, except for a byte a pair;
validation and test sets are held in memory. The result does not depend on the number of processes.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from jaxtyping import Int64

from seq2seq.data.clean import HELD_OUT, REASONS, UNESCAPED, OverlapIndex, digest_pair, name_held_out
from seq2seq.data.cleaned import CleanedText, write_cleaned
from seq2seq.data.corpus import Corpus, Pair, names_corpus, open_splits
from seq2seq.data.dataset import REPORT, TEXTS, Pairs, id_type, write_pairs
from seq2seq.data.languages import check_sides
from seq2seq.data.processes import Processes
from seq2seq.errors import UserError
from seq2seq.progress import bar, phase
from seq2seq.settings import rules
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.storage.cache import write_json
from seq2seq.text.normalise import normalise, one_line
from seq2seq.text.vocabulary import learn_tokenizers, load_tokenizers, write_files

# Endings of a run's files of a test set, see training/finish_run.py.
_ENDINGS = (".source", ".reference")
logger = logging.getLogger(__name__)
_EXAMPLES = 3  # overlapping pairs that the report shows for each held-out set
SetName = tuple[str, str]  # split and name of a held-out set


@dataclass(frozen=True)
class Splits:
    """What a preparation reads, and what it holds out.

    Attributes:
        train, validation, test: the corpora of each split.
        held_out_from: indices of the training corpora that data.held_out_from names.
        validation_names, test_names: names of the sets of the given corpora, followed by those
            that are drawn from these training corpora.
    """

    train: list[Corpus]
    validation: list[Corpus]
    test: list[Corpus]
    held_out_from: list[int]
    validation_names: list[str]
    test_names: list[str]

    @property
    def corpora(self) -> list[Corpus]:
        """All corpora."""
        return [*self.train, *self.validation, *self.test]


def find_splits(data: DataConfig) -> Splits:
    """Open the corpora that the settings name, and name the held-out sets after their files."""
    splits = open_splits(data)
    sources = _find_sources(data, splits["train"])
    held_out = [splits["train"][index] for index in sources]
    validation = _name_sets("validation", [*splits["validation"], *held_out])
    tests = _name_sets("test", [*splits["test"], *held_out])
    for name in tests:
        if name.endswith(_ENDINGS):
            raise UserError(
                f"data.test has a set called {name}, whose files would be taken for those of "
                f"{name.rpartition('.')[0]}: rename its file, without {name[name.rindex('.') :]}"
            )
    return Splits(splits["train"], splits["validation"], splits["test"], sources, validation, tests)


def _find_sources(data: DataConfig, corpora: Sequence[Corpus]) -> list[int]:
    """Return the indices of the corpora that data.held_out_from names."""
    names = [corpus.name for corpus in corpora]
    for key in data.held_out_from:
        if not any(names_corpus(key, name) for name in names):
            advice = "leave it out, or name one"
            raise UserError(
                f"data.held_out_from has {key}, which names none of the corpora: {', '.join(names)}; {advice}"
            )
    return [i for i, name in enumerate(names) if any(names_corpus(key, name) for key in data.held_out_from)]


def _name_sets(split: str, corpora: Sequence[Corpus]) -> list[str]:
    """Return the corpora's file names without endings; files of the same name get the names of their folders, too."""
    count = Counter(corpus.stem for corpus in corpora)
    names = [
        corpus.stem if count[corpus.stem] == 1 else f"{corpus.paths[0].parent.name}-{corpus.stem}" for corpus in corpora
    ]
    if split == "validation":  # loggers do not accept every character
        names = [re.sub(r"[^\w.-]+", "_", name) for name in names]
    for name, number in Counter(names).items():
        if number > 1:
            raise UserError(f"data.{split} has two sets called {name}: rename one of the files")
    return names


class Pipeline:
    """One run of the pipeline into a folder.

    Attributes:
        counts: for each training file, the number of read pairs, of kept pairs, and of dropped pairs by reason.
        overlap: for each held-out set, how many training pairs share any side, the source, and the target with the set;
            and the first of these pairs as examples.
        text: the cleaned pairs of all training files.
        is_kept: whether each of these pairs is to train on.
    """

    text: CleanedText

    def __init__(self, folder: Path, data: DataConfig, splits: Splits, workers: Processes) -> None:
        self.folder, self.data, self.splits, self.workers = folder, data, splits, workers
        self.overlap: dict[str, dict[str, Any]] = {}

    def run(self, tokenizer_config: TokenizerConfig) -> None:
        """Write all files that `load_prepared` reads."""
        for corpus in self.splits.corpora:
            check_sides(corpus, self.data)
        sets = {"validation": self._read_validation(), "test": self._read_tests()}
        with TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as work:
            self._clean(Path(work) / "text.arrow")
            drawn = self._hold_out(sets)
            for (split, name), pairs in drawn.items():
                sets[split][name] = pairs
            validation, tests = list(chain.from_iterable(sets["validation"].values())), sets["test"]
            self._select(name_held_out(validation, tests), list(chain.from_iterable(drawn.values())))
            size = rules.vocab_size(int(self.is_kept.sum()))
            with phase(f"{'training' if tokenizer_config.model is None else 'loading'} the tokenizer"):
                write_files(self.folder, learn_tokenizers(self._kept_pairs, tokenizer_config, size))
            write_pairs(self.folder / "train", self._tokenise())
            del self.text  # NFS keeps a file that is mapped, and then its folder
        self._require_kept()
        write_pairs(self.folder / "validation", [encode(self.folder, *zip(*validation, strict=True))])
        write_json(self.folder / TEXTS, {"validation": validation, "tests": tests})
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

    def _clean(self, path: Path) -> None:
        self.counts = write_cleaned(path, self.splits.train, self.data, self.workers)
        for corpus, counts in zip(self.splits.train, self.counts, strict=True):
            if not counts["read"]:
                raise UserError(f"{corpus.name} is empty: it has no sentence pair")
        self._require_kept()
        self.text = CleanedText.load(path)
        self.is_kept = np.ones(len(self.text), bool)
        self._ends = np.cumsum([counts["kept"] for counts in self.counts])  # of the corpora, in rows

    def _hold_out(self, by_split: Mapping[str, Mapping[str, list[Pair]]]) -> dict[SetName, list[Pair]]:
        """Return the held-out sets that are drawn from the training pairs; `by_split` has the other sets.

        Each corpus of data.held_out_from gives two sets. Without data.held_out_from, the splits without a given set are
        drawn from all corpora together.
        """
        others = [pair for of_split in by_split.values() for pairs in of_split.values() for pair in pairs]
        if not self.splits.held_out_from:
            missing = [split for split, of_split in by_split.items() if not of_split]
            sets = [(split, {"validation": "validation", "test": "held_out"}[split]) for split in missing]
            return self._draw(self.text, sets, others, "", f"give data.{missing[0]}") if missing else {}
        drawn: dict[SetName, list[Pair]] = {}
        numbers = self.splits.held_out_from
        names = self.splits.validation_names[-len(numbers) :], self.splits.test_names[-len(numbers) :]
        for number, validation, test in zip(numbers, names[0], names[1], strict=True):
            sets = [("validation", validation), ("test", test)]
            end = int(self._ends[number])
            of_corpus = self.text.part(range(end - self.counts[number]["kept"], end))
            name = self.splits.train[number].name
            advice = f"leave {name} out of data.held_out_from"
            taken = [*others, *chain.from_iterable(drawn.values())]
            drawn |= self._draw(of_corpus, sets, taken, f" of {name}", advice)
        return drawn

    def _draw(
        self, text: CleanedText, sets: list[SetName], others: list[Pair], of: str, advice: str
    ) -> dict[SetName, list[Pair]]:
        """Return sets of data.held_out pairs each, drawn from all different pairs of a text.

        With data.remove_overlap, a drawn pair shares no side with the other held-out pairs nor with another drawn set.
        """
        total = len(text) - len(text.repeats)
        size = rules.held_out(total) if self.data.held_out == rules.AUTO else self.data.held_out
        if 2 * size * len(sets) > total:
            raise UserError(
                f"data.held_out={size} for {' and '.join(split for split, _ in sets)} takes more than half of {total} "
                f"training pairs{of}: lower it, or {advice}"
            )
        drawn: dict[SetName, list[Pair]] = {}
        for split, name in sets:
            taken = [*others, *chain.from_iterable(drawn.values())] if self.data.remove_overlap else []
            pairs = text.draw(size, OverlapIndex({"taken": taken}), largest=split == "test")
            if len(pairs) < size:
                raise UserError(
                    f"data.held_out={size}: only {len(pairs)} training pairs{of} share no side with another held-out "
                    f"set: lower it, {advice}, or set data.remove_overlap=false"
                )
            drawn[split, name] = pairs
        return drawn

    def _select(self, held_out: Mapping[str, list[Pair]], drawn: list[Pair]) -> None:
        """Choose the pairs to train on; count the others and the overlap."""
        if self.data.drop_duplicates:
            self._drop("duplicate", self.text.repeats)
        self._drop(HELD_OUT, self.text.rows_of([digest_pair(*pair) for pair in drawn]))
        self.overlap = {name: {"pairs": 0, "source": 0, "target": 0, "examples": []} for name in held_out}
        index, shared = OverlapIndex(held_out), list[int]()
        for rows, *sides in self.text.pairs(self.is_kept & self.text.may_share(index)):
            for row, src, tgt in zip(rows.tolist(), *sides, strict=True):
                src_sets, tgt_sets = index.shares(src, tgt)
                if src_sets or tgt_sets:
                    self._count_overlap(src, tgt, src_sets, tgt_sets)
                    shared.append(row)
        if self.data.remove_overlap:
            self._drop("overlap", np.array(shared, np.int64))
        self._require_kept()

    def _count_overlap(self, src: str, tgt: str, src_sets: list[str], tgt_sets: list[str]) -> None:
        for name in {*src_sets, *tgt_sets}:
            counts = self.overlap[name]
            counts["pairs"] += 1
            counts["source"] += name in src_sets
            counts["target"] += name in tgt_sets
            if len(counts["examples"]) < _EXAMPLES:
                counts["examples"].append([src, tgt])

    def _kept_pairs(self) -> Iterator[Pair]:
        for _, src, tgt in self.text.pairs(self.is_kept):
            yield from zip(src, tgt, strict=True)

    def _tokenise(self) -> Iterator[Pairs]:
        task = partial(tokenise, self.folder, self.data.max_length)
        with bar("tokenising", int(self.is_kept.sum()), "pairs") as advance:
            for pairs, dropped in self.workers.map(task, self.text.pairs(self.is_kept)):
                self._drop("tokens", dropped)
                yield pairs
                advance(len(pairs.lengths) + len(dropped))

    def _drop(self, reason: str, rows: Int64[np.ndarray, " n"]) -> None:
        """Train on none of these pairs; count those that were kept up to now under the reason."""
        rows = rows[self.is_kept[rows]]
        self.is_kept[rows] = False
        of_corpus = np.bincount(np.searchsorted(self._ends, rows, side="right"), minlength=len(self.counts))
        for counts, number in zip(self.counts, of_corpus.tolist(), strict=True):
            counts["kept"] -= number
            counts[reason] += number

    def _require_kept(self) -> None:
        if not any(counts["kept"] for counts in self.counts):
            total = sum(self.counts, Counter[str]())
            hint = ", or set data.remove_overlap=false" if total["overlap"] else ""
            raise UserError(f"no training pair is left after cleaning: {dict(total)}; see the limits under data{hint}")

    def _report(self, validation: dict[str, list[Pair]], tests: dict[str, list[Pair]]) -> dict[str, Any]:
        sizes = {name: len(pairs) for name, pairs in validation.items()}
        files: list[dict[str, int]] = []
        for counts in self.counts:
            drops = {reason: counts[reason] for reason in (*REASONS, HELD_OUT, UNESCAPED) if counts[reason]}
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


def tokenise(
    folder: Path, max_length: int, task: tuple[Int64[np.ndarray, " n"], list[str], list[str]]
) -> tuple[Pairs, Int64[np.ndarray, " m"]]:
    """Return the ids of the pairs with 1 to max_length tokens a side, and the rows of the other pairs.

    A tokenizer of another program may leave no token of a text.
    """
    rows, src, tgt = task
    pairs = encode(folder, src, tgt)
    fits = (pairs.lengths.min(axis=1) > 0) & (pairs.lengths.max(axis=1) <= max_length)
    return Pairs(pairs.ids[np.repeat(fits, pairs.lengths.sum(axis=1))], pairs.lengths[fits]), rows[~fits]


def encode(folder: Path, src: Sequence[str], tgt: Sequence[str]) -> Pairs:
    """Tokenise the sides of normalised pairs with the tokenizers in a folder."""
    both = _load(folder)
    return Pairs.of(*both.encode_pairs(src, tgt), id_type(both.sizes))


_load = lru_cache(maxsize=1)(load_tokenizers)
