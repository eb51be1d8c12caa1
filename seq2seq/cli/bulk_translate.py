"""The command that translates a large corpus, for example for back-translation."""

import contextlib
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from seq2seq.cli import options, shared
from seq2seq.errors import UserError
from seq2seq.storage.output import output_folder

Inputs = Annotated[list[str], typer.Option("--input", help="Files or a quoted pattern; may be given several times.")]
OutputFolder = Annotated[Path, typer.Option("--output", help="Folder for the translations.")]
NumWorkers = Annotated[
    int, typer.Option("--workers", min=1, help="Translators that work at the same time, with --ray.")
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=4096,
        help="CPU threads of each translator. [dim]default: all; with --ray 1[/dim]",
        show_default=False,
    ),
]


@options.search_options("beam", "length_penalty", "batch_tokens", *options.SAMPLING)
def bulk_translate(
    input_: Inputs,
    output: OutputFolder,
    model: options.Models = None,
    ray: options.Ray = None,
    workers: NumWorkers = 1,
    threads: Threads = None,
    device: options.Device = "auto",
    *,
    changes: options.Changes,
) -> None:
    """Translate files of any size: OUTPUT/NAME for each file, one line for every line, complete or not at all.

    [bold]seq2seq bulk-translate --model runs/reverse --input 'mono/*.es' --output mono.en[/bold]

    [bold]seq2seq bulk-translate --ray auto --workers 8 --device cpu --input 'mono/*.es' --output mono.en[/bold]
    on a Ray cluster

    The same command resumes a killed job after the last finished shards of some thousand lines. With --ray, model,
    inputs and output must be in folders that every node sees; --device says what the workers have: with cuda, every
    worker has a GPU of its own. A job is resumed only by the same version of the program, on the same kind of device.
    """
    if ray is None and workers > 1:
        raise UserError(f"--workers {workers} needs --ray: auto, local, or a cluster's address")
    if ray is not None and device == "auto":
        raise UserError(f"--ray {ray} needs --device cpu or --device cuda: this machine does not know the workers'")
    from seq2seq.apps.distributed import bulk
    from seq2seq.device import choose_device, default_dtype

    folders = tuple(folder.resolve() for folder in shared.choose_models(model))
    shared.search_settings(folders[0], changes)  # refuses a value out of range before anything begins
    threads = threads if ray is None else threads or 1
    dtype = None
    if ray is None:
        chosen = choose_device(device)
        device, dtype = str(chosen), default_dtype(chosen)
    job = bulk.BulkJob(folders, shared.fingerprint(folders), changes, device, threads, dtype)
    with output_folder(output):
        sources, files, finished = bulk.find_files(input_), 0, 0
        start, total = time.perf_counter(), 0
        with shared.ray_workers(ray) or contextlib.nullcontext() as opened:
            for file, count in bulk.bulk_translate(job, sources, output, opened, workers):
                files, finished, total = files + 1, finished + file.output.is_complete, total + count
                if not file.output.is_complete:
                    rate = total / (time.perf_counter() - start)
                    print(f"{output / file.name}: {count:,} lines ({rate:,.0f} a second in all)", file=sys.stderr)
        if finished:
            print(f"{finished} of {files} files are finished since an earlier job", file=sys.stderr)
