"""The command line's options, each declared once for all commands that have it; knows no command."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

FILES, SEARCH, DRAWING, WANTED = "Input and output", "Search", "Sampling and choice", "What must and must not be there"
SCORING, OTHER = "Scoring", "Other"


class EngineName(StrEnum):
    """What searches."""

    pytorch = "pytorch"
    ctranslate2 = "ctranslate2"


class Precision(StrEnum):
    """In which weights are kept."""

    float32 = "float32"
    int8 = "int8"
    float16 = "float16"


class ExportName(StrEnum):
    """What reads an export."""

    ctranslate2 = "ctranslate2"
    huggingface = "huggingface"


Texts = Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Sentences; none: read --input or stdin.")]
Models = Annotated[
    list[Path] | None,
    typer.Option(
        "--model",
        help="Run or bundle folder; given several times, an ensemble. "
        "[dim]default: the newest under runs/, named on stderr[/dim]",
        rich_help_panel=FILES,
    ),
]
OneModel = Annotated[
    Path | None,
    typer.Option("--model", help="Run or bundle folder. [dim]default: the newest under runs/, named on stderr[/dim]"),
]
Input = Annotated[
    Path | None,
    typer.Option(
        "--input", help="File to translate, a text a line; or .srt .po .xliff .tmx .html .md.", rich_help_panel=FILES
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(help="File to write, complete or not at all. [dim]default: stdout[/dim]", rich_help_panel=FILES),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with an --output that was broken off.", rich_help_panel=FILES)
]
Interactive = Annotated[
    bool, typer.Option("--interactive", help="Ask for sentences one by one.", rich_help_panel=FILES)
]
NBest = Annotated[
    int, typer.Option(min=1, help="Translations of each input, at most the beam, or samples.", rich_help_panel=FILES)
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of text.", rich_help_panel=FILES)]
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
MaxLengthRatio = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Most tokens for each source token, beside an offset. [dim]default: the model's[/dim]",
        rich_help_panel=SEARCH,
    ),
]
MinLength = Annotated[
    int | None,
    typer.Option(min=0, help="Fewest tokens of a translation.", rich_help_panel=SEARCH),
]
MinLengthRatio = Annotated[
    float | None,
    typer.Option(min=0, help="Fewest tokens for each source token, beside --min-length.", rich_help_panel=SEARCH),
]
NoRepeatNgram = Annotated[
    int | None,
    typer.Option(min=0, help="No sequence of so many tokens twice; 0 is off.", rich_help_panel=SEARCH),
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option(
        min=1, help="Factor on log-probabilities of tokens that were there; 1 is off.", rich_help_panel=SEARCH
    ),
]
CoveragePenalty = Annotated[
    float | None,
    typer.Option(min=0, help="β for source tokens attended to too little (Wu 2016); 0 is off.", rich_help_panel=SEARCH),
]
EarlyStopping = Annotated[
    bool | None,
    typer.Option(
        "--early-stopping/--no-early-stopping",
        help="End when nothing is better at its present length: quicker, seldom worse. [dim]default: the model's[/dim]",
        show_default=False,
        rich_help_panel=SEARCH,
    ),
]
Groups = Annotated[
    int | None,
    typer.Option(min=1, help="Groups of diverse beam search, which share the beam; 1 is off.", rich_help_panel=SEARCH),
]
Diversity = Annotated[
    float | None,
    typer.Option(min=0, help="What a group pays for a token of an earlier group (nats).", rich_help_panel=SEARCH),
]
Sampling = Annotated[
    bool | None,
    typer.Option(
        "--sampling/--no-sampling",
        help="Draw translations instead of searching, by temperature, top-k, top-p and seed. "
        "[dim]default: the model's[/dim]",
        show_default=False,
        rich_help_panel=DRAWING,
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        help="Of the drawn distribution: below 1 closer to the likeliest, above 1 wilder.", rich_help_panel=DRAWING
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(min=0, help="Draw from the k likeliest tokens; 0 is all.", rich_help_panel=DRAWING),
]
TopP = Annotated[
    float | None,
    typer.Option(max=1, help="Draw from the likeliest tokens of so much probability.", rich_help_panel=DRAWING),
]
Seed = Annotated[
    int | None,
    typer.Option(min=0, help="Number that all draws follow from.", rich_help_panel=DRAWING),
]
Mbr = Annotated[
    int | None,
    typer.Option(
        min=0, help="Choose by minimum Bayes risk (chrF) among so many hypotheses; 0 is off.", rich_help_panel=DRAWING
    ),
]
Prefix = Annotated[
    str,
    typer.Option(help="What every translation begins with.", rich_help_panel=WANTED),
]
Phrase = Annotated[
    list[str] | None,
    typer.Option(help="What every translation contains; may be given several times.", rich_help_panel=WANTED),
]
Ban = Annotated[
    list[str] | None,
    typer.Option(help="What no translation contains; may be given several times.", rich_help_panel=WANTED),
]
Glossary = Annotated[
    Path | None,
    typer.Option(help="Terms and their translations, term TAB translation a line.", rich_help_panel=WANTED),
]
BatchTokens = Annotated[
    int | None,
    typer.Option(
        min=1, help="Source tokens a batch, times the beam. [dim]default: the model's[/dim]", rich_help_panel=SEARCH
    ),
]
Engine = Annotated[
    EngineName,
    typer.Option(help="ctranslate2 is quicker on CPUs; greedy and beam only.", rich_help_panel=SEARCH),
]
Quantization = Annotated[Precision, typer.Option(help="Of ctranslate2's weights only.", rich_help_panel=SEARCH)]
ExportFormat = Annotated[ExportName, typer.Argument(metavar="FORMAT", help="ctranslate2 or huggingface.")]
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
Sources = Annotated[Path, typer.Option("--input", help="Sources, a text a line.", rich_help_panel=FILES)]
Translations = Annotated[Path, typer.Option(help="Their translations, a line each.", rich_help_panel=FILES)]
PerToken = Annotated[bool, typer.Option("--per-token", help="Every token's score, too.", rich_help_panel=FILES)]
NewFolder = Annotated[Path, typer.Option("--output", help="Folder to make.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="SETTING", help="group=option or key=value, as for train.py.")
]
