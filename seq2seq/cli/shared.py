"""Functions of several commands: find and load models, translate lines and write them in a format, report scores."""

import hashlib
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.cli.inputs import Input
from seq2seq.cli.options import EngineChoice
from seq2seq.errors import UserError
from seq2seq.progress import bar
from seq2seq.settings.data import DataConfig
from seq2seq.settings.missing_packages import require_package, train_command
from seq2seq.settings.search import SearchConfig, change_search
from seq2seq.storage.cache import digest_files
from seq2seq.storage.output import Output, find_model, published_model

if TYPE_CHECKING:
    from rich.table import Table

    from seq2seq.apps.distributed.ray_workers import RayWorkers
    from seq2seq.translate.translator import Translator
    from seq2seq.translate.types import SearchRequest, Text, Translation


@dataclass(frozen=True)
class Job:
    """The translator, the requirements of every translation, and the format of the output."""

    translator: "Translator"
    request: "SearchRequest"
    prefix: str = ""
    phrases: Sequence[str] = ()
    as_json: bool = False

    def texts(self, sources: Iterable[str]) -> "Iterator[Text]":
        """Yield every source as a text with the prefix and the phrases."""
        from seq2seq.translate.types import Text

        return (Text(source, self.prefix, self.phrases) for source in sources)


def choose_models(folders: Sequence[Path] | None, *, shown: bool = True) -> list[Path]:
    """Return the bundles that a user named; if none, return the newest or the published one and name it on stderr."""
    if folders:
        return [find_model(folder) for folder in folders]
    newest = find_model(None)
    path = newest.resolve()  # runs/latest is a link to a run
    if shown:
        name = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        origin = f" (comes with the project; `{train_command()}` trains another)" if newest == published_model() else ""
        print(f"model: {name}{origin}", file=sys.stderr)
    return [newest]


def search_settings(folder: Path, changes: Mapping[str, int | float | None]) -> SearchConfig:
    """Return the search settings of a bundle or an export with changes, without reading its weights."""
    from seq2seq.settings.bundle import CONFIG, SETTINGS, is_export, read_config

    _, config = read_config(folder / (SETTINGS if is_export(folder) else CONFIG))
    return change_search(config.search, changes)


def load(folders: list[Path], choice: EngineChoice, threads: int = 0) -> "Translator":
    """Read the model or models for the chosen engine; threads are CTranslate2's (0: all)."""
    from seq2seq.translate.translator import Translator

    if choice.engine == "pytorch":
        return Translator.load(folders, choice.device, compiles=choice.compile, shortlist=choice.shortlist)
    if choice.compile == "on":
        raise UserError("--compile on is for the pytorch engine, and --engine is ctranslate2: leave one of them out")
    if choice.shortlist is not None:
        raise UserError(
            "--shortlist is for the pytorch engine, and --engine is ctranslate2: leave one of them out "
            "(CTranslate2 by itself has the same by the file of `seq2seq shortlist --vmap`)"
        )
    if len(folders) > 1:
        raise UserError(f"{len(folders)} models: only the pytorch engine translates with an ensemble")
    from seq2seq.apps.exchange.cached import cached_export
    from seq2seq.settings.bundle import is_export
    from seq2seq.translate.ctranslate2_engine import load_export

    (folder,) = folders
    if not is_export(folder):
        folder = cached_export(folder, choice.quantization, DataConfig().cache)
    return load_export(folder, choice.device, threads)


def output_settings(choice: EngineChoice) -> dict[str, Any]:
    """Return the values of `EngineChoice` that outputs depend on; for a shortlist, its digest."""
    values = {"engine": choice.engine, "quantization": choice.quantization}
    if choice.shortlist is not None:
        from seq2seq.search.shortlist import Shortlist

        values["shortlist_digest"] = Shortlist.load(choice.shortlist).digest
    return values


def provenance(folders: Sequence[Path], lines: Input, values: Mapping[str, object]) -> dict[str, str] | None:
    """Return what an output depends on, so that `--resume` recognises it; None if an input is no regular file."""
    if not lines.files or not all(path.is_file() for path in lines.files):
        return None
    plain = {name: str(value) for name, value in values.items() if value is not None}
    digests = " ".join(digest[:16] for digest in digest_files(lines.files))
    return {"model": fingerprint(folders), "input_digest": digests, **plain}


