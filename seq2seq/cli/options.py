"""The command line's options, each declared once for all commands that have it; knows no command."""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from seq2seq.settings.checks import IntOrAuto, load_extensions
from seq2seq.settings.config import field_comments
from seq2seq.settings.search import Compile, SearchConfig

SEARCH, DRAWING = "Search", "Sampling and choice"
Command = Callable[..., None]
Changes = Mapping[str, int | float | None]  # search settings by name, as `Translator.translate` takes them

BEAM_SEARCH = ("beam", "length_penalty", "max_length", "batch_tokens")
SAMPLING = ("sampling", "temperature", "top_k", "top_p", "seed")
ALL_SEARCH = [
    "max_length" if field.name == "max_length_offset" else field.name for field in dataclasses.fields(SearchConfig)
]
_MAX_LENGTH = "most tokens of a translation; without this option, the source's length decides"
_NEWEST = "[dim]default: the newest under runs/, named on stderr[/dim]"

EngineName = Literal["pytorch", "ctranslate2"]
Precision = Literal["float32", "int8", "float16"]

files = functools.partial(typer.Option, rich_help_panel="Input and output")
search = functools.partial(typer.Option, rich_help_panel=SEARCH)
wanted = functools.partial(typer.Option, rich_help_panel="Required and forbidden phrases")
scoring = functools.partial(typer.Option, rich_help_panel="Scoring")
other = functools.partial(typer.Option, rich_help_panel="Other")

Models = Annotated[
    list[Path] | None, files("--model", help=f"Run or bundle folder; given several times, an ensemble. {_NEWEST}")
]
OneModel = Annotated[Path | None, typer.Option("--model", help=f"Run or bundle folder. {_NEWEST}")]
Output = Annotated[
    Path | None, files(help="File to write, complete or not at all; also .gz .bz2 .xz. [dim]default: stdout[/dim]")
]
Resume = Annotated[
    bool, files("--resume", help="Begin --output, or go on if an earlier command was interrupted; done if complete.")
]
Workers = Annotated[int, files(min=1, help="Processes that translate a file or stdin on the CPU.")]
AsJson = Annotated[bool, files("--json", help="Write JSON instead of text.")]
Device = Annotated[str, search(help="Device: cpu, cuda, cuda:N, or auto: a GPU if there is one.")]
TestSet = Annotated[str | None, scoring(help="Public test set by its sacreBLEU name, such as wmt13.")]
NewFolder = Annotated[Path, typer.Option("--output", help="Folder to make.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="SETTING", help="group=option or key=value, as for train.py.")
]


@dataclasses.dataclass(frozen=True)
class EngineChoice:
    """The program that translates, and its device."""

    device: str = "auto"  # device to compute on: cpu, cuda, cuda:N, or auto, a GPU if there is one
    engine: EngineName = "pytorch"  # ctranslate2 is faster than pytorch on CPUs, but has greedy and beam search only
    quantization: Precision = "int8"  # precision of the weights; for ctranslate2 only
    # search by compiled code on the CPU: auto where a C compiler is at hand, on, or off; only for pytorch
    compile: Compile = "auto"
    # file of `seq2seq shortlist`: predict only pieces that the sources need: faster; only for pytorch
    shortlist: Path | None = None


class Application(typer.Typer):
    """Commands whose help is their docstring; every command has --extension, and --debug, which `cli.main` reads."""

    def __init__(self, help_text: str | None, *, no_args_is_help: bool = True, name: str | None = None) -> None:
        super().__init__(
            name=name,
            help=help_text,
            no_args_is_help=no_args_is_help,
            add_completion=False,
            pretty_exceptions_enable=False,
            rich_markup_mode="rich",
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Command], Command]:
        """Add a command; each paragraph of its docstring becomes one line, which the terminal wraps."""

        def add(command: Command) -> Command:
            def with_common(
                *,
                debug: bool = other(False, "--debug", help="Show the traceback of an error."),
                extension: list[str] | None = other(
                    None, metavar="MODULE", help="Python module that registers own parts."
                ),
                **arguments: Any,
            ) -> None:
                load_extensions(extension or ())
                command(**arguments)

            help_text = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(command) or "")
            *common, _ = inspect.signature(with_common).parameters.values()
            whole = with_parameters(command, with_common, common)
            return super(Application, self).command(name, help=help_text, **settings)(whole)

        return add


