"""Readers of every supported file format; pairs are as written, not cleaned."""

import csv
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NoReturn, cast
from xml.parsers import expat

from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig, base_language
from seq2seq.storage.lines import BadLine, Lines, explain_os_error, open_bytes
from seq2seq.text.normalise import replace_surrogates

Pair = tuple[str, str]
Record = Pair | BadLine
_ROWS = 64  # rows of a Parquet file that are read at a time: a cell may have megabytes
_ROW_LINES = 100  # lines of a CSV row; a quote that is open for longer is stray
_CHUNK = 1 << 16  # bytes of a TMX file that are parsed at a time
_BREAK = re.compile(r"(?<=[^\W_])\0+(?=[^\W_])")  # placeholders of TMX between two words
_CODE = frozenset(("bpt", "ept", "it", "ph", "ut"))  # TMX elements that hold markup of the original document


def read_moses(src_path: Path, tgt_path: Path) -> Iterator[Record]:
    """Read two files of parallel lines."""
    src, tgt = Lines(src_path), Lines(tgt_path)
    for src_line, tgt_line in zip_longest(src, tgt):
        if src_line is None or tgt_line is None:
            sizes = [sum(1 for _ in Lines(path)) for path in (src_path, tgt_path)]
            raise UserError(f"{src_path} has {sizes[0]} lines but {tgt_path} has {sizes[1]}: they must be parallel")
        if isinstance(src_line, BadLine):
            yield src_line
        else:
            yield tgt_line if isinstance(tgt_line, BadLine) else (src_line, tgt_line)


def _read_lines(parse: Callable[[str, DataConfig], Pair | None], path: Path, data: DataConfig) -> Iterator[Record]:
    """Read one pair from each line, but none where `parse` returns None."""
    lines = Lines(path)
    for line in lines:
        try:
            record = line if isinstance(line, BadLine) else parse(line, data)
        except UserError as error:
            record = lines.bad(str(error))
        if record is not None:
            yield record


def _read_tsv(path: Path, data: DataConfig) -> Iterator[Record]:
    """Read two columns: those of data.columns, or those of a download of pairs that the first line shows."""
    first = next(iter(Lines(path)), "")
    fields = first.split("\t") if isinstance(first, str) else []
    columns, width = (0, 1), 2
    if data.columns and all(map(str.isdecimal, data.columns)):
        (left, right), width = map(int, data.columns), 0
        columns = left - 1, right - 1
    elif len(fields) == 4 and fields[0].isdecimal() and fields[2].isdecimal():  # of Tatoeba: numbers of the texts
        columns, width = (1, 3), 4
    elif len(fields) == 3 and fields[2].startswith("CC-BY"):  # of manythings.org: licence and authors
        width = 3
    yield from _read_lines(partial(_parse_tsv, columns, width), path, data)


def _parse_tsv(columns: tuple[int, int], width: int, line: str, data: DataConfig) -> Pair:
    """Return two columns of a line with so many columns; 0: with any number."""
    fields = line.split("\t")
    if width not in (0, len(fields)) or not all(0 <= column < len(fields) for column in columns):
        expected = "source<TAB>target, or data.columns=[1,2] for the first two of more"
        expected = f"{width} as in the first line" if width > 2 else expected
        raise UserError(f"has {len(fields)} tab-separated fields, expected {expected}")
    src, tgt = (fields[column] for column in (reversed(columns) if data.is_swapped else columns))
    return src, tgt


