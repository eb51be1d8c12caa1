"""Every command of README.md and docs/ has settings that compose and options that exist."""

import ast
import re
import shlex
import tomllib
from typing import Any

import pytest
import typer

from seq2seq.cli import app, translate_app
from seq2seq.settings.compose import compose, rewrite
from tests.documented import REPOSITORY, Command, blocks, commands, settings_of
from tests.documented_table import NOT_RUN, PROGRAMS_NOT_RUN, SMALL

COMMANDS = commands()
TRAINING = [one for one in COMMANDS if {"train.py", "train"} & set(one.words) and "$(" not in one.words]  # torchrun too
OTHERS = [one for one in COMMANDS if one not in TRAINING and one.starts_with("seq2seq")]
TRANSLATING = [one for one in COMMANDS if one.starts_with("python", "translate.py")]
INSTALLATIONS = [one for one in COMMANDS if one.starts_with("pip", "install")]


def is_of_a_program_not_run(command: Command) -> bool:
    return any(command.starts_with(*words) for words in PROGRAMS_NOT_RUN)


def test_every_command_is_run_by_a_test_or_has_a_reason_not_to_be() -> None:
    known = NOT_RUN.keys() | SMALL.keys()
    undecided = [
        f"{one.document}: {one.text}" for one in COMMANDS if one.text not in known and not is_of_a_program_not_run(one)
    ]
    assert undecided == [], "name each in SMALL or NOT_RUN of tests/documented_table.py"
    assert sorted(known - {one.text for one in COMMANDS}) == [], "no document has these; remove them from the tables"
    assert NOT_RUN.keys().isdisjoint(SMALL)


def test_the_extraction_finds_what_is_written() -> None:
    assert len(TRAINING) >= 10
    assert len(OTHERS) >= 8
    assert len(TRANSLATING) >= 8


def test_settings_of_a_sweep_are_those_of_its_first_run() -> None:
    line = "python train.py --multirun a.b=1,2 'x=glob(lab/*)' data.train=[a,b] resume=c"
    swept = Command("README.md", line, tuple(shlex.split(line)))
    assert settings_of(swept) == ["a.b=1", "x=glob(lab/*)", "data.train=[a,b]", "resume=c"]


@pytest.mark.parametrize("command", TRAINING, ids=lambda one: one.text)
def test_the_settings_of_a_training_command_compose(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQ2SEQ_HOME", str(REPOSITORY))
    expanded = [re.sub(r"^(experiment=[^,]+),.*", r"\1", one) for one in rewrite(settings_of(command))]
    assert compose(expanded)
    program = next(index for index, word in enumerate(command.words) if word in ("train.py", "train"))
    assert {word for word in command.words[program + 1 :] if "=" not in word} <= {"--multirun"}


@pytest.mark.parametrize("command", [*OTHERS, *TRANSLATING], ids=lambda one: one.text)
def test_the_options_of_a_command_exist(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQ2SEQ_HOME", str(REPOSITORY))
    is_seq2seq = command.words[0] == "seq2seq"
    words = list(command.words[1:] if is_seq2seq else command.words[2:])
    found: Any = typer.main.get_command(app if is_seq2seq else translate_app)
    while hasattr(found, "commands"):
        assert words[0] in found.commands
        found = found.commands[words.pop(0)]
    found.callback = lambda **_: "called"  # the files that the command names do not exist here
    assert found.main(words, standalone_mode=False) == "called"


@pytest.mark.parametrize("command", INSTALLATIONS, ids=lambda one: one.text)
def test_the_extras_of_an_installation_exist(command: Command) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"\[([\w,-]+)\]", command.text)
    assert {extra for names in named for extra in names.split(",")} <= project["optional-dependencies"].keys()


def test_the_python_examples_import_what_exists() -> None:
    examples = [block.text for block in blocks() if block.language == "python"]
    assert len(examples) >= 2
    for example in examples:
        imports = [node for node in ast.parse(example).body if isinstance(node, ast.ImportFrom | ast.Import)]
        assert imports
        exec(compile(ast.Module(list(imports), []), "<documents>", "exec"), {})
