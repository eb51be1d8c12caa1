"""Readers of every supported file format; pairs are as written, not cleaned."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig
from seq2seq.text.lines import DAMAGED, Lines, explain_os_error, open_bytes

Pair = tuple[str, str]
COMPRESSED = (".gz", ".xz")
_ROWS = 8192  # rows of a Parquet file that are read at a time
_CHUNK = 1 << 16  # bytes of a TMX file that are parsed at a time
_CODE = frozenset(("bpt", "ept", "it", "ph", "ut"))  # TMX elements that hold markup of the original document


def read_moses(src_path: Path, tgt_path: Path) -> Iterator[Pair]:
    """Read two files of parallel lines."""
    src, tgt = Lines(src_path), Lines(tgt_path)
    for src_line, tgt_line in zip_longest(src, tgt):
        if src_line is None or tgt_line is None:
            sizes = [sum(1 for _ in Lines(path)) for path in (src_path, tgt_path)]
            raise UserError(f"{src_path} has {sizes[0]} lines but {tgt_path} has {sizes[1]}: they must be parallel")
        yield src_line, tgt_line


def read_table(path: Path, ending: str, data: DataConfig) -> Iterator[Pair]:
    """Read a file of pairs of the format that an ending of TABLES names."""
    return _READERS[ending](path, data)


def _read_tsv(path: Path, data: DataConfig) -> Iterator[Pair]:
    lines = Lines(path)
    for line in lines:
        src, tab, tgt = line.partition("\t")
        if not tab or "\t" in tgt:
            fields = line.count("\t") + 1
            where = f"{lines.path}:{lines.number}"
            raise UserError(f"{where} has {fields} tab-separated fields, expected 2: source<TAB>target")
        yield (tgt, src) if data.is_swapped else (src, tgt)


def _read_csv(path: Path, data: DataConfig) -> Iterator[Pair]:
    lines = Lines(path)
    rows = csv.reader((line + "\n" for line in lines), strict=True)
    try:
        header = next(rows, None)
        if header is None:
            return
        columns = find_columns(header, data, str(lines.path))
        for row in rows:
            where = f"{lines.path}:{lines.number}"
            if len(row) != len(header):
                raise UserError(f"{where} has {len(row)} fields but the header has {len(header)}")
            yield pick(dict(zip(header, row, strict=True)), columns, where)
    except csv.Error as error:
        raise UserError(f"{lines.path}:{lines.number} is not CSV: {error}") from error


def _read_jsonl(path: Path, data: DataConfig) -> Iterator[Pair]:
    lines = Lines(path)
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


def _read_tmx(path: Path, data: DataConfig) -> Iterator[Pair]:
    return read_tmx(path, data.src_lang, data.tgt_lang)


def _read_parquet(path: Path, data: DataConfig) -> Iterator[Pair]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            columns = find_columns(file.schema_arrow.names, data, str(path))
            names, number = list(dict.fromkeys(keys[0] for keys in columns)), 0
            for batch in file.iter_batches(_ROWS, columns=names):
                for values in batch.to_pylist():
                    number += 1
                    yield pick(values, columns, f"{path}, row {number}")
    except (pa.ArrowException, UnicodeDecodeError) as error:
        reason, *_ = str(error).split("\n")
        raise UserError(f"{path} is damaged or no Parquet file: {reason}") from error
    except OSError as error:
        raise explain_os_error(path, error) from error


def _listed(names: Iterable[object]) -> str:
    """Return the names of columns in one line."""
    return ", ".join(" ".join(str(name).split()) for name in names)


Columns = tuple[tuple[str, ...], tuple[str, ...]]  # the keys that lead to the source and to the target text


def find_columns(names: Sequence[str], data: DataConfig, where: str) -> Columns:
    """Return the keys of source and target: data.columns, else the languages, else the languages in `translation`.

    Raises:
        UserError: one of the columns is not among names.
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
    """Return source and target text of a row; null becomes an empty text, which cleaning counts as "empty".

    Raises:
        UserError: a value is missing or is not text.
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


def read_tmx(path: Path, src_lang: str, tgt_lang: str) -> Iterator[tuple[str, str]]:
    """Yield every unit's source and target text without inline markup; en also matches en-US and other regions.

    A unit without one of the languages is left out. If a unit has several variants in one language, the first counts.

    Raises:
        UserError: the file cannot be read, is no TMX or damaged, or declares entities.
    """
    units = _Units()
    try:
        with open_bytes(path) as file:
            while chunk := file.read(_CHUNK):
                units.parser.Parse(chunk)
                yield from units.take(src_lang, tgt_lang)
            units.parser.Parse(b"", True)
            yield from units.take(src_lang, tgt_lang)
    except UserError as error:
        raise UserError(f"{path}:{units.parser.CurrentLineNumber} {error}") from error
    except expat.ExpatError as error:
        raise UserError(f"{path}:{error.lineno} is damaged or no XML: {expat.ErrorString(error.code)}") from error
    except (LookupError, ValueError) as error:
        raise UserError(f"{path} declares an encoding that cannot be read ({error}): convert it to UTF-8") from error
    except DAMAGED as error:
        kind = path.suffix.removeprefix(".")
        raise UserError(f"{path} is damaged or no {kind} data ({error}): fetch it again or rename it") from error
    except OSError as error:
        raise explain_os_error(path, error) from error


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

    def take(self, src_lang: str, tgt_lang: str) -> Iterator[tuple[str, str]]:
        """Yield the pairs of the complete units, each once."""
        units, self._units = self._units, []
        for unit in units:
            src, tgt = unit.get(_base_language(src_lang)), unit.get(_base_language(tgt_lang))
            if src is not None and tgt is not None:
                yield src, tgt

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open and name != "tmx":
            raise UserError(f"begins with <{name}>, expected <tmx>: it is no TMX")
        self._open.append(name)
        if name == "tu":
            self._unit: dict[str, str] = {}
        elif name == "tuv":
            self._language = _base_language(attributes.get("xml:lang") or attributes.get("lang") or "")
        elif name == "seg":
            self._parts = []

    def _end(self, name: str) -> None:
        self._open.pop()
        if name == "seg" and "tu" in self._open:
            self._unit.setdefault(self._language, " ".join("".join(self._parts).split()))
        elif name == "tu":
            self._units.append(self._unit)

    def _text(self, text: str) -> None:
        if "seg" in self._open and not _CODE.intersection(self._open):
            self._parts.append(text)

    def _refuse_entity(self, name: str, *_: object) -> NoReturn:
        raise UserError(f"declares the entity {name}, which could make a small file huge: take it out")


def _base_language(language: str) -> str:
    return language.lower().replace("_", "-").split("-")[0]


_READERS: dict[str, Callable[[Path, DataConfig], Iterator[Pair]]] = {
    ".tsv": _read_tsv,
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    ".tmx": _read_tmx,
    ".parquet": _read_parquet,
}
TABLES = tuple(_READERS)  # endings of files that hold pairs
