"""README.md and docs/ name options, files and extras that exist; tests/golden composes the settings that they name."""

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from seq2seq.cli import app, translate_app
from tests.documented import PAGES, REPOSITORY, blocks, commands
from tests.documented_table import NOT_RUN, reason_not_to_run

COMMANDS = commands()
FOLDERS = "|".join(path.name for path in (REPOSITORY / "seq2seq").iterdir() if path.is_dir())
FILE_NAME = re.compile(
    rf"`((?:seq2seq|tests|conf|benchmarks|data|docs|examples|{FOLDERS})/[\w/.-]+?\.(?:py|yaml|md|json|tsv))`"
)


def test_every_command_is_run_by_a_test_or_has_a_reason_not_to_be() -> None:
    programs = {command.words[:2] for command in COMMANDS if reason_not_to_run(command) is None}
    unknown = {words for words in programs if words[0] != "seq2seq"} - {
        ("python", "train.py"),
        ("python", "translate.py"),
    }
    assert unknown == set(), "tests cannot run these: name the reason in NOT_RUN of tests/documented_table.py"
    assert [key for key in NOT_RUN if not any(re.search(key, command.text) for command in COMMANDS)] == []


def test_the_options_of_commands_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQ2SEQ_HOME", str(REPOSITORY))
    checked = [command for command in COMMANDS if command.words[0] == "seq2seq" or "translate.py" in command.words]
    assert len(checked) > 50
    for command in checked:
        is_seq2seq = command.words[0] == "seq2seq"
        words = list(command.words[1:] if is_seq2seq else command.words[2:])
        parser: Any = typer.main.get_command(app if is_seq2seq else translate_app)
        while hasattr(parser, "commands"):
            assert words[0] in parser.commands, command
            parser = parser.commands[words.pop(0)]
        parser.callback = lambda **_: "called"  # the files that the command names do not exist here
        assert parser.main(words, standalone_mode=False) == "called", command


def test_the_extras_of_installations_exist() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [command.text for command in COMMANDS if command.starts_with("pip", "install")]
    extras = {extra for text in texts for names in re.findall(r"\[([\w,-]+)\]", text) for extra in names.split(",")}
    assert {"test"} < extras <= project["optional-dependencies"].keys()


def test_the_python_examples_import_what_exists() -> None:
    examples = [block.text for block in blocks() if block.language == "python"]
    assert len(examples) > 10
    for example in examples:
        imports = [node for node in ast.parse(example).body if isinstance(node, ast.ImportFrom | ast.Import)]
        exec(compile(ast.Module(list(imports), []), "<documents>", "exec"), {})


@pytest.mark.parametrize(
    "page", [REPOSITORY / "README.md", REPOSITORY / "data/README.md", *PAGES], ids=lambda page: page.name
)
def test_named_files_exist(page: Path) -> None:
    names = FILE_NAME.findall(page.read_text(encoding="utf-8"))
    folders = (REPOSITORY, REPOSITORY / "seq2seq")
    assert [name for name in names if not any((folder / name).exists() for folder in folders)] == []
