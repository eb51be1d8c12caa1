"""Translate files in shards of lines, here or by workers of a cluster; a killed job continues after its last shard.

A shard holds a multiple of the lines that `Translator.stream` takes at a time, so that cutting a file changes no line's
translation. An output has its input's name and one line for every line of the input. In the output folder, .seq2seq/
has records of each output's digest and the values that the output depends on, and the shards of unfinished outputs.
"""

import glob
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from seq2seq import __version__
from seq2seq.cache import digest_files, run_step
from seq2seq.drafts import FINISHED, PARTS, WORK, claimed, replacing
from seq2seq.errors import UnfinishedError, UserError
from seq2seq.files import read_lines, require_other
from seq2seq.interface import SearchRequest
from seq2seq.lines import COMPRESSED
from seq2seq.settings.search import change_search
from seq2seq.translator import CHUNK_LINES, Translator

if TYPE_CHECKING:
    from seq2seq.distributed.ray_workers import RayWorkers

SHARD = 2 * CHUNK_LINES  # lines
_READERS = 4  # processes of a cluster that read files to find their shards, some files ahead of the translation
_LINES = "lines"


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
class ShardTask:
    """One shard of a file."""

    source: Path
    start: int  # byte offset in the file
    first_line: int
    lines: int  # maximum
    folder: Path


