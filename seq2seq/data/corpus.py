"""Training corpora and test sets: files of every supported format, and sets of the Hugging Face hub.

The ending of a file's name determines its format: `.tsv` (two fields), `.csv`, `.jsonl` and `.parquet` (named columns),
`.tmx` (translation memories), or two files of parallel lines, `a.en+a.es`. All files but Parquet may also end in `.gz`
or `.xz`. Patterns such as `corpora/*.tsv.xz` are expanded, also of addresses such as `s3://bucket/corpora/*.tsv.xz`.
"""

import errno
import glob
import hashlib
import logging
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, TypeVar, cast

from filelock import FileLock

from seq2seq.data.formats import READERS, Pair, Record, read_moses, read_rows
from seq2seq.errors import UserError, shorten
from seq2seq.settings.data import SPLITS, DataConfig, cache_root, expand_user
from seq2seq.storage.lines import COMPRESSED, explain_os_error, refuse_bad_lines

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")
logger = logging.getLogger(__name__)
AnyPath = TypeVar("AnyPath", bound=PurePath)
File = tuple[Path, str]  # a file, and its name: relative to data.root, for tables and messages
_ROWS = 100  # rows of a hub set that are converted to Python at a time


def is_address(path: str) -> bool:
    """Return whether a path is an address such as s3://bucket/a.tsv."""
    return _ADDRESS.match(path) is not None


@cache
def fetch(address: str, folder: Path) -> list[tuple[Path, str]]:
    """Return a copy in the folder, and the address, of each file of an address or pattern; none if nothing is there.

    A copy is made anew if the file has changed. A process asks once.
    """
    import fsspec  # pyright: ignore[reportMissingTypeStubs]

    logger.info("loading %s", address)
    found = list[tuple[Path, str]]()
    try:
        system, pattern = cast(Any, fsspec).core.url_to_fs(address)
        is_pattern = re.search(r"[*\[]", pattern) is not None
        for path in sorted(system.glob(pattern)) if is_pattern else [pattern] * system.exists(pattern):
            file = system.unstrip_protocol(path)
            digest = hashlib.blake2b(file.rpartition("/")[0].encode(), digest_size=8).hexdigest()
            copies = {"cache_storage": str(folder / "remote" / digest), "same_names": True, "check_files": True}
            with FileLock(f"{copies['cache_storage']}.lock"):  # fsspec writes a copy in place
                found.append((Path(cast(Any, fsspec).open_local(f"filecache::{file}", filecache=copies)), file))
    except ImportError as error:  # which says what to install
        raise UserError(f"{address}: {error}") from error
    except Exception as error:  # each storage raises its own
        message = f"{address} cannot be read ({type(error).__name__}): check the address"
        raise UserError(f"{message}, the connection, and the credentials that the environment has for it") from error
    return found


@dataclass(frozen=True)
class Corpus:
    """A source of pairs: a file, two parallel files, or one split of a hub set."""

    name: str  # relative to data.root, for tables and messages
    stem: str  # file name without endings, the name of a test set
    paths: tuple[Path, ...]  # the files that hold the pairs
    read: Callable[[], Iterator[Record]]
    part: str | None = None  # the part of the files that is read; None: all

    def pairs(self) -> Iterator[Pair]:
        """Read the pairs; refuse a bad line, and a corpus without pairs."""
        pairs = refuse_bad_lines(self.read())
        first = next(pairs, None)
        if first is None:
            raise UserError(f"{self.name} is empty: it has no sentence pair")
        return chain([first], pairs)


def read_pairs(spec: str, root: str | None, data: DataConfig) -> Iterator[Pair]:
    """Read all pairs that a spec names."""
    for corpus in open_corpora(spec, root, data):
        yield from corpus.pairs()


