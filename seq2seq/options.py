"""The command line's options, each declared once for all commands that have it; knows no command."""

from pathlib import Path
from typing import Annotated

import typer

FILES, SEARCH, SCORING, OTHER = "Input and output", "Search", "Scoring", "Other"

Texts = Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Sentences; none: read --input or stdin.")]
Model = Annotated[
    Path | None,
    typer.Option(help="Run or bundle folder. [dim]default: the newest under runs/[/dim]", rich_help_panel=FILES),
]
Input = Annotated[Path | None, typer.Option("--input", help="File to translate, a text a line.", rich_help_panel=FILES)]
Output = Annotated[
    Path | None,
    typer.Option(help="File to write, complete or not at all. [dim]default: stdout[/dim]", rich_help_panel=FILES),
]
NBest = Annotated[int, typer.Option(min=1, help="Translations of each input, at most the beam.", rich_help_panel=FILES)]
AsJson = Annotated[bool, typer.Option("--json", help="JSON objects instead of text.", rich_help_panel=FILES)]
Beam = Annotated[
    int | None,
    typer.Option(min=1, help="Hypotheses kept; 1 is greedy. [dim]default: the model's[/dim]", rich_help_panel=SEARCH),
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(min=0, help="α in score / length^α. [dim]default: the model's[/dim]", rich_help_panel=SEARCH),
]
MaxLength = Annotated[
    int | None,
    typer.Option(min=1, help="Most tokens of a translation. [dim]default: by the source[/dim]", rich_help_panel=SEARCH),
]
BatchTokens = Annotated[
    int | None,
    typer.Option(
        min=1, help="Source tokens a batch, times the beam. [dim]default: the model's[/dim]", rich_help_panel=SEARCH
    ),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:N, or auto: a GPU if there is one.", rich_help_panel=SEARCH)]
Reference = Annotated[
    Path | None,
    typer.Option(help="Reference translations, a line each: score with BLEU, chrF++, TER.", rich_help_panel=SCORING),
]
TestSet = Annotated[
    str | None,
    typer.Option(help="Public test set by its sacreBLEU name, such as wmt13.", rich_help_panel=SCORING),
]
SrcLang = Annotated[str, typer.Option(help="Source language of --testset.", rich_help_panel=SCORING)]
TgtLang = Annotated[str, typer.Option(help="Target language of --testset.", rich_help_panel=SCORING)]
Hypotheses = Annotated[Path, typer.Option(help="Translations to score, a line each.", rich_help_panel=FILES)]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=OTHER)]