@dataclass(frozen=True)
class BulkFile:
    """One file to translate."""

    source: Path
    target: Path
    made_of: dict[str, Any]  # what the output depends on
    starts: tuple[int, ...]  # byte offsets at which the shards to translate begin
    was_finished: bool = False  # by an earlier job

    @property
    def parts(self) -> Path:
        """Folder of the file's shards."""
        return self.target.parent / WORK / PARTS / self.target.name

    @property
    def record(self) -> Path:
        """File that records that the output is finished."""
        return self.target.parent / WORK / FINISHED / f"{self.target.name}.json"

    def tasks(self) -> Iterator[ShardTask]:
        """Yield the file's shards; the folder of the shards depends on the model, the text and the settings."""
        key = hashlib.blake2b(json.dumps([self.made_of, SHARD], sort_keys=True).encode(), digest_size=8).hexdigest()
        for number, start in enumerate(self.starts):
            yield ShardTask(self.source, start, number * SHARD + 1, SHARD, self.parts / key / f"{number:06}")

    def is_finished(self) -> bool:
        """Return whether the output is finished.

        Raises:
            UserError: the output exists, but another job wrote it.
        """
        if not self.target.exists():
            return False
        try:
            record = json.loads(self.record.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            record = None
        if record != {"made_of": self.made_of, "output": digest_files([self.target])[0]}:
            raise UserError(
                f"{self.target} is no translation of this input by this model with these settings: "
                "choose another --output, or remove it"
            )
        return True

    def finish(self) -> None:
        """Join the shards into the output."""
        with replacing(self.target) as draft:  # a finished output has a record and its final name
            with draft.open("wb") as out:
                for task in self.tasks():
                    with (task.folder / _LINES).open("rb") as part:
                        shutil.copyfileobj(part, out)
                out.flush()
                os.fsync(out.fileno())  # before the shards are removed
            record = {"made_of": self.made_of, "output": digest_files([draft])[0]}
            self.record.write_text(json.dumps(record), encoding="utf-8")
        shutil.rmtree(self.parts, ignore_errors=True)


@contextmanager
def claim(output: Path) -> Iterator[None]:
    """Make the output folder, and lock it against other jobs.

    Raises:
        UserError: another command writes to the folder.
        UnfinishedError: the folder cannot be written.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        with claimed(output.resolve(), inside=True) as work:
            for name in (FINISHED, PARTS):
                (work / name).mkdir(exist_ok=True)
            yield
    except OSError as error:
        raise UnfinishedError(
            f"--output {output} cannot be written ({error.strerror or error}): "
            "the same command goes on from what is done"
        ) from error


def find_files(patterns: Sequence[str]) -> Iterator[Path]:
    """List the names that match, and return an iterator over the files among them, which looks at one after the other.

    Raises:
        UserError: a pattern matches no file, two files have the same name, or a file is compressed.
    """
    sources: dict[str, Path] = {}
    for pattern in patterns:
        found = [*map(Path, sorted(glob.iglob(pattern, recursive=True)))]
        if not any(path.is_file() for path in found):
            raise UserError(f"--input {pattern} matches no file")
        for path in found:
            other = sources.get(path.name)
            if other is None or not other.is_file():
                sources[path.name] = path
            elif path.is_file() and other.resolve() != path.resolve():
                raise UserError(f"{other} and {path} would have one output: give them different names")
    for source in sources.values():
        if source.suffix in COMPRESSED and source.is_file():
            raise UserError(f"--input {source} is compressed, but its output would not be: decompress it first")
    return filter(Path.is_file, sources.values())


def plan_file(decides: Mapping[str, Any], output: Path, lines: int, source: Path) -> BulkFile:
    """Read a file and return its shards of so many lines; none if the output is finished."""
    require_other(output / source.name, source)
    digest, starts = _survey(source, lines)
    file = BulkFile(source.resolve(), output.resolve() / source.name, {"input": digest, **decides}, starts)
    if not file.is_finished():
        return file
    shutil.rmtree(file.parts, ignore_errors=True)
    return replace(file, starts=(), was_finished=True)


def _survey(source: Path, lines: int) -> tuple[str, tuple[int, ...]]:
    """Return a file's digest, and the byte offsets at which its shards of so many lines begin."""
    digest, starts, size = hashlib.blake2b(digest_size=16), [], 0
    try:
        with source.open("rb") as file:
            for number, line in enumerate(file):
                if number % lines == 0:
                    starts.append(size)
                size += len(line)
                digest.update(line)
    except OSError as error:
        raise UserError(f"{source} cannot be read: {error.strerror}") from error
    return digest.hexdigest(), tuple(starts)


class ShardTranslator:
    """Translates shards with a translator that it loads once, when the first unfinished shard comes."""

    def __init__(self, job: BulkJob) -> None:
        self._job = job

    @cached_property
    def _translator(self) -> Translator:
        if self._job.threads is not None:
            torch.set_num_threads(self._job.threads)
        return Translator.load(self._job.models, self._job.device, self._job.dtype)

    def __call__(self, task: ShardTask) -> int:
        """Translate a shard unless it is finished; return its number of lines."""

        def build(draft: Path) -> int:
            texts, count = islice(read_lines(task.source, task.start), task.lines), 0
            request = SearchRequest(settings=change_search(self._translator.search, self._job.settings))
            with (draft / _LINES).open("w", encoding="utf-8", newline="\n") as out:
                for best in self._translator.stream(texts, request, first_line=task.first_line):
                    out.write(best[0].text + "\n")
                    count += 1
            return count

        return run_step(task.folder, build)


def bulk_translate(
    job: BulkJob, sources: Iterable[Path], output: Path, ray: "RayWorkers | None", workers: int
) -> Iterator[tuple[BulkFile, int]]:
    """Translate files here, or by `workers` workers of a cluster; yield each file and its number of translated lines.

    A file is read when its turn comes, on a cluster by processes that are some files ahead.

    Raises:
        UserError: a file cannot be read or written, or another job wrote an output.
        UnfinishedError: the cluster failed.
    """
    plan, make = partial(plan_file, job.decides(), output, SHARD), partial(ShardTranslator, job)
    planned = map(plan, sources) if ray is None else ray.map_with(lambda: plan, sources, workers=_READERS, num_cpus=0)
    files, coming = tee(planned)
    tasks = (task for file in coming for task in file.tasks())
    if ray is None:
        counts: Iterator[int] = map(make(), tasks)
    else:
        gpus = 1 if job.device.startswith("cuda") else 0
        counts = ray.map_with(make, tasks, workers=workers, num_cpus=job.threads or 1, num_gpus=gpus)
    for file in files:
        total = sum(islice(counts, len(file.starts)))
        if not file.was_finished:
            file.finish()
        yield file, total