def open_corpora(spec: str, root: str | None, data: DataConfig) -> list[Corpus]:
    """Return the corpora that a spec names; files that match a pattern are sorted."""
    root = root or ""
    if files := _expand(root, spec, data):
        return [_table(*file, data) for file in files]
    for plus in re.finditer(r"(?<!\A)\+(?!\Z)", spec):  # a name may have a `+`, too
        left, right = _expand(root, spec[: plus.start()], data), _expand(root, spec[plus.end() :], data)
        if left and right:
            return [_moses(*files, data) for files in _match(spec, left, right)]
    if glob.has_magic(spec):
        raise UserError(f"{_place(root, spec)} matches no file: check the pattern and data.root={root}")
    missing = next((part for part in spec.split("+") if not _expand(root, part, data)), spec)
    reached = " or cannot be reached" if is_address(_place(root, missing)) else ""
    raise UserError(f"{_place(root, missing)} does not exist{reached}: check the path and data.root")


def names_corpus(key: str, name: str) -> bool:
    """Return whether the key of a setting names the corpus.

    A key is the whole name, a pattern for it such as `news/*`, the file's name with or without its endings, or a folder
    between data.root and the file. The endings are all, or those of the format and of the compression.
    """
    paths = [PurePath(part) for part in {name, *name.split("+")} if part]  # of parallel files, or with a + in its name
    parts = {part for path in paths for part in (path.parts[-1:] if is_outside(path) else path.parts)}
    stems = {stem for path in paths for stem in (path.name.split(".")[0], _uncompressed(path).stem)}
    return key == name or key in parts | stems or fnmatchcase(name, key)


def naming_keys(setting: str, keys: Collection[str], names: Sequence[str]) -> list[str | None]:
    """Return the first of a setting's keys that names each corpus, or None; refuse a key that names no corpus."""
    for key in keys:
        if not any(names_corpus(key, name) for name in names):
            raise UserError(f"{setting} has {key}, which names none of the corpora: {', '.join(names)}")
    return [next((key for key in keys if names_corpus(key, name)), None) for name in names]


def is_outside(name: PurePath) -> bool:
    """Return whether a corpus's name, which is relative to data.root if it can be, is of a file outside data.root."""
    return name.is_absolute() or ".." in name.parts


def has_two_sides(path: Path) -> bool:
    """Return whether the ending of a file's name is that of a file of pairs."""
    return _uncompressed(path).suffix in READERS


def _place(root: str, spec: str) -> str:
    """Return the path or address of a spec, which is relative to root."""
    if is_address(root) and not is_address(spec):
        return f"{root.rstrip('/')}/{spec}"
    return spec if is_address(spec) else str(expand_user(root) / expand_user(spec))


def _expand(root: str, pattern: str, data: DataConfig) -> list[File]:
    place, folder = _place(root, pattern), expand_user(root)
    if is_address(place):
        return [(path, name.removeprefix(_place(root, ""))) for path, name in fetch(place, cache_root(data.cache))]
    if _exists(Path(place)) or not glob.has_magic(pattern):
        paths = [Path(place)] if _exists(Path(place)) else []
    else:
        names = glob.glob(str(expand_user(pattern)), root_dir=folder, recursive=True)  # the folder's name is no pattern
        paths = sorted(folder / name for name in names)
    return [(path, str(path.relative_to(folder) if path.is_relative_to(folder) else path)) for path in paths]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a folder on the way is closed; a name that is too long names several files
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise explain_os_error(path, error) from error


def _match(spec: str, left: list[File], right: list[File]) -> list[tuple[File, File]]:
    if len(left) != len(right):
        raise UserError(f"{spec} matches {len(left)} source files but {len(right)} target files")
    pairs = list(zip(left, right, strict=True))
    for (src, _), (tgt, _) in pairs:
        if len(pairs) > 1 and _uncompressed(src).stem != _uncompressed(tgt).stem:
            raise UserError(f"{spec} would pair {src.name} with {tgt.name}: name the files one by one")
    return pairs


def _moses(source: File, target: File, data: DataConfig) -> Corpus:
    sides = [source, target]
    if any(has_two_sides(path) for path, _ in sides):
        files = [str(path) for path, _ in sides]
        raise UserError(
            f"{'+'.join(files)}: a + joins two files of parallel lines; list files of pairs as [{','.join(files)}]"
        )
    endings = [_uncompressed(path).suffix.removeprefix(".") for path, _ in sides]
    by_endings = sorted(endings) == sorted([data.src_lang, data.tgt_lang])
    if not by_endings:
        _require_order("+".join(name for _, name in sides), "file", data)
    if (endings[0] == data.tgt_lang != data.src_lang) if by_endings else data.is_swapped:
        sides.reverse()
    (src, src_name), (tgt, tgt_name) = sides
    return Corpus(f"{src_name}+{tgt_name}", _uncompressed(src).stem, (src, tgt), partial(read_moses, src, tgt))


