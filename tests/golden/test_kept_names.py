"""What a version 1.x keeps (docs/reliability.md#versions): every command, option, setting and Python name of a list.

`pytest tests/golden -m '' -n0 --update-golden` adds new names. Before a new major version, none is taken out.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import seq2seq
from seq2seq.cli import app, translate_app
from seq2seq.settings.compose import compose
from seq2seq.settings.config import flatten

KEPT = Path(__file__).with_name("kept_names.txt")


def options(name: str, command: Any) -> Iterator[str]:
    for part, inner in getattr(command, "commands", {}).items():
        yield from options(f"{name} {part}", inner)
    yield from (f"{name} {option}" for parameter in command.params for option in parameter.opts if option[0] == "-")


def arguments(name: str, member: Any) -> Iterator[str]:
    yield name
    if inspect.isclass(member):
        public = (method for method in vars(member) if not method.startswith("_"))
        yield from (line for method in public for line in arguments(f"{name}.{method}", getattr(member, method)))
        member = vars(member).get("__init__")
    if callable(member):
        yield from (f"{name}({argument})" for argument in inspect.signature(member).parameters if argument != "self")


def test_every_name_of_the_list_is_there(request: pytest.FixtureRequest) -> None:
    commands = {"seq2seq": app, "translate.py": translate_app}
    names = {line for name, command in commands.items() for line in options(name, typer.main.get_command(command))}
    names |= {line for name in seq2seq.__all__ for line in arguments(f"seq2seq.{name}", getattr(seq2seq, name))}
    names |= flatten(compose(["data=files"])).keys()
    kept = set(KEPT.read_text(encoding="utf-8").splitlines())
    if request.config.getoption("--update-golden"):
        KEPT.write_text("".join(f"{name}\n" for name in sorted(kept | names)), encoding="utf-8")
    assert kept - names == set()
