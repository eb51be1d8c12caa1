"""Options and output that all measuring commands share."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import options


def measuring(command: Callable[..., dict[str, Any]]) -> Callable[..., None]:
    """Return the command with the options of every measurement; the command then also reports its results.

    Args:
        command: a function of the device `where` and of its own options; it returns results by name.
    """

    def run(
        *,
        device: options.Device = "auto",
        threads: options.Threads = 0,
        output: options.Json = None,
        markdown: options.Markdown = False,
        **own: Any,
    ) -> None:
        from benchmarks.machine import describe_machine  # a slow import that --help does not need

        where = options.place(device, threads)
        machine = describe_machine(where)
        finish(command(where, **own), machine, output, markdown)

    _, *own = inspect.signature(command).parameters.values()
    *common, _ = inspect.signature(run).parameters.values()
    keywords = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in (*own, *common)]
    functools.update_wrapper(run, command)
    run.__dict__["__signature__"] = inspect.Signature(keywords)  # Typer reads the options here, their types below
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    return run


def finish(results: dict[str, Any], machine: dict[str, Any], output: Path | None, markdown: bool) -> None:
    """Print the tables and write the JSON file."""
    from benchmarks.machine import in_words, write_json
    from benchmarks.tables import Table

    console = Console()
    console.print(in_words(machine), highlight=False, soft_wrap=True)
    tables = [Table(**table) for of_race in results.values() for table in of_race.pop("tables")]
    for table in tables:
        if markdown:
            print(f"\n{table.to_markdown()}")
        else:
            console.print(table.to_rich())
    if output is not None:
        write_json(output, {"machine": machine, **results})
