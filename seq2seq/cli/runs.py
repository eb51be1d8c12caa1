"""The commands about finished runs: `runs`, and the ablation lab's `lab report` and `lab lengths`."""

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2seq.cli import inputs, options, shared
from seq2seq.errors import UserError
from seq2seq.settings.missing_packages import train_command
from seq2seq.storage.output import find_model

if TYPE_CHECKING:
    from rich.table import Table

    from seq2seq.training.run_files import SavedRun

_NAMES = {"name", "resume"}  # settings that identify a run
Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", help="Runs to compare. [dim]default: list all[/dim]")
]
Seeds = Annotated[bool, typer.Option("--seeds", help="One row for all runs that differ by seed alone.")]
Plot = Annotated[Path | None, options.files("--plot", help="PNG file to write: the validation losses of the runs.")]
Folder = Annotated[Path, options.files("--runs", help="Folder of the runs.")]
app = options.Application(
    "Measure what each part of attention is worth: a report of the lab's runs, and BLEU by length."
)
Runs = Annotated[Path, options.files(help="Folder of the lab's runs.")]
Output = Annotated[Path, options.files(help="Folder of lab.md and its pictures.")]


def runs(
    names: Names = None,
    folder: Folder = Path("runs"),
    as_json: options.AsJson = False,
    seeds: Seeds = False,
    plot: Plot = None,
) -> None:
    """List the runs under runs/, or compare some of them.

    [bold]seq2seq runs[/bold]   one line for each run, the newest first

    [bold]seq2seq runs A B[/bold]   scores, time and size of both runs, and the settings in which the runs differ

    [bold]seq2seq runs --seeds --plot losses.png[/bold]   means ± standard deviations over seeds, and all losses

    A run with series=SERIES is called SERIES/NAME. Loss (nats per target token) and BLEU come from the best
    validation by training.monitor. Resume a stopped run with [bold]seq2seq train resume=runs/NAME[/bold].
    """
    from seq2seq.training.run_files import list_runs

    saved = list_runs(folder)
    if not saved and not names:
        raise UserError(f"--runs {folder} has no run: train one with `{train_command()}`")
    chosen = choose(saved, names) if names else saved
    differing = differing_settings(chosen) if names and not seeds else {}
    if plot is not None:
        draw_losses(chosen, plot)
    if as_json:
        entries = [asdict(run) | {"folder": str(run.folder)} for run in chosen]
        if names:
            for number, entry in enumerate(entries):
                entry["differing_settings"] = {key: values[number] for key, values in differing.items()}
        print(json.dumps(entries, indent=2, ensure_ascii=False))
    else:
        table = seeds_table(chosen) if seeds else comparison_table(chosen, differing) if names else list_table(saved)
        shared.show_parts([table], width=None if sys.stdout.isatty() else 200)  # a file or a pipe has no width


def choose(saved: Sequence["SavedRun"], names: Sequence[str]) -> list["SavedRun"]:
    """Return the runs of these names or folders, each once."""
    from seq2seq.training.run_files import read_run

    by_name = {key: run for run in saved for key in (run.name, str(run.folder))}
    chosen = {}
    for name in names:
        run = by_name.get(name.rstrip("/"))
        if run is None and (Path(name) / "config.yaml").is_file():
            run = read_run(Path(name), name.rstrip("/"))
        if run is None:
            raise UserError(f"there is no run {name}: `seq2seq runs` lists their names")
        chosen[run.name] = run
    return list(chosen.values())


def differing_settings(chosen: Sequence["SavedRun"]) -> dict[str, list[Any]]:
    """Return the settings that differ between the runs, without the names: each run's value by dotted key."""
    from seq2seq.settings.config import used_settings
    from seq2seq.settings.loading import load_config

    configs = [load_config(str(run.folder), [], option="") for run in chosen]
    settings = [used_settings(config) for config in configs]
    keys = [key for key in dict.fromkeys(key for of_run in settings for key in of_run) if key not in _NAMES]
    by_key = {key: [of_run.get(key) for of_run in settings] for key in keys}
    return {key: values for key, values in by_key.items() if any(value != values[0] for value in values)}


def facts_of(run: "SavedRun") -> dict[str, str]:
    """Return what is shown of a run, by heading."""
    from rich.filesize import decimal

    best = run.validation
    return {
        "state": run.state,
        "updates": f"{run.updates:,}",
        "time": duration(run.seconds),
        "loss": number(best and best.loss, 3),
        "BLEU": number(best and best.bleu, 1),
        "test BLEU": ", ".join(f"{name} {value:.1f}" for name, value in run.tests.items()),
        "size": decimal(run.bytes),
    }


def list_table(saved: Sequence["SavedRun"]) -> "Table":
    """Return a table with a line for each run."""
    from rich.table import Table

    table = Table("run", box=None, pad_edge=False, header_style="bold")
    for heading in facts_of(saved[0]):
        is_text = heading in ("state", "test BLEU")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=not is_text)
    for run in saved:
        table.add_row(run.name, *facts_of(run).values())
    return table


def comparison_table(chosen: Sequence["SavedRun"], differing: Mapping[str, Sequence[Any]]) -> "Table":
    """Return a table with a column for each run: its scores and costs, then the settings in which the runs differ."""
    from rich.table import Table

    table = Table("", *(shorten_middle(run.name) for run in chosen), box=None, pad_edge=False, header_style="bold")
    facts = [facts_of(run) | {"parameters": number(run.parameters, 0)} for run in chosen]
    for heading in facts[0]:
        table.add_row(heading, *(of_run[heading] for of_run in facts))
    table.add_section()
    for key, values in differing.items():
        table.add_row(key, *("null" if value is None else str(value) for value in values))
    return table


