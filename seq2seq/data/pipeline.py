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
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64

from seq2seq.data.clean import HELD_OUT, REASONS, UNESCAPED, OverlapIndex, digest_pair
from seq2seq.data.cleaned import CleanedText, distinct, write_cleaned
from seq2seq.data.corpus import Corpus, Pair, naming_keys, open_splits
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
_DRAWN = {"validation": "validation", "test": "held_out"}  # split → name of its set if none is given
_EXAMPLES = 3  # overlapping pairs that the report shows for each held-out set
Sets = dict[str, list[Pair]]  # held-out pairs by the name of their set


class Draw(NamedTuple):
    """Held-out sets that are drawn from training pairs."""

    corpus: int | None  # the index of the training corpus whose pairs they are; None: of all corpora
    names: dict[str, str]  # split → name of its set


@dataclass(frozen=True)
class Splits:
    """What a preparation reads, and what it holds out.

    Attributes:
        train, validation, test: the corpora of each split.
        validation_names, test_names: names of the sets of the given corpora, followed by those
            that are drawn from the corpora of data.held_out_from.
        draws: the sets that are drawn.
    """

    train: list[Corpus]
    validation: list[Corpus]
    test: list[Corpus]
    validation_names: list[str]
    test_names: list[str]
    draws: list[Draw]

    @property
    def corpora(self) -> list[Corpus]:
        """All corpora."""
        return [*self.train, *self.validation, *self.test]