class ManyValues(TyperCommand):
    """A command without arguments, whose list options take all words up to the next option.

    `--reference A B` is `--reference A --reference B`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each further value, and parse the words."""
        lists = {flag for parameter in self.params if getattr(parameter, "multiple", False) for flag in parameter.opts}
        words: list[str] = []
        option = ""
        for word in args:
            if word.startswith("-"):
                option = word.partition("=")[0]
            elif option in lists and words[-1] != option:
                words.append(option)
            words.append(word)
        return super().parse_args(ctx, words)


def search_options(*names: str) -> Callable[[Command], Command]:
    """Give a command an option for each of these search settings; the command receives the given values as `changes`.

    Defaults are the model's own settings.
    """
    panels = {SEARCH: [name for name in names if name not in (*SAMPLING, "mbr")]}
    panels[DRAWING] = [name for name in names if name not in panels[SEARCH]]
    return options_of(
        SearchConfig, "changes", panels, has_defaults=False, more={"max_length": (int, _MAX_LENGTH, None)}
    )


def engine_options(command: Command) -> Command:
    """Give a command the options of `EngineChoice`, which the command receives as `engine`."""
    names = [field.name for field in dataclasses.fields(EngineChoice)]
    return options_of(EngineChoice, "engine", {SEARCH: names}, make=EngineChoice)(command)


def options_of(
    schema: type,
    parameter: str,
    panels: Mapping[str, Sequence[str]],
    *,
    make: Callable[..., Any] = dict,
    has_defaults: bool = True,
    more: Mapping[str, tuple[type, str, Any]] | None = None,
) -> Callable[[Command], Command]:
    """Replace a parameter of a command by options made from a dataclass: name, type, default and comment of its fields.

    Args:
        schema: the dataclass.
        parameter: name of the command's parameter.
        panels: names of fields by the help panel that shows their options.
        make: gets the values by field name, and returns what the parameter receives.
        has_defaults: whether an option that is not given has the field's default; else the option is left out.
        more: options that are no fields: type, comment and default by name.
    """
    comments = field_comments(schema)
    described = {field.name: (field.type, comments[field.name], field.default) for field in dataclasses.fields(schema)}
    described |= more or {}
    options = [
        _option(panel, name, *described[name], has_default=has_defaults)
        for panel, names in panels.items()
        for name in names
    ]

    def replace(command: Command) -> Command:
        def with_options(**arguments: Any) -> None:
            values = {option.name: arguments.pop(option.name) for option in options}
            given = {name: value for name, value in values.items() if value is not None}
            command(**arguments, **{parameter: make(**given)})

        return with_parameters(command, with_options, options, without=parameter)

    return replace


def _option(panel: str, name: str, kind: Any, comment: str, default: Any, *, has_default: bool) -> inspect.Parameter:
    """Return a command's parameter that is an option; without a default, it is None if the option is not given."""
    kind = int if kind == IntOrAuto else kind  # left out, it is `auto`
    flags = [f"--{name}/--no-{name}".replace("_", "-")] if kind is bool else []
    first = comment[0].upper() if comment[0].isascii() else comment[0]
    help_text = f"{first}{comment[1:]}.".replace("[", "\\[")
    if not has_default:
        kind, default, help_text = kind | None, None, f"{help_text} [dim]default: the model's[/dim]"
    option = typer.Option(*flags, help=help_text, rich_help_panel=panel, show_default=has_default)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def with_parameters(
    command: Command, wrapper: Command, added: Sequence[inspect.Parameter], without: str | None = None
) -> Command:
    """Give a command's wrapper the command's name, docstring and keyword parameters, some added and one left out."""
    signature = inspect.signature(command)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != without]
    kept = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    functools.update_wrapper(wrapper, command)
    wrapper.__signature__ = signature.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {}  # Typer reads the annotations of the signature
    return wrapper
