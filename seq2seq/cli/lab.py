"""The commands of the ablation lab: report, lengths; `cli` registers them."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from seq2seq.cli import options

HELP = "Measure what each part of attention is worth: a report of the lab's runs, and BLEU by length."


app = options.Application(HELP)

Runs = Annotated[Path, typer.Option("--runs", help="Folder of the lab's runs.", rich_help_panel=options.FILES)]
Output = Annotated[
    Path, typer.Option("--output", help="Folder of lab.md and of its pictures.", rich_help_panel=options.FILES)
]


@app.command()
def report(runs: Runs = Path("runs/lab"), output: Output = Path("lab"), debug: options.Debug = False) -> None:
    """Hold the lab's runs against the claims: tables, loss curves, values.

    [bold]seq2seq lab report --runs runs/lab --output docs[/bold]   fills docs/lab.md's part about them

    The runs are made by [bold]python train.py --multirun 'experiment=glob(lab/*)' seed=1,2,3[/bold]. In a lab.md
    that is there, only what stands between <!-- begin lab --> and <!-- end lab --> is replaced (the word is the
    name of --runs).
    """
    from seq2seq.explain.lab.report import PAGE, write_report

    lab = write_report(runs, output)
    for problem in lab.problems:
        print(f"warning: {problem}", file=sys.stderr)
    print(f"{output / PAGE}: {len(lab.runs)} runs", file=sys.stderr)


@app.command()
@options.search_options("beam")
def lengths(
    model: Annotated[list[Path], typer.Option("--model", help="Run or bundle folder; once for each line drawn.")],
    input_: Annotated[Path, typer.Option("--input", help="Source sentences, one a line.")],
    reference: Annotated[Path, typer.Option("--reference", help="Their translations, one a line.")],
    output: Annotated[Path, typer.Option("--output", help="The picture (.png, .svg or .pdf).")] = Path("lengths.png"),
    device: options.Device = "auto",
    debug: options.Debug = False,
    *,
    changes: options.Changes,
) -> None:
    """Draw BLEU by length of the source, a line for each model.

    [bold]seq2seq lab lengths --model runs/lstm --model runs/small --input test.en --reference test.es --output
    lengths.png[/bold]

    Lengths are in words; groups of fewer than 20 sentences are left out. The same numbers go to standard output.
    """
    from seq2seq.cli.inputs import read
    from seq2seq.cli.jobs import search_settings
    from seq2seq.explain.lab.lengths import bleu_by_length, buckets, draw_lengths, names_of, table
    from seq2seq.files import find_model
    from seq2seq.translator import Translator

    lines = read(None, input_, reference)
    sources, references = list(lines.sources), lines.references or []
    found, folders = buckets(sources), [find_model(one) for one in model]
    for folder in folders:
        search_settings(folder, changes)  # refuses a value out of range before a model is loaded
    curves = {}
    for name, folder in zip(names_of(folders), folders, strict=True):
        translator = Translator.load(folder, device)
        translations = translator.translate(sources, **changes)
        curves[name] = bleu_by_length(found, translations, references)
    draw_lengths(found, curves, output)
    print(table(found, curves))
