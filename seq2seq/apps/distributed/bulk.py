"""Translate files in shards of lines, here or by workers of a cluster; a killed job continues after its last shard.

A shard holds a multiple of the lines that `Translator.stream` takes at a time, so that cutting a file changes no line's
translation. An output has its input's name and one line for every line of the input; by its name's ending, both are
compressed. In the output folder, .seq2seq/ has unfinished outputs, and records of each output's digest and the values
that the output depends on.
"""

import glob
import hashlib
import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from seq2seq import __version__
from seq2seq.data.processes import Processes, is_stopping
from seq2seq.errors import UserError
from seq2seq.settings.search import change_search
from seq2seq.storage.atomic import PARTS, WORK
from seq2seq.storage.lines import open_bytes
from seq2seq.storage.output import ResumableOutput, read_lines, require_other
from seq2seq.translate.translator import CHUNK_LINES, Translator
from seq2seq.translate.types import SearchRequest, Text, Translation

if TYPE_CHECKING:
    from seq2seq.apps.distributed.ray_workers import RayWorkers

SHARD = 2 * CHUNK_LINES  # lines
_READERS = 4  # processes of a cluster that read files for their digests, some files ahead of the translation


@dataclass(frozen=True)
class BulkJob:
    """Models, search settings and hardware of a job."""

    models: tuple[Path, ...]
    fingerprint: str  # of the models' files
    settings: Mapping[str, int | float | None]  # search settings that replace the model's
    device: str
    threads: int | None  # CPU threads of each translator; None: PyTorch's choice
    dtype: torch.dtype | None = None  # of matrix products; None: the choice of each worker's device

    def decides(self) -> dict[str, Any]:
        """Return, as plain values, what decides the translations besides the inputs."""
        dtype = str(self.dtype or "by device").removeprefix("torch.")
        kind = self.device.partition(":")[0]
        return {"model": self.fingerprint, "device": kind, "dtype": dtype, "version": __version__, **self.settings}


@dataclass(frozen=True)
class Shard:
    """Lines of a file, or the error of reading them, which the job raises when their turn comes."""

    first_line: int
    lines: tuple[str, ...] | UserError


@dataclass(frozen=True)
class BulkFile:
    """One file to translate."""

    source: Path
    output: ResumableOutput
    starts: range  # numbers, from 0, of the first lines of the shards that the output lacks

    def shards(self) -> Iterator[Shard]:
        """Read the shards that the output lacks."""
        unread = islice(read_lines(self.source), self.starts.start, None)
        for start in self.starts:
            try:
                lines: tuple[str, ...] | UserError = tuple(islice(unread, SHARD))
                if len(lines) < min(SHARD, self.starts.stop - start):
                    raise UserError(f"{self.source} has fewer lines than before: start the job again")
            except UserError as error:
                lines = error
            yield Shard(start + 1, lines)


def find_files(patterns: Sequence[str]) -> Iterator[Path]:
    """List the names that match; return an iterator over the files among them, which looks at one after the other."""
    sources: dict[str, Path] = {}
    for pattern in patterns:
        paths = [*map(Path, sorted(glob.iglob(pattern, recursive=True)))]
        if not any(path.is_file() for path in paths):
            raise UserError(f"--input {pattern} matches no file")
        for path in paths:
            other = sources.get(path.name)
            if other is None or not other.is_file():
                sources[path.name] = path
            elif path.is_file() and other.resolve() != path.resolve():
                raise UserError(f"{other} and {path} would have one output: give them different names")
    return filter(Path.is_file, sources.values())


def survey(source: Path) -> tuple[Path, str, int]:
    """Return a file, its digest when decompressed, and its number of lines."""
    digest, count = hashlib.blake2b(digest_size=16), 0
    with open_bytes(source) as file:
        for line in file:
            count += 1
            digest.update(line)
    return source, digest.hexdigest(), count


