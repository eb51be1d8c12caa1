"""The command that makes models out of models: average; `cli` registers it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from seq2seq import options
from seq2seq.errors import UserError
from seq2seq.files import find_model

AVERAGE_HELP = """Make a model whose weights are the mean of several models' weights.

[bold]seq2seq average --model runs/a --model runs/b --output runs/mean[/bold]   same sizes, same vocabulary

[bold]seq2seq average --run runs/NAME --last 5 --output runs/NAME-mean[/bold]   the last checkpoints of a run
"""
Run = Annotated[Path | None, typer.Option("--run", help="Run whose checkpoints to average.")]
Last = Annotated[int | None, typer.Option(help="How many of its checkpoints, the latest ones.")]


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command(help=AVERAGE_HELP)(average)


def average(
    output: options.NewFolder,
    model: options.Models = None,
    run: Run = None,
    last: Last = None,
    debug: options.Debug = False,
) -> None:
    """Write a mean as a bundle."""
    if (run is None) == (not model) or (run is None) != (last is None):
        raise typer.BadParameter("give --model several times, or --run and --last")
    if output.exists():
        raise UserError(f"--output {output} is there already: choose another folder")
    folders = [find_model(one) for one in model or []]  # before anything slow
    from seq2seq.training.averaging import average_bundles, average_checkpoints

    if run is not None and last is not None:
        names = average_checkpoints(run, last, output)
    else:
        names = average_bundles(folders, output)
    print(f"{output}: the mean of {', '.join(names)}", file=sys.stderr)
