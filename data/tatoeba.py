"""Write train.tsv, validation.tsv and test.tsv from Tatoeba's export and the Tatoeba Challenge's test set."""

import argparse
import bz2
import hashlib
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

VALIDATION_PAIRS = 1464

Pair = tuple[str, str]


def read_lines(path: Path) -> Iterator[str]:
    """Yield a UTF-8 file's lines in NFC; a file with the suffix .bz2 is decompressed.

    Raises:
        ValueError: the file cannot be read, or is damaged; the message names the file.
    """
    opened = bz2.open if path.suffix == ".bz2" else open
    try:
        with opened(path, "rt", encoding="utf-8", newline="\n") as file:
            for line in file:
                yield unicodedata.normalize("NFC", line.rstrip("\r\n"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text") from error
    except (EOFError, OSError) as error:
        raise ValueError(f"{path} cannot be read ({error})") from error


def read_export(sources: Path, targets: Path, links: Path) -> list[Pair]:
    """Return the pairs of sentences (id, language, text) that links (id, id) join, without duplicates.

    The order depends only on the texts: pairs are sorted by their SHA-256 digest.

    Raises:
        ValueError: a line has too few columns, or no link joins a source sentence to a target sentence.
    """
    texts = [{cells[0]: cells[2] for cells in _rows(path, 3)} for path in (sources, targets)]
    found = {
        (texts[0][source], texts[1][target])
        for source, target, *_ in _rows(links, 2)
        if source in texts[0] and target in texts[1]
    }
    if not found:
        raise ValueError(f"{links} links no sentence of {sources} to one of {targets}")
    return sorted(found, key=lambda pair: hashlib.sha256("\t".join(pair).encode()).digest())


def read_parallel(source: Path, target: Path) -> list[Pair]:
    """Return the pairs of lines of two files, whose lines are translations of each other.

    Raises:
        ValueError: the files have no or the same lines, different numbers of lines, or a tab.
    """
    sources, targets = list(read_lines(source)), list(read_lines(target))
    if not sources or sources == targets:  # a failed download leaves the same message in both files
        raise ValueError(f"{source} and {target} have no translations")
    if len(sources) != len(targets):
        raise ValueError(f"{source} has {len(sources):,} lines and {target} has {len(targets):,}")
    for path, lines in ((source, sources), (target, targets)):
        if any("\t" in line for line in lines):
            raise ValueError(f"{path} has a line with a tab, which separates the columns of test.tsv")
    return list(zip(sources, targets, strict=True))


def split(pairs: Sequence[Pair], test: Sequence[Pair], validation: int) -> tuple[list[Pair], list[Pair]]:
    """Return training and validation pairs; no sentence is in more than one of training, validation and test pairs."""
    free = _without_sides_of(test, pairs)
    held_out = free[:validation]
    return _without_sides_of(held_out, free[validation:]), held_out


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the files, split the pairs and write them; without arguments, as the command line says."""
    parser = argparse.ArgumentParser(prog="python data/tatoeba.py", description=__doc__)
    parser.add_argument("--sentences", type=Path, nargs=2, required=True, metavar=("ENGLISH", "SPANISH"))
    parser.add_argument("--links", type=Path, required=True)
    parser.add_argument("--test", type=Path, nargs=2, required=True, metavar=("ENGLISH", "SPANISH"))
    parser.add_argument("--validation-pairs", type=_count, default=VALIDATION_PAIRS, metavar="N")
    parser.add_argument("--output", type=Path, required=True, help="folder for the three files")
    options = parser.parse_args(arguments)
    try:
        test = read_parallel(*options.test)
        pairs = read_export(options.sentences[0], options.sentences[1], options.links)
        train, validation = split(pairs, test, options.validation_pairs)
        if not train:
            raise ValueError(f"no pair of {options.links} is left to train on")
        options.output.mkdir(parents=True, exist_ok=True)
        for name, part in (("train", train), ("validation", validation), ("test", test)):
            path = options.output / f"{name}.tsv"
            text = "".join(f"{source}\t{target}\n" for source, target in part)
            path.write_text(text, encoding="utf-8", newline="\n")
            sys.stdout.write(f"{path}: {len(part):,} pairs\n")
    except (OSError, ValueError) as error:
        parser.error(f"{error}: give the files as data/README.md says")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is no number of pairs")
    return int(text)


def _rows(path: Path, columns: int) -> Iterator[list[str]]:
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.split("\t")
        if len(cells) < columns:
            raise ValueError(f"{path}, line {number} has {len(cells)} columns instead of {columns}")
        yield cells


def _without_sides_of(others: Sequence[Pair], pairs: Sequence[Pair]) -> list[Pair]:
    sources, targets = {source for source, _ in others}, {target for _, target in others}
    return [(source, target) for source, target in pairs if source not in sources and target not in targets]


if __name__ == "__main__":
    main()
