"""The command line's options, each declared once for all commands that have it; knows no command."""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from seq2seq.settings.describe import field_comments
from seq2seq.settings.search import SearchConfig

FILES, SEARCH, DRAWING, WANTED = "Input and output", "Search", "Sampling and choice", "Required and forbidden phrases"
SCORING, OTHER = "Scoring", "Other"
Command = Callable[..., None]
Changes = Mapping[str, Any]  # search settings by name, as `Translator.settings` takes them

BEAM_SEARCH = ("beam", "length_penalty", "max_length", "batch_tokens")
SAMPLING = ("sampling", "temperature", "top_k", "top_p", "seed")
ALL_SEARCH = (
    *("beam", "length_penalty", "max_length", "max_length_ratio", "min_length", "min_length_ratio"),
    *("no_repeat_ngram", "repetition_penalty", "coverage_penalty", "early_stopping", "groups", "diversity"),
    *("batch_tokens", *SAMPLING, "mbr"),
)
_MAX_LENGTH = "at most this many tokens of a translation; otherwise the source's length decides"


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


class Application(typer.Typer):
    """Commands whose help is their docstring."""

    def __init__(self, told: str | None, *, no_args_is_help: bool = True, name: str | None = None) -> None:
        super().__init__(
            name=name,
            help=told,
            no_args_is_help=no_args_is_help,
            add_completion=False,
            pretty_exceptions_enable=False,
            rich_markup_mode="rich",
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Command], Command]:
        """Add a command; each paragraph of its docstring becomes one line, which the terminal wraps."""

        def add(command: Command) -> Command:
            told = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(command) or "")
            return super(Application, self).command(name, help=told, **settings)(command)

        return add


def search_options(*names: str) -> Callable[[Command], Command]:
    """Give a command an option for each of these search settings; it receives those given as `changes`.

    Defaults are the model's own settings.
    """
    panels = {SEARCH: [name for name in names if name not in (*SAMPLING, "mbr")]}
    panels[DRAWING] = [name for name in names if name not in panels[SEARCH]]
    return options_of(SearchConfig, "changes", panels, has_defaults=False, more={"max_length": (int, _MAX_LENGTH)})


def options_of(
    schema: type,
    parameter: str,
    panels: Mapping[str, Sequence[str]],
    *,
    has_defaults: bool = True,
    more: Mapping[str, tuple[type, str]] | None = None,
) -> Callable[[Command], Command]:
    """Replace a parameter of a command by options made from a dataclass: name, type, default and comment of its fields.

    Args:
        schema: the dataclass.
        parameter: name of the command's parameter; it receives a dictionary of values by field name.
        panels: names of fields by the help panel that shows their options.
        has_defaults: whether options that are not given have the field's default; else they are left out.
        more: options that are no fields: type and comment by name.
    """
    fields = {field.name: field for field in dataclasses.fields(schema)}
    comments = field_comments(schema)
    made: dict[str, inspect.Parameter] = {}
    for panel, names in panels.items():
        for name in names:
            kind, comment = (more or {}).get(name) or (fields[name].type, comments[name])
            flags = [f"--{name}/--no-{name}".replace("_", "-")] if kind is bool else []
            by_default = "" if has_defaults else " [dim]default: the model's[/dim]"
            first = comment[0].upper() if comment[0].isascii() else comment[0]
            told = f"{first}{comment[1:]}.".replace("[", "\\[") + by_default
            option = typer.Option(*flags, help=told, rich_help_panel=panel, show_default=has_defaults)
            made[name] = inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=fields[name].default if has_defaults else None,
                annotation=Annotated[kind if has_defaults else kind | None, option],
            )

    def replace(command: Command) -> Command:
        @functools.wraps(command)
        def with_options(**given: Any) -> None:
            values = {name: given.pop(name) for name in made}
            command(**given, **{parameter: {name: value for name, value in values.items() if value is not None}})

        signature = inspect.signature(command)
        others = [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for one in signature.parameters.values()
            if one.name != parameter
        ]
        with_options.__signature__ = signature.replace(parameters=[*others, *made.values()])  # type: ignore[attr-defined]
        with_options.__annotations__ = {}  # Typer reads the signature's
        return with_options

    return replace