def find_splits(data: DataConfig) -> Splits:
    """Open the corpora that the settings name, and name the held-out sets after their files.

    Each corpus of data.held_out_from gives two sets. Without data.held_out_from, the splits without a given set are
    drawn from all corpora together.
    """
    splits = open_splits(data)
    keys = naming_keys("data.held_out_from", data.held_out_from, [corpus.name for corpus in splits["train"]])
    sources = [index for index, key in enumerate(keys) if key is not None]
    held_out = [splits["train"][index] for index in sources]
    validation = _name_sets("validation", [*splits["validation"], *held_out])
    tests = _name_sets("test", [*splits["test"], *held_out])
    for name in tests:
        if name.endswith(_ENDINGS):
            raise UserError(
                f"data.test has a set called {name}, whose files would be taken for those of "
                f"{name.rpartition('.')[0]}: rename its file, without {name[name.rindex('.') :]}"
            )
    names = zip(validation[len(splits["validation"]) :], tests[len(splits["test"]) :], strict=True)
    draws = [Draw(source, {"validation": a, "test": b}) for source, (a, b) in zip(sources, names, strict=True)]
    missing = {split: name for split, name in _DRAWN.items() if not splits[split]}
    if missing and not draws:
        draws = [Draw(None, missing)]
    return Splits(splits["train"], splits["validation"], splits["test"], validation, tests, draws)


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
        sets = {"validation": self._read_validation(), "test": self._read_tests()}
        with TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as work:
            self._clean(Path(work) / "text.arrow")
            drawn = [pair for draw in self.splits.draws for pair in self._hold_out(draw, sets)]
            validation, tests = list(chain.from_iterable(sets["validation"].values())), sets["test"]
            self._select(validation, tests, drawn)
            size = rules.vocab_size(int(self.is_kept.sum()))
            with phase(f"{'training' if tokenizer_config.model is None else 'loading'} the tokenizer"):
                write_files(self.folder, learn_tokenizers(self._kept_pairs, tokenizer_config, size))
            write_pairs(self.folder / "train", self._tokenise())
            del self.text  # NFS keeps a file that is mapped, and then its folder
        self._require_kept()
        write_pairs(self.folder / "validation", [encode(self.folder, *zip(*validation, strict=True))])
        write_json(self.folder / TEXTS, {"validation": validation, "tests": tests})
        write_json(self.folder / REPORT, self._report(sets["validation"], tests))

    def _read_validation(self) -> Sets:
        sets: Sets = {}
        for name, corpus in zip(self.splits.validation_names, self.splits.validation, strict=False):  # then drawn sets
            read = check_sides(corpus.pairs(), corpus.name, self.data)
            pairs = [(normalise(src), normalise(tgt)) for src, tgt in read]
            sets[name] = [(src, tgt) for src, tgt in pairs if src and tgt]
            if not sets[name]:
                raise UserError(f"{corpus.name} has no pair with text on both sides: it cannot serve as validation")
        return sets

    def _read_tests(self) -> Sets:
        sets: Sets = {}
        for name, corpus in zip(self.splits.test_names, self.splits.test, strict=False):
            read = check_sides(corpus.pairs(), corpus.name, self.data)
            sets[name] = [(one_line(src), one_line(tgt)) for src, tgt in read]
        return sets

    def _clean(self, path: Path) -> None:
        self.counts = write_cleaned(path, self.splits.train, self.data, self.workers)
        for corpus, counts in zip(self.splits.train, self.counts, strict=True):
            if not counts["read"]:
                raise UserError(f"{corpus.name} is empty: it has no sentence pair")
        self._require_kept()
        self.text = CleanedText(path)
        self.digests = self.text.column("digest")
        self.is_kept = np.ones(len(self.text), bool)
        self._ends = np.cumsum([counts["kept"] for counts in self.counts])  # of the corpora, in rows

    def _hold_out(self, draw: Draw, sets: Mapping[str, Sets]) -> list[Pair]:
        """Draw sets of data.held_out different pairs each, add them to the sets by split, and return their pairs.

        They are the pairs with the smallest digests (validation) or the largest (test), in the order of the digests. A
        digest is uniform and depends on its pair alone, so the drawn pairs do not depend on the order of files, on
        other corpora or on a seed, and runs with different seeds have the same test set. If text is added, a pair
        leaves a drawn set only for a new pair with a smaller or larger digest. The digests need no salt: nothing else
        in preparation sorts text by them.

        With data.remove_overlap, a drawn pair shares no side with a pair of another set.
        """
        start, end, of, advice = 0, len(self.text), "", f"give data.{next(iter(draw.names))}"
        if draw.corpus is not None:
            start, end = self._ends[draw.corpus] - self.counts[draw.corpus]["kept"], self._ends[draw.corpus]
            name = self.splits.train[draw.corpus].name
            of, advice = f" of {name}", f"leave {name} out of data.held_out_from"
        rows, drawn = start + distinct(self.digests[start:end]), list[Pair]()
        size = rules.held_out(len(rows)) if self.data.held_out == rules.AUTO else self.data.held_out
        if 2 * size * len(draw.names) > len(rows):
            raise UserError(
                f"data.held_out={size} for {' and '.join(draw.names)} takes more than half of {len(rows)} "
                f"training pairs{of}: lower it, or {advice}"
            )
        for split, name in draw.names.items():
            others = chain.from_iterable(chain(*(of_split.values() for of_split in sets.values())))
            taken = OverlapIndex({"others": others if self.data.remove_overlap else ()})
            pairs = self.text.pairs_at(rows if split == "validation" else rows[::-1])
            free = list(islice((pair for pair in pairs if not any(taken.shares(*pair))), size))
            if len(free) < size:
                raise UserError(
                    f"data.held_out={size}: only {len(free)} training pairs{of} share no side with another held-out "
                    f"set: lower it, {advice}, or set data.remove_overlap=false"
                )
            sets[split][name] = free if split == "validation" else free[::-1]
            drawn += free
        return drawn

    def _select(self, validation: list[Pair], tests: Sets, drawn: list[Pair]) -> None:
        """Choose the pairs to train on; count the others and the overlap."""
        name = "validation"
        while name in tests:
            name += "*"
        held_out = {name: validation, **tests}
        if self.data.drop_duplicates:
            self._drop("duplicate", np.delete(np.arange(len(self.text)), distinct(self.digests)))
        digests = np.array([digest_pair(*pair) for pair in drawn], np.uint64)
        self._drop(HELD_OUT, np.flatnonzero(np.isin(self.digests, digests)))
        self.overlap = {name: {"pairs": 0, "source": 0, "target": 0, "examples": []} for name in held_out}
        index, shared = OverlapIndex(held_out), list[int]()
        columns = zip(("src_key", "tgt_key"), index.keys, strict=True)
        has_key = [np.isin(self.text.column(name), np.array(keys, np.uint32)) for name, keys in columns]
        for rows, *sides in self.text.pairs(self.is_kept & (has_key[0] | has_key[1])):
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
