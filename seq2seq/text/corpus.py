"""Sentence pairs from files of every supported format, lazily and as written; knows nothing of cleaning.

Formats go by a name's ending: `.tsv` (two fields), `.csv`, `.jsonl` and `.parquet` (named columns), `.tmx` (translation
memories), or two files of parallel lines, `a.en+a.es`. All but Parquet may also end in `.gz` or `.xz`. Patterns such as
`corpora/*.tsv.xz` expand.
"""

import csv
import glob
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path

from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig
from seq2seq.text.lines import Lines, explain_os_error
from seq2seq.text.tmx import read_tmx

Pair = tuple[str, str]
_COMPRESSED = (".gz", ".xz")
_TABLES = (".tsv", ".csv", ".jsonl", ".tmx", ".parquet")
_ROWS = 8192  # of a Parquet file, read at a time


@dataclass(frozen=True)
class Reader:
    """Pairs from some place of a corpus on, and the place behind the last one given.

    A place is a few integers, [] being the beginning: how many records came before, and in files of lines the byte
    offsets of what follows, so that nothing needs to be read again to get there.
    """

    pairs: Iterator[Pair]
    place: Callable[[], list[int]]


Open = Callable[[list[int]], Reader]  # from a place on


@dataclass(frozen=True)
class Corpus:
    """One place that pairs come from: a file, two parallel files, or one split of a hub set."""

    name: str  # from data.root on, for tables and messages
    stem: str  # file name without endings: what a test set is called
    paths: tuple[Path, ...]  # the files whose bytes decide what the pairs are
    open: Open

    def pairs(self) -> Iterator[Pair]:
        """Read the pairs, one after the other.

        Raises:
            UserError: the corpus cannot be read or holds no pair.
        """
        pairs = self.open([]).pairs
        first = next(pairs, None)
        if first is None:
            raise UserError(f"{self.name} is empty: it has no sentence pair")
        return chain([first], pairs)


def read_pairs(spec: str, root: str | None, data: DataConfig) -> Iterator[Pair]:
    """Read all pairs that a spec names.

    Raises:
        UserError: nothing matches spec, or a file is missing, empty or malformed (file and line are named).
    """
    for corpus in open_corpora(spec, root, data):
        yield from corpus.pairs()


def open_corpora(spec: str, root: str | None, data: DataConfig) -> list[Corpus]:
    """Find the files that a spec names, patterns expanded and sorted.

    Raises:
        UserError: nothing matches, a name has an unknown ending, or nothing tells the direction.
    """
    folder = Path(root or "").expanduser()
    for left, right in _moses_splits(spec):
        left_paths, right_paths = _expand(folder, left), _expand(folder, right)
        if left_paths and right_paths:
            return [_moses(*paths, folder, data) for paths in _match(spec, left_paths, right_paths)]
    paths = _expand(folder, spec)
    if paths:
        return [_table(path, folder, data) for path in paths]
    if glob.has_magic(spec):
        raise UserError(f"{folder / spec} matches no file: check the pattern and data.root={root}")
    missing = next((folder / part for part in spec.split("+") if not (folder / part).exists()), folder / spec)
    raise explain_os_error(missing, FileNotFoundError())


def has_two_sides(path: Path) -> bool:
    """Whether a file's ending says that it holds pairs, not one text a line."""
    return _uncompressed(path).suffix in _TABLES


def _moses_splits(spec: str) -> Iterator[tuple[str, str]]:
    """Yield every way to read `a.en+a.es` as two names (a `+` may be part of one)."""
    for i, character in enumerate(spec):
        if character == "+" and 0 < i < len(spec) - 1:
            yield spec[:i], spec[i + 1 :]


def _expand(folder: Path, pattern: str) -> list[Path]:
    path = folder / Path(pattern).expanduser()
    if path.exists() or not glob.has_magic(pattern):
        return [path] if path.exists() else []
    return sorted(Path(match) for match in glob.glob(str(path), recursive=True))


def _match(spec: str, left: list[Path], right: list[Path]) -> list[tuple[Path, Path]]:
    if len(left) != len(right):
        raise UserError(f"{spec} matches {len(left)} source files but {len(right)} target files")
    pairs = list(zip(left, right, strict=True))
    for src, tgt in pairs:
        if len(pairs) > 1 and _uncompressed(src).stem != _uncompressed(tgt).stem:
            raise UserError(f"{spec} would pair {src.name} with {tgt.name}: name the files one by one")
    return pairs


