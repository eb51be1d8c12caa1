"""The way of training text from corpora to Arrow: clean, hold out, remove overlap, learn the vocabulary, tokenise.

Training text is streamed through files and never held in memory; validation and test sets are. Knows no cache.
"""

import json
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from seq2seq.config import DataConfig, TokenizerConfig
from seq2seq.errors import UserError
from seq2seq.text.arrow import TokenWriter
from seq2seq.text.corpus import Corpus, Pair
from seq2seq.text.filters import HELD_OUT, Cleaner
from seq2seq.text.normalise import normalise, one_line
from seq2seq.text.tokenizer import Tokenizer, make_tokenizer

logger = logging.getLogger(__name__)
T = TypeVar("T")
_CHUNK = 10_000  # pairs tokenised at a time


@runtime_checkable
class OverlapCounter(Protocol):
    """Told every training pair, says whether it shares a side with a held-out set (evaluation's OverlapIndex)."""

    def shares(self, src: str, tgt: str) -> bool:
        """Check and count one training pair."""
        ...

    def report(self) -> dict[str, dict[str, Any]]:
        """Give the counts per held-out set."""
        ...


IndexOverlap = Callable[[Mapping[str, Iterable[Pair]]], OverlapCounter]


class Pipeline:
    """One run of the pipeline, in a folder of its own; `counts` has what became of the pairs of each training file."""

    def __init__(self, folder: Path, data: DataConfig, splits: dict[str, list[Corpus]]) -> None:
        self.folder, self.data, self.splits = folder, data, splits
        self.counts: list[Counter[str]] = [Counter() for _ in splits["train"]]

    def run(
        self,
        tokenizer_config: TokenizerConfig,
        seed: int,
        index_overlap: IndexOverlap,
    ) -> None:
        """Write all files that `_load` reads."""
        validation = self._read_validation()
        tests = self._read_tests()
        pool, text = self.folder / "pool.tsv", self.folder / "train.tsv"
        self._clean(pool)
        held_out = self._hold_out(pool, seed, validation is None, not tests)
        validation = held_out.get("validation", validation) or []
        tests = {"held_out": held_out["test"]} if "test" in held_out else tests
        overlap = index_overlap({"validation": validation, **tests})
        self._remove_overlap(pool, text, overlap)
        pool.unlink()
        logger.info("%s the tokenizer", "training" if tokenizer_config.model is None else "loading")
        tokenizer = make_tokenizer((side for _, pair in _read_draft(text) for side in pair), tokenizer_config)
        (self.folder / "tokenizer.model").write_bytes(tokenizer.model_bytes)
        self._tokenise_training(text, tokenizer)
        text.unlink()
        with TokenWriter(self.folder / "validation.arrow") as writer:
            for chunk in _chunks(validation):
                writer.write(*_encode(tokenizer, chunk))
        self._write_json("texts.json", {"validation": validation, "tests": tests})
        self._write_json("report.json", self._report(overlap, len(validation), tests))

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

    def _clean(self, pool: Path) -> None:
        cleaner = Cleaner(self.data)
        with pool.open("w", encoding="utf-8", newline="\n") as file:
            for number, (corpus, counts) in enumerate(zip(self.splits["train"], self.counts, strict=True)):
                logger.info("cleaning %s", corpus.name)
                file.writelines(f"{number}\t{src}\t{tgt}\n" for src, tgt in cleaner.clean(corpus.pairs(), counts))
        self._require_kept()

    def _hold_out(self, pool: Path, seed: int, validation: bool, test: bool) -> dict[str, list[Pair]]:
        """Draw the splits that were not given out of the pool, which is rewritten without them."""
        names = [name for name, wanted in (("validation", validation), ("test", test)) if wanted]
        total, size = sum(counts["kept"] for counts in self.counts), self.data.held_out
        if 2 * size * len(names) > total:
            raise UserError(
                f"data.held_out={size} for {' and '.join(names)} takes more than half of {total} training pairs: "
                f"lower it, or give data.{names[0]}"
            )
        drawn = random.Random(seed).sample(range(total), size * len(names))
        owner = {row: names[i // size] for i, row in enumerate(drawn)}
        held_out: dict[str, list[Pair]] = {name: [] for name in names}
        if names:
            rest = pool.with_name("rest.tsv")
            with rest.open("w", encoding="utf-8", newline="\n") as file:
                for row, (number, pair) in enumerate(_read_draft(pool)):
                    if row in owner:
                        held_out[owner[row]].append(pair)
                        self._drop(number, HELD_OUT)
                    else:
                        file.write(f"{number}\t{pair[0]}\t{pair[1]}\n")
            rest.replace(pool)
        return held_out

    def _remove_overlap(self, pool: Path, text: Path, overlap: OverlapCounter) -> None:
        with text.open("w", encoding="utf-8", newline="\n") as file:
            for number, (src, tgt) in _read_draft(pool):
                if overlap.shares(src, tgt) and self.data.remove_overlap:
                    self._drop(number, "overlap")
                else:
                    file.write(f"{number}\t{src}\t{tgt}\n")
        self._require_kept()

    def _tokenise_training(self, text: Path, tokenizer: Tokenizer) -> None:
        with TokenWriter(self.folder / "train.arrow") as writer:
            for chunk in _chunks(_read_draft(text)):
                kept: tuple[list[list[int]], list[list[int]]] = [], []
                for (number, _), src, tgt in zip(chunk, *_encode(tokenizer, [pair for _, pair in chunk]), strict=True):
                    if max(len(src), len(tgt)) > self.data.max_length:
                        self._drop(number, "tokens")
                    else:
                        kept[0].append(src)
                        kept[1].append(tgt)
                writer.write(*kept)
        self._require_kept()

    def _drop(self, number: int, reason: str) -> None:
        self.counts[number]["kept"] -= 1
        self.counts[number][reason] += 1

    def _require_kept(self) -> None:
        if not any(counts["kept"] for counts in self.counts):
            total = sum(self.counts, Counter())
            raise UserError(f"no training pair is left after cleaning: {dict(total)}; see the limits under data")

    def _report(self, overlap: OverlapCounter, validation_size: int, tests: dict[str, list[Pair]]) -> dict[str, Any]:
        names = (corpus.name for corpus in self.splits["train"])
        return {
            "files": [{"name": name, **counts} for name, counts in zip(names, self.counts, strict=True)],
            "overlap": {"removed": self.data.remove_overlap, "sets": overlap.report()},
            "sizes": {
                "train": sum(counts["kept"] for counts in self.counts),
                "validation": validation_size,
                "tests": {name: len(pairs) for name, pairs in tests.items()},
            },
        }

    def _write_json(self, name: str, value: object) -> None:
        (self.folder / name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def _read_draft(path: Path) -> Iterator[tuple[int, Pair]]:
    """Read back intermediate text: the number of the training file and the pair."""
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            number, src, tgt = line.rstrip("\n").split("\t")
            yield int(number), (src, tgt)


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk


def _encode(tokenizer: Tokenizer, pairs: list[Pair]) -> tuple[list[list[int]], list[list[int]]]:
    return tokenizer.encode([src for src, _ in pairs]), tokenizer.encode([tgt for _, tgt in pairs])