def seeds_table(chosen: Sequence["SavedRun"]) -> "Table":
    """Return a table with a line for all runs of the same settings but the seed: means ± sample standard deviations."""
    from rich.table import Table

    from seq2seq.settings.config import used_settings
    from seq2seq.settings.loading import load_config

    groups: dict[str, list[SavedRun]] = {}
    for run in chosen:
        try:
            settings = used_settings(load_config(str(run.folder), [], option="")).items()
        except UserError as error:  # of another version, or with parts of one's own
            print(f"warning: {run.name} is left out: {error}", file=sys.stderr)
            continue
        alike = sorted((key, str(value)) for key, value in settings if key not in (*_NAMES, "seed", "series"))
        groups.setdefault(str(alike), []).append(run)
    tests = list(dict.fromkeys(test for run in chosen for test in run.tests))
    table = Table("runs", "n", "loss", "BLEU", *(f"{test} BLEU" for test in tests), box=None, header_style="bold")
    for group in groups.values():
        best = [run.validation for run in group if run.validation]
        columns = [([each.loss for each in best], 3), ([each.bleu for each in best], 1)]
        columns += [([run.tests.get(test) for run in group], 1) for test in tests]
        names = shorten_middle(group[0].name) + (f" and {len(group) - 1} more" if len(group) > 1 else "")
        table.add_row(names, str(len(group)), *(mean(values, digits) for values, digits in columns))
    return table


def mean(values: Sequence[float | None], digits: int) -> str:
    """Return the mean of the known values as text, with their sample standard deviation if there are several."""
    known = [value for value in values if value is not None]
    deviation = f" ± {statistics.stdev(known):.{digits}f}" if len(known) > 1 else ""
    return f"{statistics.fmean(known):.{digits}f}{deviation}" if known else ""


def draw_losses(chosen: Sequence["SavedRun"], path: Path) -> None:
    """Draw the validation losses of runs by update as a PNG file."""
    from matplotlib.figure import Figure

    from seq2seq.training.run_files import losses_by_update

    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    for run in chosen:
        if losses := losses_by_update(run.folder):
            axes.plot(list(losses), list(losses.values()), marker=".", label=shorten_middle(run.name))
    axes.set(xlabel="updates", ylabel="loss (nats per target token)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110, format="png")


def shorten_middle(name: str) -> str:
    """Return a name of at most 40 characters: of a longer one, its beginning and its end, which tells runs apart."""
    return name if len(name) <= 40 else f"{name[:19]}…{name[-20:]}"


def number(value: float | int | None, digits: int) -> str:
    """Return a number as text with the given digits after the point; None gives an empty string."""
    return "" if value is None else f"{value:,.{digits}f}"


def duration(seconds: float | None) -> str:
    """Return seconds as text: hours, minutes and seconds; None gives an empty string."""
    return "" if seconds is None else str(timedelta(seconds=round(seconds)))


@app.command()
def report(runs: Runs = Path("runs/lab"), output: Output = Path("lab")) -> None:
    """Compare the lab's runs with the claims: tables, loss curves, values.

    [bold]seq2seq lab report --runs runs/lab --output docs[/bold]   writes the section of docs/lab.md about these runs

    [bold]python train.py --multirun 'experiment=glob(lab/*)' seed=1,2,3[/bold] makes the runs. In an existing
    lab.md, only the text between <!-- begin lab --> and <!-- end lab --> is replaced (lab is the name of the --runs
    folder).
    """
    from seq2seq.apps.lab.report import PAGE, write_report

    lab = write_report(runs, output)
    for problem in lab.problems:
        print(f"warning: {problem}", file=sys.stderr)
    print(f"{output / PAGE}: {len(lab.runs)} runs", file=sys.stderr)


@app.command()
@options.search_options("beam")
def lengths(
    model: Annotated[
        list[Path],
        typer.Option("--model", help="Run or bundle folder; may be given several times, once for each curve."),
    ],
    input_: Annotated[Path, typer.Option("--input", help="Source sentences, one per line.")],
    reference: Annotated[Path, typer.Option("--reference", help="Their reference translations, one per line.")],
    output: Annotated[Path, typer.Option("--output", help="The picture (.png, .svg or .pdf).")] = Path("lengths.png"),
    device: options.Device = "auto",
    *,
    changes: options.Changes,
) -> None:
    """Draw BLEU by length of the source, one curve for each model.

    [bold]seq2seq lab lengths --model runs/lstm --model runs/small --input test.en --reference test.es --output
    lengths.png[/bold]

    Lengths are in words; groups of fewer than 20 sentences are left out. The same numbers go to standard output.
    """
    from seq2seq.apps.lab.report import bleu_by_length, draw_lengths, make_buckets, names_of, table
    from seq2seq.translate.translator import Translator
    from seq2seq.translate.types import SearchRequest

    lines = inputs.read(None, input_, reference)
    sources, references = list(lines.sources), lines.references or []
    buckets, folders = make_buckets(sources), [find_model(path) for path in model]
    requests = [SearchRequest(settings=shared.search_settings(folder, changes)) for folder in folders]
    curves = {}
    for name, folder, request in zip(names_of(folders), folders, requests, strict=True):
        translations = Translator.load(folder, device).stream(sources, request, chunk=None)
        curves[name] = bleu_by_length(buckets, [best[0].text for best in translations], references)
    draw_lengths(buckets, curves, output)
    print(table(buckets, curves))
