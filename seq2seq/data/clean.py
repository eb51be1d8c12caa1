"""Cleaning of training pairs: each pair is normalised, checked, and compared with the held-out sets.

The check of languages needs the extra package py3langid, whose model comes with it.
"""

import html
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from importlib import metadata
from typing import Any

from rich import box
from rich.table import Table

from seq2seq.data.formats import Pair, Record
from seq2seq.data.languages import load_identifier
from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig
from seq2seq.settings.missing_packages import missing
from seq2seq.storage.lines import BadLine
from seq2seq.text.normalise import normalise

# In the order of the checks: a pair is counted under the first check that it fails. "malformed" is a line that holds no
# pair. `clean` counts all up to "language".
REASONS = ("malformed", "empty", "characters", "ratio", "identical", "language", "duplicate", "overlap", "tokens")
HELD_OUT = "held out"  # not dropped, but taken for validation or test
UNESCAPED = (
    "unescaped"  # not dropped: pairs with quotation marks as HTML writes them, such as &apos;, which are decoded
)
_ESCAPED = re.compile("&(?:apos|quot|#3[49]);")
_RATIO_FROM = 20  # characters of the longer side up to which any length ratio is fine ("No." ~ "De ninguna manera.")
_PACKAGE = "py3langid"


def clean(pairs: Iterable[Record], config: DataConfig, counts: Counter[str]) -> Iterator[Pair]:
    """Yield the pairs to train on, normalised; count each as read, and as kept or by the reason for its drop."""
    for pair in pairs:
        counts["read"] += 1
        if isinstance(pair, BadLine):
            if config.on_bad_line == "refuse":
                raise UserError(f"{pair.error()}; or set data.on_bad_line=skip")
            counts["malformed"] += 1
            continue
        if any(map(_ESCAPED.search, pair)):
            counts[UNESCAPED] += 1
        src, tgt = (normalise(_ESCAPED.sub(lambda match: html.unescape(match[0]), side)) for side in pair)
        reason = _drop_reason(src, tgt, config)
        counts[reason or "kept"] += 1
        if reason is None:
            yield src, tgt


def _drop_reason(src: str, tgt: str, config: DataConfig) -> str | None:
    """Return the reason to drop a normalised pair, or None."""
    shorter, longer = sorted((len(src), len(tgt)))
    if shorter == 0:
        return "empty"
    if longer > config.max_characters:
        return "characters"
    if longer > _RATIO_FROM and longer > config.max_ratio * shorter:
        return "ratio"
    if config.drop_identical and src == tgt:
        return "identical"
    if config.language_filter and (_is_other(src, config.src_lang, config) or _is_other(tgt, config.tgt_lang, config)):
        return "language"
    return None


def _is_other(text: str, language: str, config: DataConfig) -> bool:
    """Return whether a text is, with high confidence, in another language; a short text is not checked."""
    if len(text) < config.language_characters:
        return False
    likeliest, confidence = load_identifier().classify(text)
    return likeliest != language.partition("-")[0] and confidence >= config.language_confidence


def digest_pair(src: str, tgt: str) -> int:
    """Return a 64-bit hash of a normalised pair; some two of 10⁸ different pairs collide with probability 0.0003."""
    return int.from_bytes(blake2b(f"{src}\t{tgt}".encode(), digest_size=12).digest()[:8])


def drop_table(report: Mapping[str, Any]) -> Table:
    """Return a table of the pairs that preparation read, dropped (by reason) and kept, one row a training file."""
    files = report["files"]
    columns = [
        "read",
        *(key for key in (*REASONS, HELD_OUT, UNESCAPED) if any(file.get(key) for file in files)),
        "kept",
    ]
    table = Table(title="Training pairs", box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("corpus", overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for file in files:
        table.add_row(file["name"], *(f"{file.get(column, 0):,}" for column in columns))
    if len(files) > 1:
        table.add_section()
        table.add_row("total", *(f"{sum(file.get(column, 0) for file in files):,}" for column in columns))
    return table


def identifier_version(config: DataConfig) -> str:
    """Return the name and the version of the package that identifies languages; refuse languages unknown to it."""
    try:
        version = f"{_PACKAGE} {metadata.version(_PACKAGE)}"
    except metadata.PackageNotFoundError as error:
        raise missing("langid", "data.language_filter=true", _PACKAGE) from error
    for key, code in (("src_lang", config.src_lang), ("tgt_lang", config.tgt_lang)):
        if (language := code.partition("-")[0]) not in load_identifier().labels:
            message = f"data.{key}={language} is no language that {_PACKAGE} knows"
            raise UserError(f"{message}: set data.language_filter=false")
    return version


class _Ignored(dict[int, int | None]):
    """A translation table that removes punctuation, white space and controls, filled on demand."""

    def __missing__(self, code: int) -> int | None:
        kept = None if unicodedata.category(chr(code))[0] in "PZC" else code
        self[code] = kept
        return kept


_ignored = _Ignored()


def fold(text: str) -> str:
    """Return text without case, punctuation and white space, for comparison; text of punctuation alone is kept."""
    text = unicodedata.normalize("NFC", text)
    return text.translate(_ignored).casefold() or text


def side_key(text: str) -> int:
    """Return a 32-bit hash of a side; sides that count as equal have the same one."""
    return zlib.crc32(fold(text).encode())


class OverlapIndex:
    """Finds the held-out sets that share a side with a training pair."""

    def __init__(self, held_out: Mapping[str, Iterable[Pair]]) -> None:
        self._src_sets: dict[str, set[str]] = {}
        self._tgt_sets: dict[str, set[str]] = {}
        for name, pairs in held_out.items():
            for src, tgt in pairs:
                for sets, side in ((self._src_sets, src), (self._tgt_sets, tgt)):
                    if side.strip():
                        sets.setdefault(fold(side), set()).add(name)

    @property
    def keys(self) -> tuple[list[int], list[int]]:
        """The keys of the sources and of the targets, see `side_key`."""
        src, tgt = ([zlib.crc32(side.encode()) for side in sets] for sets in (self._src_sets, self._tgt_sets))
        return src, tgt

    def shares(self, src: str, tgt: str) -> tuple[list[str], list[str]]:
        """Return the names of the held-out sets that have a training pair's source, and of those that have its target.

        Sides are compared without case, punctuation and white space. The names are sorted.
        """
        return sorted(self._src_sets.get(fold(src), ())), sorted(self._tgt_sets.get(fold(tgt), ()))
