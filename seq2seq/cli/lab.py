"""The commands of the ablation lab: report, lengths."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from seq2seq.cli import inputs, options, shared
from seq2seq.storage.output import find_model

app = options.Application(
    "Measure what each part of attention is worth: a report of the lab's runs, and BLEU by length."
)

Runs = Annotated[Path, options.files(help="Folder of the lab's runs.")]
Output = Annotated[Path, options.files(help="Folder of lab.md and its pictures.")]


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
    from seq2seq.apps.lab.lengths import bleu_by_length, draw_lengths, make_buckets, names_of, table
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