def open_file(job: BulkJob, output: Path, surveyed: tuple[Path, str, int]) -> BulkFile:
    """Begin a file's output, or go on with what an earlier job wrote."""
    source, digest, lines = surveyed
    target = output.resolve() / source.name
    require_other(target, source)
    work = target.parent / WORK / PARTS / target.name
    begin = partial(ResumableOutput, target, work, {"input": digest, **job.decides()}, resume=True)
    try:
        opened = begin()
    except UserError as error:
        if target.exists():
            message = f"{target} is no translation of this input by this model with these settings"
            raise UserError(f"{message}: choose another --output, or remove it") from error
        shutil.rmtree(work, ignore_errors=True)  # an unfinished output of other settings
        opened = begin()
    return BulkFile(source, opened, range(lines if opened.is_complete else opened.inputs, lines, SHARD))


class ShardTranslator:
    """Translates shards with a translator that it loads once, when the first shard comes."""

    def __init__(self, job: BulkJob) -> None:
        self._job = job

    @cached_property
    def _translator(self) -> Translator:
        if self._job.threads is not None:
            torch.set_num_threads(self._job.threads)
        return Translator.load(self._job.models, self._job.device, self._job.dtype)

    def __call__(self, shard: Shard) -> list[str]:
        """Return the translations of a shard's lines."""
        if isinstance(shard.lines, UserError):
            raise shard.lines
        request = SearchRequest(settings=change_search(self._translator.search, self._job.settings))
        return [best[0].text for best in self._translator.stream(shard.lines, request, first_line=shard.first_line)]


def bulk_translate(
    job: BulkJob, sources: Iterable[Path], output: Path, ray: "RayWorkers | None", workers: int
) -> Iterator[tuple[BulkFile, int]]:
    """Translate files here, or by `workers` workers of a cluster; yield each file and its number of translated lines.

    A file is read when its turn comes; on a cluster, other processes have found its digest before.
    """
    look, make = survey, partial(ShardTranslator, job)
    surveyed = map(look, sources) if ray is None else ray.map_with(lambda: look, sources, workers=_READERS, num_cpus=0)
    files, coming = tee(map(partial(open_file, job, output), surveyed))
    shards = (shard for file in coming for shard in file.shards())
    if ray is None:
        translated: Iterator[list[str]] = map(make(), shards)
    else:
        gpus = 1 if job.device.startswith("cuda") else 0
        translated = ray.map_with(make, shards, workers=workers, num_cpus=job.threads or 1, num_gpus=gpus)
    for file in files:
        output_file, count = file.output, 0
        with output_file.file:
            for lines in islice(translated, len(file.starts)):
                for line in lines:
                    output_file(line)
                output_file.commit(output_file.inputs + len(lines))
                count += len(lines)
            output_file.finish()
        yield file, count


def stream(
    translator: Translator, texts: Iterable[Text], request: SearchRequest, workers: int, *, first_line: int = 1
) -> Iterator[list[Translation]]:
    """Translate as `Translator.stream` does, in order, but in `workers` processes that take one chunk at a time.

    Each process uses an equal share of the CPU threads. All share the weights of the model and of the compiled step.
    """
    if translator.device.type != "cpu" or not hasattr(translator.engine, "model"):
        raise UserError(f"--workers {workers} is for the pytorch engine on the CPU: leave it out")
    begin = partial(_begin, translator, request, max(1, torch.get_num_threads() // workers))
    with Processes(workers, begin, advice="run the same command again; lower --workers") as opened:
        for translated in opened.map(_translate, _chunks(iter(texts), first_line)):
            yield from translated


def _chunks(texts: Iterator[Text], first_line: int) -> Iterator[tuple[int, list[Text]]]:
    while chunk := list(islice(texts, CHUNK_LINES)):
        yield first_line, chunk
        first_line += len(chunk)


def _begin(translator: Translator, request: SearchRequest, threads: int) -> None:
    global _working
    logging.addLevelName(logging.WARNING, "warning")
    logging.basicConfig(format="%(levelname)s: %(message)s")
    torch.set_num_threads(threads)
    _working = translator, request


_working: tuple[Translator, SearchRequest]  # set in each worker process


def _translate(task: tuple[int, list[Text]]) -> list[list[Translation]]:
    (translator, request), (first_line, texts) = _working, task
    return list(translator.stream(texts, request, first_line=first_line, on_progress=_go_on))


def _go_on(count: int) -> None:
    if is_stopping():
        raise UserError("nobody waits for the translations any more")