def _parse_json(line: str, data: DataConfig) -> Pair | None:
    if not line.strip():
        return None
    try:
        row = json.loads(line, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise UserError(f"is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise UserError("is no JSON object: expected one object a line, such as {'en': …, 'es': …}")
    columns = cast(dict[str, object], row)
    return pick(columns, find_columns(list(columns), data))


def _unique(members: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object; Python's own would keep the last of several values of a key in silence."""
    row = dict(members)
    for key, value in members if len(row) < len(members) else ():
        if value != row[key]:
            raise ValueError(f"the key {key!r:.40} has two values, {value!r:.40} and {row[key]!r:.40}: remove one")
    return row


def _read_csv(path: Path, data: DataConfig) -> Iterator[Record]:
    lines = Lines(path)
    rows = _split_csv(lines)
    header = next(rows, None)
    if header is None:
        return
    if isinstance(header, BadLine):
        raise header.error()
    header = [name.strip() for name in header]
    try:
        columns = find_columns(header, data)
    except UserError as error:
        raise lines.bad(str(error)).error() from error
    yield from (row if isinstance(row, BadLine) else pick(dict(zip(header, row, strict=True)), columns) for row in rows)


def _split_csv(lines: Lines) -> Iterator[list[str] | BadLine]:
    """Yield the fields of the header and of each row with as many fields; a row with a bad line is this line.

    A quote that nothing closes makes one bad line, and the lines that the CSV reader took for its text are read again.
    """
    source, number, width, delimiter = iter(lines), 1, 0, ","
    read, again = list[str | BadLine](), deque[str | BadLine]()  # lines of this row, and lines to read again

    def texts() -> Iterator[str]:
        while len(read) < _ROW_LINES:
            line = again.popleft() if again else next(source, None)
            if line is None:
                return
            read.append(line)
            yield "\n" if isinstance(line, BadLine) else line + "\n"

    while True:
        read.clear()
        reason, row = "", list[str]()
        try:
            row = next(csv.reader(texts(), strict=True, delimiter=delimiter), row)
            if not width and len(row) == 1 and ";" in row[0]:  # as spreadsheets write in countries with decimal commas
                delimiter, row = ";", row[0].split(";")
            if row and len(row) != (width := width or len(row)):
                reason = f"has {len(row)} fields but the header has {width}"
        except csv.Error as error:
            reason = f"is not CSV: {error if len(read) == 1 else 'it opens a field with a quote that nothing closes'}"
        if not read:
            return
        if reason:
            again.extendleft(reversed(read[1:]))
            read[:] = [lines.bad(reason, number)]
        if bad := next((line for line in read if isinstance(line, BadLine)), None):
            yield bad
        elif row:  # no blank line
            yield row
        number += len(read)


def _read_parquet(path: Path, data: DataConfig) -> Iterator[Pair]:
    import pyarrow  # pyright: ignore[reportMissingTypeStubs]
    from pyarrow import parquet  # pyright: ignore[reportMissingTypeStubs]

    arrow_error: type[Exception] = cast(Any, pyarrow).ArrowException
    try:
        with cast(Any, parquet).ParquetFile(path, page_checksum_verification=True) as file:

            def rows(columns: list[str]) -> Iterator[Mapping[str, object]]:
                for batch in file.iter_batches(_ROWS, columns=columns):
                    yield from batch.to_pylist()

            yield from read_rows(path, file.schema_arrow.names, rows, data)
    except (arrow_error, UnicodeDecodeError) as error:
        reason, *_ = str(error).split("\n")
        raise UserError(f"{path} is damaged or no Parquet file: {reason}") from error
    except OSError as error:
        raise explain_os_error(path, error) from error


def _listed(names: Iterable[object]) -> str:
    """Return the names of columns in one line."""
    return ", ".join(" ".join(str(name).split()) for name in names)


Columns = tuple[tuple[str, ...], tuple[str, ...]]  # the keys that lead to the source and to the target text


def find_columns(names: Sequence[str], data: DataConfig) -> Columns:
    """Return the keys of source and target: data.columns, else the languages, else the languages in `translation`."""
    by_language = [data.src_lang, data.tgt_lang]
    if not data.columns and "translation" in names and not set(by_language) <= set(names):
        return ("translation", data.src_lang), ("translation", data.tgt_lang)
    src, tgt = reversed(data.columns) if data.columns and data.is_swapped else data.columns or by_language
    for column in (src, tgt):
        if column not in names:
            listed = _listed(names) or "none"
            raise UserError(f"has no column {column}; it has {listed}: set data.columns=[SOURCE,TARGET]")
        if names.count(column) > 1:
            raise UserError(f"has {names.count(column)} columns called {column}: rename all but one")
    return (src,), (tgt,)


def pick(row: Mapping[str, object], columns: Columns) -> Pair:
    """Return source and target text of a row; null becomes an empty text, which cleaning counts as "empty"."""
    src, tgt = (_text(row, keys) for keys in columns)
    return src, tgt


def read_rows(
    table: object, names: Sequence[str], rows: Callable[[list[str]], Iterable[Mapping[str, object]]], data: DataConfig
) -> Iterator[Pair]:
    """Yield source and target text of each row of a table with these names of columns; `rows` reads some columns."""
    place = f"{table}"
    try:
        columns = find_columns(names, data)
        for number, row in enumerate(rows(list(dict.fromkeys(keys[0] for keys in columns))), start=1):
            place = f"{table}, row {number}"
            yield pick(row, columns)
    except UserError as error:
        raise UserError(f"{place} {error}") from error


def _text(row: Mapping[str, object], keys: tuple[str, ...]) -> str:
    value: Any = row
    for key in keys:
        is_table = isinstance(value, Mapping)
        if not is_table or key not in value:
            content = _listed(value) if is_table else f"{value!r:.40}"
            raise UserError(f"has no {'.'.join(keys)}, found {content}: check data.columns and the languages")
        value = value[key]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UserError(f"has {type(value).__name__} {value!r:.40} in {'.'.join(keys)}, expected text")
    return value if value.isascii() else replace_surrogates(value)  # JSON may name half a character, as "\\ud83d"


def read_tmx(path: Path, data: DataConfig) -> Iterator[Pair]:
    """Yield every unit's source and target text without inline markup; en also matches en-US and other regions.

    A unit without one of the languages is left out. If a unit has several variants in one language, the first counts.
    """
    units, languages = _Units(), (base_language(data.src_lang), base_language(data.tgt_lang))
    with open_bytes(path) as file:
        try:
            while chunk := file.read(_CHUNK):
                units.parser.Parse(chunk)
                yield from units.take(*languages)
            units.parser.Parse(b"", True)
            yield from units.take(*languages)
        except UserError as error:
            raise UserError(f"{path}:{units.parser.CurrentLineNumber} {error}") from error
        except expat.ExpatError as error:
            raise UserError(f"{path}:{error.lineno} is damaged or no XML: {expat.ErrorString(error.code)}") from error
        except (LookupError, ValueError) as error:
            raise UserError(
                f"{path} declares an encoding that cannot be read ({error}): convert it to UTF-8"
            ) from error


class _Units:
    """Collects the units of a TMX file while its bytes are parsed."""

    def __init__(self) -> None:
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.EntityDeclHandler = self._refuse_entity
        self._units: list[dict[str, str]] = []  # complete units: text by language
        self._open: list[str] = []  # names of the open elements
        self._language = ""
        self._parts: list[str] = []  # text of the current segment

    def take(self, src_lang: str, tgt_lang: str) -> Iterator[Pair]:
        """Yield the pairs of the complete units, each once."""
        units, self._units = self._units, []
        for unit in units:
            src, tgt = unit.get(src_lang), unit.get(tgt_lang)
            if src is not None and tgt is not None:
                yield src, tgt

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open and name != "tmx":
            raise UserError(f"begins with <{name}>, expected <tmx>: it is no TMX")
        self._open.append(name)
        if name == "tu":
            self._unit: dict[str, str] = {}
        elif name == "tuv":
            self._language = base_language(attributes.get("xml:lang") or attributes.get("lang") or "")
        elif name == "seg":
            self._parts = []

    def _end(self, name: str) -> None:
        self._open.pop()
        if name == "ph":
            self._parts.append("\0")  # a placeholder is often a line break
        elif name == "seg" and "tu" in self._open:
            text = _BREAK.sub(" ", "".join(self._parts)).replace("\0", "")
            self._unit.setdefault(self._language, " ".join(text.split()))
        elif name == "tu":
            self._units.append(self._unit)

    def _text(self, text: str) -> None:
        if "seg" in self._open and not _CODE.intersection(self._open):
            self._parts.append(text)

    def _refuse_entity(self, name: str, *_: object) -> NoReturn:
        raise UserError(f"declares the entity {name}, which could make a small file huge: take it out")


# ending of a file that holds pairs → its reader, which takes the path and the settings
READERS: dict[str, Callable[..., Iterator[Record]]] = {
    ".tsv": _read_tsv,
    ".csv": _read_csv,
    ".jsonl": partial(_read_lines, _parse_json),
    ".tmx": read_tmx,
    ".parquet": _read_parquet,
}