def _table(path: Path, name: str, data: DataConfig) -> Corpus:
    plain = _uncompressed(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder: name the files in it, or a pattern such as {path}/*.tsv")
    if plain.suffix not in READERS or (plain.suffix == ".parquet" and plain != path):
        message = f"{path} has an unknown ending: expected {', '.join(READERS)}"
        raise UserError(f"{message}, also {' or '.join(COMPRESSED)} of all but .parquet, or a pair a.en+a.es")
    if plain.suffix == ".tsv":
        _require_order(str(path), "column", data)
    read = partial(READERS[plain.suffix], path, data)
    stem = plain.stem.removesuffix("-00000-of-00001")  # what the hub appends to the only file of a split
    return Corpus(name, stem, (path,), read)


def _require_order(name: str, part: str, data: DataConfig) -> None:
    """Raise an error if neither data.languages nor the default languages say which side of a corpus is the source.

    Otherwise a Spanish-to-English run on an English–Spanish TSV would train the wrong direction.
    """
    src, tgt = data.src_lang, data.tgt_lang
    if not data.languages and (src, tgt) != (DataConfig.src_lang, DataConfig.tgt_lang):
        if src == tgt:
            message = f"data.src_lang and data.tgt_lang are both {src}: give both"
            raise UserError(f"{message}, or data.languages=[{src},{src}] if both sides of {name} are of this language")
        raise UserError(
            f"{name} does not tell which {part} is {src}: give the languages in the order of the {part}s, "
            f"data.languages=[{tgt},{src}] or [{src},{tgt}] (in distill and backtranslate: --languages {tgt},{src})"
        )


def _uncompressed(path: AnyPath) -> AnyPath:
    return path.with_suffix("") if path.suffix in COMPRESSED else path


def open_splits(data: DataConfig) -> dict[str, list[Corpus]]:
    """Return the corpora of each split; validation and test may have none."""
    if data.hub is not None:
        splits = data.hub_splits or {"train": "train"}
        corpora = {split: [open_hub_split(hub_split, data)] for split, hub_split in splits.items()}
    else:
        specs = {"train": data.train, "validation": data.validation, "test": data.test}
        corpora = {
            split: [corpus for spec in of_split for corpus in open_corpora(spec, data.root, data)]
            for split, of_split in specs.items()
        }
    if not corpora.get("train"):
        raise UserError("data.train is empty: give training corpora, as in data=files data.train=[train.tsv]")
    return {split: corpora.get(split, []) for split in SPLITS}


def open_hub_split(split: str, data: DataConfig) -> Corpus:
    """Open one split of the set data.hub.

    The hub client downloads the split once and keeps it as Arrow files.
    """
    name = f"{data.hub}[{split}]"
    rows = _load(name, split, data)
    paths = tuple(Path(file["filename"]) for file in rows.cache_files)
    read = partial(_read_hub, rows, name, data)  # a pickle of rows holds paths, not text
    return Corpus(name, split, paths, read, part=split)


def _read_hub(rows: Any, name: str, data: DataConfig) -> Iterator[Pair]:
    def dicts(columns: list[str]) -> Iterator[dict[str, Any]]:
        for batch in rows.select_columns(columns).iter(batch_size=_ROWS):
            yield from (dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True))

    return read_rows(name, rows.column_names, dicts, data)


def _load(name: str, split: str, data: DataConfig) -> Any:
    import datasets  # pyright: ignore[reportMissingTypeStubs]

    assert data.hub is not None
    path, _, config = data.hub.rpartition(":")
    logger.info("loading %s", name)
    try:
        return cast(Any, datasets).load_dataset(
            path or config, config if path else None, split=split, keep_in_memory=False
        )
    except Exception as error:  # the hub client and its network stack raise many kinds, with the same remedy
        raise UserError(
            f"data.hub={name} cannot be loaded ({type(error).__name__}: {shorten(error)}): "
            "check name, configuration and split, and the connection; or give files with data.root"
        ) from error