def _moses(src: Path, tgt: Path, folder: Path, data: DataConfig) -> Corpus:
    endings = [_uncompressed(path).suffix.removeprefix(".") for path in (src, tgt)]
    by_endings = sorted(endings) == sorted([data.src_lang, data.tgt_lang])
    if not by_endings:
        _require_order(f"{_shown(src, folder)}+{_shown(tgt, folder)}", "file", data)
    if (endings[0] == data.tgt_lang != data.src_lang) if by_endings else data.is_swapped:
        src, tgt = tgt, src
    name = f"{_shown(src, folder)}+{_shown(tgt, folder)}"
    return Corpus(name, _uncompressed(src).stem, (src, tgt), partial(_open_moses, src, tgt))


def _shown(path: Path, folder: Path) -> str:
    """Name a file as the user would: from data.root if it lies there."""
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def _table(path: Path, folder: Path, data: DataConfig) -> Corpus:
    plain = _uncompressed(path)
    by_lines = {".tsv": _read_tsv, ".csv": _read_csv, ".jsonl": _read_jsonl}
    by_records = {".tmx": _read_tmx, ".parquet": _read_parquet}
    opened: Open | None = None
    if plain.suffix in by_lines:
        opened = partial(_open_lines, by_lines[plain.suffix], path, data)
    elif plain.suffix in by_records:
        opened = partial(open_records, partial(by_records[plain.suffix], path, data))
    if path.is_dir():
        raise explain_os_error(path, IsADirectoryError())
    if opened is None or (plain.suffix == ".parquet" and plain != path):
        raise UserError(
            f"{path} has an unknown ending: "
            "expected .tsv, .csv, .jsonl or .tmx (also .gz, .xz), .parquet, or a pair a.en+a.es"
        )
    if plain.suffix == ".tsv":
        _require_order(str(path), "column", data)
    return Corpus(_shown(path, folder), plain.stem, (path,), opened)


def _require_order(name: str, part: str, data: DataConfig) -> None:
    """Refuse a corpus of which nothing tells which side is the source, unless the languages are the default ones.

    Somebody who trains Spanish to English on an English–Spanish TSV would else get a model of the wrong direction.
    """
    src, tgt = data.src_lang, data.tgt_lang
    if not data.languages and (src, tgt) != (DataConfig.src_lang, DataConfig.tgt_lang):
        raise UserError(
            f"{name} does not tell which {part} is {src}: give the languages in the order of the {part}s, "
            f"data.languages=[{tgt},{src}] or [{src},{tgt}] (in distill and backtranslate: --languages {tgt},{src})"
        )


def _uncompressed(path: Path) -> Path:
    return path.with_suffix("") if path.suffix in _COMPRESSED else path


def _open_moses(src_path: Path, tgt_path: Path, place: list[int]) -> Reader:
    number, src_offset, tgt_offset = place or (0, 0, 0)
    src, tgt = Lines(src_path, number, src_offset), Lines(tgt_path, number, tgt_offset)
    return Reader(_read_moses(src, tgt), lambda: [src.number, src.offset, tgt.offset])


def _read_moses(src: Lines, tgt: Lines) -> Iterator[Pair]:
    for src_line, tgt_line in zip_longest(src, tgt):
        if src_line is None or tgt_line is None:
            for longer in (src, tgt):
                longer.number += sum(1 for _ in Lines(longer.path, longer.number, longer.offset))
            raise UserError(f"{src.path} has {src.number} lines but {tgt.path} has {tgt.number}: they must be parallel")
        yield src_line, tgt_line


def _open_lines(
    read: Callable[[Lines, DataConfig], Iterator[Pair]], path: Path, data: DataConfig, place: list[int]
) -> Reader:
    number, offset = place or (0, 0)
    lines = Lines(path, number, offset)
    return Reader(read(lines, data), lambda: [lines.number, lines.offset])


def _read_tsv(lines: Lines, data: DataConfig) -> Iterator[Pair]:
    for line in lines:
        src, tab, tgt = line.partition("\t")
        if not tab or "\t" in tgt:
            fields = line.count("\t") + 1
            where = f"{lines.path}:{lines.number}"
            raise UserError(f"{where} has {fields} tab-separated fields, expected 2: source<TAB>target")
        yield (tgt, src) if data.is_swapped else (src, tgt)


