"""The commands: options made from the fields of a plan, and tables and a JSON file as output."""

import inspect
import json
import os
import platform
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, asdict, dataclass, fields
from importlib import import_module, metadata, util
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from seq2seq.device import choose_device, prepare
from seq2seq.errors import UserError
from seq2seq.settings.config import field_comments


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of all commands. A command's plan adds fields; a field's comment is the help of its option."""

    device: str = "auto"  # device that computes: cpu, cuda, cuda:N, or auto, a GPU if there is one
    threads: int = 0  # CPU threads of every program; 0: PyTorch's choice
    output: Path | None = None  # JSON file to write: the machine, the options and every measurement


@dataclass(frozen=True)
class Table:
    """A table of texts; the first column has names, the others have numbers."""

    title: str
    header: list[str]
    rows: list[list[str]]

    def to_markdown(self) -> str:
        """Return the table as Markdown, for docs/."""
        rule = ["---", *["---:"] * (len(self.header) - 1)]
        return "\n".join("| " + " | ".join(cells) + " |" for cells in (self.header, rule, *self.rows))


Results = tuple[dict[str, Any], list[Table]]  # JSON values by name, and tables


def make_app(name: str) -> typer.Typer:
    """Return the command of a module, which has a class `Plan` of options and a function `run` that measures."""
    module = import_module(f"benchmarks.{name}")

    def command(**values: Any) -> None:
        measure(name, module.run, module.Plan(**values))

    command.__doc__ = module.__doc__
    command.__dict__["__signature__"] = inspect.Signature(options_of(module.Plan))  # Typer makes options of it
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    app.command(name)(command)
    return app


def options_of(schema: type[Options]) -> list[inspect.Parameter]:
    """Return an option for each field of a plan. A number must be at least 1, or 0 if the comment says what 0 means."""
    comments: dict[str, str] = {}
    for base in reversed(schema.__mro__[:-1]):
        comments |= {name: comment for name, comment in field_comments(base).items() if comment}
    common = {field.name for field in fields(Options)}
    ordered = sorted(fields(schema), key=lambda field: field.name in common)
    return [_option(field, comments[field.name], field.name in common) for field in ordered]


def _option(field: Field[Any], comment: str, is_common: bool) -> inspect.Parameter:
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    settings: dict[str, Any] = {"rich_help_panel": "Options of all commands" if is_common else "Options"}
    if field.type in (int, list[int]):
        settings["min"] = 0 if "0: " in comment else 1
    flag = f"--{field.name}".replace("_", "-")
    option = typer.Option(flag, help=f"{comment[0].upper()}{comment[1:]}.", **settings)
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is MISSING else default,
        annotation=Annotated[field.type, option],
    )


def measure(name: str, run: Callable[[Any, torch.device], Results], plan: Options) -> None:
    """Run a command: print its tables, and write the JSON file. An output folder receives the file NAME.json."""
    if plan.threads:
        torch.set_num_threads(plan.threads)
    device = choose_device(plan.device)
    prepare(device)  # as `train.py` and `translate.py` do
    machine = describe_machine(device)
    values, tables = run(plan, device)
    print(machine)
    for table in tables:
        print(f"\n{table.title}\n\n{table.to_markdown()}")
    if plan.output is not None:
        path = plan.output / f"{name}.json" if plan.output.is_dir() else plan.output
        results = {"machine": machine, "plan": asdict(plan), **values}
        content = json.dumps(results, indent=2, ensure_ascii=False, default=str)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content + "\n", encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def describe_machine(device: torch.device) -> str:
    """Return the hardware, the versions and the load that affect speed, in one line."""
    hardware = f"{_cpu_model()}, {os.cpu_count()} cores ({torch.backends.cpu.get_cpu_capability()})"
    if device.type == "cuda":
        hardware = torch.cuda.get_device_name(device)
    packages = ("torch", "transformers", "ctranslate2")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages if util.find_spec(name))
    load = f"load {os.getloadavg()[0]:.2f} at the start"  # processes running or waiting in the last minute
    return f"{hardware}, {torch.get_num_threads()} threads, {versions}, {load}"


def _cpu_model() -> str:
    file = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.+)", file.read_text(encoding="utf-8") if file.exists() else "", re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()
