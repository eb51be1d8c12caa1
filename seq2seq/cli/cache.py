"""`seq2seq prepare` and `seq2seq cache`: prepares text before training; lists and clears the cache."""

import json
import logging
import re
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

from seq2seq.cache import Entry, list_entries, remove_entry
from seq2seq.cli import options, shared
from seq2seq.cli.runs import confirm, print_table, size
from seq2seq.errors import UserError
from seq2seq.settings.data import cache_root
from seq2seq.training.lock import holder_of

_SECONDS = {"h": 3600, "d": 86_400, "w": 7 * 86_400}

app = options.Application("List or clear the cache of prepared text and exports.")

Cache = Annotated[
    Path | None,
    options.files(
        metavar="FOLDER",
        help="The cache's folder, as data.cache. [dim]default: SEQ2SEQ_CACHE, or ~/.cache/seq2seq[/dim]",
    ),
]
OlderThan = Annotated[str | None, options.files(metavar="AGE", help="Only entries unused for this long: 12h, 30d, 4w.")]


def prepare(overrides: options.Overrides = None, ray: options.Ray = None) -> None:
    """Prepare text before training: clean, find duplicates and overlap, learn the vocabulary, tokenise.

    [bold]seq2seq prepare experiment=tatoeba_cpu data.root=FOLDER data.num_proc=4[/bold]   then train.py with the
    same settings

    [bold]seq2seq prepare --ray auto data=files 'data.train=["corpora/*.tsv"]'[/bold]   on the Ray cluster that runs
    here

    The settings are train.py's, group=option and key=value; only data, tokenizer and init matter. train.py
    with the same settings finds the result in data.cache. The same command resumes a killed preparation. With
    --ray, texts and data.cache must be in folders that every node sees.
    """
    from rich.console import Console

    from seq2seq.settings.compose import compose
    from seq2seq.text.filters import drop_table
    from seq2seq.text.prepare import prepare as prepare_text

    config = compose(overrides or [])
    if config.init is not None:  # the initial model's tokenizer is used
        from seq2seq.exchange.sources import imported
        from seq2seq.training.finetune import start_from_bundle

        config.init = imported(config.init, config.data.cache, f"init={config.init}")
        config = start_from_bundle(config, overrides or [])
    logger, handler = logging.getLogger("seq2seq.text"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    handler.addFilter(lambda record: record.levelno < logging.WARNING)  # `cli.main` prints warnings
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        prepared = prepare_text(config.data, config.tokenizer, shared.ray_workers(ray))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    sizes = prepared.report["sizes"]
    tests = "".join(f", {name} {size:,}" for name, size in sizes["tests"].items())
    Console().print(drop_table(prepared.report))
    print(f"pairs: train {sizes['train']:,}, validation {sizes['validation']:,}{tests}")
    bytes_ = sum(path.stat().st_size for path in prepared.folder.iterdir())
    print(f"vocabulary: {prepared.tokenizer.target.vocab_size:,}; size: {size(bytes_)}")
    print(f"folder: {prepared.folder}")


@app.command("list")
def list_(cache: Cache = None, as_json: options.AsJson = False) -> None:
    """List what the cache holds: prepared text, exports for --engine ctranslate2, unfinished preparations.

    [bold]seq2seq cache list[/bold]   size, last use, and the existing runs that read each entry
    """
    root, found = entries_of(cache)
    if as_json:
        values = [
            {"folder": str(e.folder), "kind": e.kind, "bytes": e.bytes, "used": e.used, "runs": list(map(str, e.runs))}
            for e in found
        ]
        print(json.dumps(values, indent=2, ensure_ascii=False))
        return
    from rich.table import Table

    table = Table("folder", "kind", "size", "last used", "runs", box=None, pad_edge=False, header_style="bold")
    for entry in found:
        used = datetime.fromtimestamp(entry.used).strftime("%Y-%m-%d %H:%M")
        table.add_row(entry.folder.name, entry.kind, size(entry.bytes), used, ", ".join(run.name for run in entry.runs))
    print_table(table)
    print(f"{root}: {size(sum(entry.bytes for entry in found))}")


@app.command()
def clear(cache: Cache = None, older_than: OlderThan = None, yes: options.Yes = False) -> None:
    """Delete cached text and exports; later runs prepare what they need.

    [bold]seq2seq cache clear --older-than 30d[/bold]   entries unused for 30 days (also 12h, 4w)

    [bold]seq2seq cache clear --yes[/bold]   all entries, without asking

    Entries that a process is preparing or a running run reads are kept.
    """
    age = re.fullmatch(r"(\d+)([hdw])", older_than or "0h")
    if age is None:
        raise UserError(f"--older-than {older_than} is no age: give hours, days or weeks, as 12h, 30d or 4w")
    seconds = int(age[1]) * _SECONDS[age[2]]
    root, found = entries_of(cache)
    chosen = [entry for entry in found if time.time() - entry.used >= seconds]
    if not chosen:
        print(f"{root}: nothing to delete", file=sys.stderr)
        return
    confirm(f"delete {len(chosen)} of {len(found)} folders of {root} ({size(sum(e.bytes for e in chosen))})", yes)
    for entry in chosen:
        reader = next((run for run in entry.runs if holder_of(run) is not None), None)
        if reader is not None:
            print(f"kept {entry.folder.name}: {reader} is running and reads it", file=sys.stderr)
        elif remove_entry(entry):
            print(f"removed {entry.folder.name} ({size(entry.bytes)})", file=sys.stderr)
        else:
            print(f"kept {entry.folder.name}: another process is preparing it", file=sys.stderr)


def entries_of(cache: Path | None) -> tuple[Path, Sequence[Entry]]:
    """Return the cache's folder and its entries."""
    root = cache_root() if cache is None else cache.expanduser()
    return root, list_entries(root)
