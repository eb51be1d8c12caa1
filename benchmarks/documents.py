"""Documents of a folder, translated by a model that changes nothing: which files stay the same, and the time they take.

The files of a format are the same if they are equal byte for byte, apart from the parts that a translation may add or
change whatever the model says:

- PO: strings of `msgstr`, flags `fuzzy`, previous sources (`#|`) and the header's `Language`
- XLIFF: elements `target` with the white space before them, `target-language`, `trgLang` and the states of version 2
- TMX: units `tuv` in the target language with the white space before them
- HTML: the attribute `lang` of `html`
- Markdown, SubRip, WebVTT: nothing
"""

import codecs
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.command import Options, Results, Table
from seq2seq.apps.documents.document import is_document, translate_document
from seq2seq.errors import UserError

TIMED_BYTES = 10_000  # size from which the time of a file is reported: smaller files measure the constant cost
FORMATS = {".htm": "HTML", ".html": "HTML", ".md": "Markdown", ".markdown": "Markdown", ".po": "PO", ".srt": "SubRip"}
FORMATS |= {".vtt": "WebVTT", ".xliff": "XLIFF", ".xlf": "XLIFF", ".tmx": "TMX"}
ADDED = {
    "HTML": rb"(?i)(?<=<html)\b[^>]*",
    "PO": rb'(?m)^[ \t]*msgstr(?:\[\d+\])?\s*".*"(?:\s*(?:msgstr\[\d+\])?\s*".*")*|^#\|.*\n|^#, fuzzy\r?\n|, *fuzzy\b',
    "XLIFF": rb"""(?s)\s*<(?:\w+:)?target\b(?:[^>]*/>|.*?</(?:\w+:)?target\s*>)"""
    rb"""|\s(?:target-language|trgLang|state)\s*=\s*(?:"[^"]*"|'[^']*')""",
}
_SOURCE = re.compile(rb"""\b(?:source-language|srcLang|srclang)\s*=\s*["']([\w-]+)["']""")
_TARGET = re.compile(rb"""\b(?:target-language|trgLang)\s*=\s*["']([\w-]+)["']""")


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `documents`."""

    folder: Path  # folder of documents; its subfolders are read too


@dataclass
class Measured:
    """The files of a format."""

    num_files: int = 0
    num_bytes: int = 0
    num_texts: int = 0
    identical: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # number of files by reason
    different: list[str] = field(default_factory=list)  # names of files
    pace: dict[str, float] = field(default_factory=dict)  # seconds per MB of each file from TIMED_BYTES on


def run(plan: Plan, device: torch.device) -> Results:
    """Translate every document of the folder and compare the result with the document."""
    paths = sorted(path for path in plan.folder.rglob("*") if path.is_file() and is_document(path))
    if not paths:
        raise UserError(f"{plan.folder} has no document: give a folder with files {' '.join(FORMATS)}")
    results = {FORMATS[path.suffix.lower()]: Measured() for path in paths}
    with tempfile.TemporaryDirectory(prefix="documents-") as folder:
        firsts = {path.suffix.lower(): path for path in reversed(paths)}
        for path in firsts.values():  # a warm-up, which imports the readers
            measure_file(path, Path(folder), Measured())
        for path in paths:
            measure_file(path, Path(folder), results[FORMATS[path.suffix.lower()]])
        for result in results.values():  # time far from the median again, in case the machine was busy
            for name in [
                name for name in result.pace if result.pace[name] > 2 * statistics.median(result.pace.values())
            ]:
                again = Measured()
                measure_file(Path(name), Path(folder), again)
                result.pace[name] = min(result.pace[name], again.pace[name])
    tables = [Table(f"Documents of {plan.folder}", _HEADER, [_row(name, result) for name, result in results.items()])]
    refused = [
        [f"{name}: {reason}", f"{count}"]
        for name, result in results.items()
        for reason, count in result.refused.most_common()
    ]
    different = [[path, name] for name, result in results.items() for path in result.different]
    if refused:
        tables.append(Table("Refused", ["reason", "files"], refused))
    if different:
        tables.append(Table("Different", ["file", "format"], different))
    return {name: vars(result) for name, result in results.items()}, tables


_HEADER = [
    "format", "files", "MB", "texts", "identical", "refused", "different",
    "median s/MB", "slowest s/MB", "slowest to median",
]  # fmt: skip


def _row(name: str, result: Measured) -> list[str]:
    median, slowest = (
        (function(result.pace.values()) if result.pace else float("nan")) for function in (statistics.median, max)
    )
    counts = (result.num_texts, result.identical, sum(result.refused.values()), len(result.different))
    times = (f"{median:.2f}", f"{slowest:.2f}", f"{slowest / median:.1f}")
    return [name, f"{result.num_files}", f"{result.num_bytes / 1e6:.2f}", *(f"{count:,}" for count in counts), *times]


def measure_file(path: Path, folder: Path, result: Measured) -> None:
    """Translate a document into the folder and add its measurements to the result."""
    data, written = path.read_bytes(), folder / f"translation{path.suffix}"
    source, target = (pattern.search(as_utf_8(data)) for pattern in (_SOURCE, _TARGET))
    languages = source[1].decode() if source else "en", target[1].decode() if target else "es"
    result.num_files += 1
    result.num_bytes += len(data)
    start = time.process_time()
    try:
        result.num_texts += translate_document(path, written, unchanged, *languages)
    except UserError as error:
        reason = f"{error}".removeprefix(f"{path}: ")
        result.refused[re.sub(r"\d\w*|'.*'", "…", reason)] += 1
        return
    seconds = time.process_time() - start
    if len(data) >= TIMED_BYTES:
        result.pace[f"{path}"] = seconds / len(data) * 1e6
    name = FORMATS[path.suffix.lower()]
    if remaining(data, name, languages[1]) == remaining(written.read_bytes(), name, languages[1]):
        result.identical += 1
    else:
        result.different.append(f"{path}")


def unchanged(texts: Sequence[str], align: bool) -> list[tuple[str, None]]:
    """Return every text as its translation."""
    return [(text, None) for text in texts]


def remaining(data: bytes, name: str, tgt_lang: str) -> bytes:
    """Return a document of a format without the parts that a translation may add or change."""
    if name == "TMX":
        language = tgt_lang.encode()
        added = rb"""(?s)\s*<tuv\s(?:[^>]*\s)?(?:xml:)?lang\s*=\s*["']%b["'][^>]*>.*?</tuv\s*>""" % language
    else:
        added = ADDED.get(name, rb"(?!)")
    return re.sub(added, b"", as_utf_8(data))


def as_utf_8(data: bytes) -> bytes:
    """Return a document of UTF-16 as its byte order mark and its text in UTF-8, any other document as it is."""
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if data.startswith(mark):
            return mark + data.decode(encoding, "replace").encode("utf-8", "replace")
    return data