def fingerprint(folders: Sequence[Path]) -> str:
    """Return a hash of the models' files."""
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted(path for path in folder.iterdir() if path.is_file()):
            digest.update(f"{file.name} {file.stat().st_size} ".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


Render = Callable[[Job, int, str, "Sequence[Translation]"], Iterable[str]]


def translate(
    job: Job, lines: Input, out: Output, *, workers: int, shown: bool, render: Render | None = None
) -> list[str]:
    """Translate and write all lines that the output lacks; return the best translations if there are references.

    render formats a source and its translations as lines, by default in the job's format.
    """
    from seq2seq.translate.translator import CHUNK_LINES

    start, first = out.inputs, lines.begin + out.inputs + 1
    if start and lines.references is not None:
        raise UserError("--resume has only the rest of the translations: score the whole with `seq2seq evaluate`")
    to_translate, to_show = itertools.tee(itertools.islice(lines.sources, start, None))
    texts, kept = job.texts(to_translate), []
    with bar("translating", lines.total, "lines", start) if shown else nullcontext() as advance:
        if workers > 1:
            from seq2seq.apps.distributed import bulk

            translated = bulk.stream(job.translator, texts, job.request, workers, first_line=first)
        else:
            translated = job.translator.stream(texts, job.request, first_line=first, on_progress=advance)
        for number, (source, best) in enumerate(zip(to_show, translated, strict=True), start=first):
            if workers > 1 and advance is not None:
                advance(1)
            for line in (render or show)(job, number, source, best):
                out(line)
            if lines.references is not None:
                kept.append(best[0].text)
            if number % CHUNK_LINES == 0:  # a command resumed here makes the same batches
                out.commit(number - lines.begin)
    return kept


def show(job: Job, number: int, source: str, best: "Sequence[Translation]") -> Iterator[str]:
    """Yield a source's translations as lines, in the job's format."""
    if job.as_json:
        plain: list[dict[str, Any]] = [
            {"translation": entry.text, "score": entry.score, "normalised_score": entry.normalised_score}
            | {"confidence": entry.confidence and round(entry.confidence, 4)}
            | ({} if entry.alignment is None else {"alignment": entry.alignment})
            for entry in best
        ]
        yield json.dumps({"line": number, "source": source, **plain[0], "n_best": plain}, ensure_ascii=False)
    elif job.request.n_best > 1:
        yield from (f"{number} ||| {entry.text} ||| {entry.normalised_score:.4f}" for entry in best)
    else:
        yield best[0].text


def report(plain: Mapping[str, Any], parts: "Iterable[Table | str]", as_json: bool, *, to_stderr: bool = False) -> None:
    """Print scores as tables and lines, or as one JSON object."""
    if as_json:
        print(json.dumps(plain, ensure_ascii=False), file=sys.stderr if to_stderr else sys.stdout)
    else:
        show_parts(parts, to_stderr=to_stderr)


def show_parts(parts: "Iterable[Table | str]", *, to_stderr: bool = False, width: int | None = None) -> None:
    """Print tables, and texts that are never wrapped; a table that is too wide for the terminal becomes a list.

    Names, which are in a table's first column, are never wrapped either.
    """
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(stderr=to_stderr, markup=False, emoji=False, highlight=False, width=width)
    for part in parts:
        if isinstance(part, str):
            console.print(part, soft_wrap=True)
            continue
        part.columns[0].no_wrap = True
        for column in part.columns[1:]:
            column.overflow = "fold"  # a long word is not cut
        if Measurement.get(console, console.options.update(width=10_000), part).minimum <= console.width:
            console.print(part)
        else:
            console.print("\n".join(_as_list(part)), soft_wrap=True)


def _as_list(table: "Table") -> Iterator[str]:
    """Yield the rows of a table of strings as lines: the first cell, then the other cells that are not empty."""
    if table.title:
        yield str(table.title)
    headings = [str(column.header) for column in table.columns]
    for first, *cells in zip(*(map(str, column.cells) for column in table.columns), strict=True):
        if first:
            yield first
        yield from (f"  {heading}: {cell}" for heading, cell in zip(headings[1:], cells, strict=True) if cell)


def ray_workers(address: str | None) -> "RayWorkers | None":
    """Return the workers of a Ray cluster; None without an address."""
    if address is None:
        return None
    with require_package("ray"):
        from seq2seq.apps.distributed.ray_workers import RayWorkers
    return RayWorkers(address)