def _read_csv(lines: Lines, data: DataConfig) -> Iterator[Pair]:
    resumed = lines.offset > 0
    try:
        header = next(
            csv.reader((line + "\n" for line in (Lines(lines.path) if resumed else lines)), strict=True), None
        )
        if header is None:
            return
        columns = find_columns(header, data, str(lines.path))
        for row in csv.reader((line + "\n" for line in lines), strict=True):
            where = f"{lines.path}:{lines.number}"
            if len(row) != len(header):
                raise UserError(f"{where} has {len(row)} fields but the header has {len(header)}")
            yield pick(dict(zip(header, row, strict=True)), columns, where)
    except csv.Error as error:
        raise UserError(f"{lines.path}:{lines.number} is not CSV: {error}") from error


def _read_jsonl(lines: Lines, data: DataConfig) -> Iterator[Pair]:
    for line in lines:
        where = f"{lines.path}:{lines.number}"
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise UserError(f"{where} is no JSON object: expected one object a line, such as {{'en': …, 'es': …}}")
        yield pick(row, find_columns(list(row), data, where), where)


def open_records(read: Callable[[int], Iterator[Pair]], place: list[int]) -> Reader:
    """Read what has no lines to go to from a record on, given a function that skips so many."""
    done = [*place] or [0]

    def count() -> Iterator[Pair]:
        for pair in read(done[0]):
            done[0] += 1
            yield pair

    return Reader(count(), lambda: [*done])


def _read_tmx(path: Path, data: DataConfig, skipped: int) -> Iterator[Pair]:
    return islice(read_tmx(path, data.src_lang, data.tgt_lang), skipped, None)


def _read_parquet(path: Path, data: DataConfig, skipped: int) -> Iterator[Pair]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            columns = find_columns(file.schema_arrow.names, data, str(path))
            group, row = 0, 0  # row group to begin with, and rows before it
            while group < file.num_row_groups and row + file.metadata.row_group(group).num_rows <= skipped:
                row += file.metadata.row_group(group).num_rows
                group += 1
            names = list(dict.fromkeys(keys[0] for keys in columns))
            groups = range(group, file.num_row_groups)
            for batch in file.iter_batches(_ROWS, row_groups=groups, columns=names) if groups else ():
                begin = min(max(skipped - row, 0), batch.num_rows)
                for number, values in enumerate(batch.slice(begin).to_pylist(), start=row + begin + 1):
                    yield pick(values, columns, f"{path}, row {number}")
                row += batch.num_rows
    except (pa.ArrowException, UnicodeDecodeError) as error:
        reason, *_ = str(error).split("\n")
        raise UserError(f"{path} is damaged or no Parquet file: {reason}") from error
    except OSError as error:
        raise explain_os_error(path, error) from error


def _listed(names: Iterable[object]) -> str:
    """Name columns in one line."""
    return ", ".join(" ".join(str(name).split()) for name in names)


Columns = tuple[tuple[str, ...], tuple[str, ...]]  # the keys that lead to the source and to the target text


def find_columns(names: Sequence[str], data: DataConfig, where: str) -> Columns:
    """Tell which columns hold source and target: data.columns, else by language, else `translation` by language.

    Raises:
        UserError: such columns are not among names.
    """
    by_language = [data.src_lang, data.tgt_lang]
    if not data.columns and "translation" in names and not set(by_language) <= set(names):
        return ("translation", data.src_lang), ("translation", data.tgt_lang)
    src, tgt = reversed(data.columns) if data.columns and data.is_swapped else data.columns or by_language
    for column in (src, tgt):
        if column not in names:
            found = _listed(names) or "none"
            raise UserError(f"{where} has no column {column}; it has {found}: set data.columns=[SOURCE,TARGET]")
    return (src,), (tgt,)


def pick(row: Mapping[str, object], columns: Columns, where: str) -> Pair:
    """Take source and target text out of a row; null becomes the empty text, which cleaning counts.

    Raises:
        UserError: a value is missing or no text.
    """
    src, tgt = (_text(row, keys, where) for keys in columns)
    return src, tgt


def _text(row: Mapping[str, object], keys: tuple[str, ...], where: str) -> str:
    value: object = row
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            found = _listed(value) if isinstance(value, Mapping) else repr(value)
            raise UserError(f"{where} has no {'.'.join(keys)}, found {found}: check data.columns and the languages")
        value = value[key]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UserError(f"{where} has {type(value).__name__} {value!r:.40} in {'.'.join(keys)}, expected text")
    return value
