"""The commands that list and clear the cache of prepared text and exports; `cli` registers them."""

import json
import re
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2seq.cli import options
from seq2seq.cli.runs import Yes, confirm, print_table, size
from seq2seq.errors import UserError

if TYPE_CHECKING:
    from seq2seq.text.cache import Entry

HELP = "List or clear the cache of prepared text and exports."
_SECONDS = {"h": 3600, "d": 86_400, "w": 7 * 86_400}

app = options.Application(HELP)

Cache = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="FOLDER",
        help="The cache, as data.cache. [dim]default: SEQ2SEQ_CACHE, or ~/.cache/seq2seq[/dim]",
        rich_help_panel=options.FILES,
    ),
]
OlderThan = Annotated[str | None, typer.Option(metavar="AGE", help="Only entries unused for this long: 12h, 30d, 4w.")]


@app.command("list")
def list_(cache: Cache = None, as_json: options.AsJson = False, debug: options.Debug = False) -> None:
    """List what the cache holds: prepared text, exports for --engine ctranslate2, unfinished preparations.

    [bold]seq2seq cache list[/bold]   size, last use, and the runs that read it and are still there
    """
    from rich.table import Table

    root, found = entries_of(cache)
    if as_json:
        values = [
            {"folder": str(e.folder), "kind": e.kind, "bytes": e.bytes, "used": e.used, "runs": list(map(str, e.runs))}
            for e in found
        ]
        print(json.dumps(values, indent=2, ensure_ascii=False))
        return
    table = Table("folder", "kind", "size", "last used", "runs", box=None, pad_edge=False, header_style="bold")
    for entry in found:
        used = datetime.fromtimestamp(entry.used).strftime("%Y-%m-%d %H:%M")
        table.add_row(entry.folder.name, entry.kind, size(entry.bytes), used, ", ".join(run.name for run in entry.runs))
    print_table(table)
    print(f"{root}: {size(sum(entry.bytes for entry in found))}")


@app.command()
def clear(cache: Cache = None, older_than: OlderThan = None, yes: Yes = False, debug: options.Debug = False) -> None:
    """Delete cached text and exports; later runs prepare what they need.

    [bold]seq2seq cache clear --older-than 30d[/bold]   what was not used for 30 days (also 12h, 4w)

    [bold]seq2seq cache clear --yes[/bold]   all, without asking

    Entries that a process is preparing or a running run reads are kept.
    """
    from seq2seq.text.cache import remove_entry

    seconds = age(older_than) if older_than is not None else 0
    root, found = entries_of(cache)
    chosen = [entry for entry in found if time.time() - entry.used >= seconds]
    if not chosen:
        print(f"{root}: nothing to delete", file=sys.stderr)
        return
    confirm(f"delete {len(chosen)} of {len(found)} folders of {root} ({size(sum(e.bytes for e in chosen))})", yes)
    for entry in chosen:
        if (reader := running_reader(entry)) is not None:
            print(f"kept {entry.folder.name}: {reader} is running and reads it", file=sys.stderr)
        elif remove_entry(entry):
            print(f"removed {entry.folder.name} ({size(entry.bytes)})", file=sys.stderr)
        else:
            print(f"kept {entry.folder.name}: another process is preparing it", file=sys.stderr)


def entries_of(cache: Path | None) -> tuple[Path, Sequence["Entry"]]:
    """The cache's folder and what is in it."""
    from seq2seq.settings.data import DataConfig
    from seq2seq.text.cache import cache_root, list_entries

    root = cache_root(DataConfig().cache) if cache is None else cache.expanduser()
    return root, list_entries(root)


def running_reader(entry: "Entry") -> Path | None:
    """A run that reads this and is going on."""
    from seq2seq.training.lock import holder_of

    return next((run for run in entry.runs if holder_of(run) is not None), None)


def age(text: str) -> int:
    """Seconds of an age as 12h, 30d or 4w.

    Raises:
        UserError: it is none.
    """
    parts = re.fullmatch(r"(\d+)([hdw])", text)
    if parts is None:
        raise UserError(f"--older-than {text} is no age: give hours, days or weeks, as 12h, 30d or 4w")
    return int(parts[1]) * _SECONDS[parts[2]]
