"""The meaning of every group, option and setting, from the comments in conf/ and at the fields, for --help and docs.

`python train.py --help-markdown` prints docs/settings.md.
"""

import inspect
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from seq2seq.settings.config import Config, walk
from seq2seq.settings.missing_packages import train_command

EXAMPLES = """\
python train.py                                    the bundled corpus, some minutes on two CPU cores
python train.py data=files 'data.train=[mine.tsv]'   your own text; training stops when the model no longer improves
python train.py experiment=tatoeba_cpu data.root=FOLDER
python train.py --multirun training.learning_rate=5e-4,1e-3 data=files 'data.train=[mine.tsv]'
python train.py resume=runs/NAME                   resumes the run where it stopped
--debug shows tracebacks, --config-dir FOLDER adds a folder of your own options, --cfg job prints the settings.\
"""
HEADER = """\
# Settings

Generated from the comments in `conf/` and `seq2seq/settings/`; do not edit. `python train.py --help` shows the same.

The precedence is Hydra's; the last wins: the defaults, the options of the groups, the experiment, the options of the
command line, the values of the command line. An option of `data` may select the options that suit its text, unless the
command line names others: `data=bundled`, which is the default, selects `model=tiny` and `training=short`. A recipe
(`experiment=tatoeba_cpu`) selects options, which the command line replaces; an ablation (`experiment=lab/…`) or a
technique (`experiment=modifiers`) sets values, which stay, whatever options the command line names.
[Automatic values](automatic.md) describes the rules that replace `auto`. Defaults below are those of `data=files`.
"""


def meanings(config: Config) -> Iterator[tuple[str, str, str]]:
    """Yield every setting: its dotted key, its value as on the command line, and its meaning."""
    for key, value, section in walk(config):
        comments = field_comments(type(section))
        yield key, json.dumps(value, ensure_ascii=False).replace('"', ""), comments[key.rpartition(".")[2]]


@cache
def field_comments(schema: type) -> dict[str, str]:
    """Return the comment of each field of a dataclass: the comment lines above the field, or at the end of its line."""
    comment_of: dict[str, str] = {}
    comments: list[str] = []
    for line in inspect.getsource(schema).splitlines():
        code, _, comment = line.strip().partition("# ")
        if comment:
            comments.append(comment)
        if code.startswith("def "):
            break
        if start := re.match(r"(\w+): ", code):
            comment_of[start[1]] = " ".join(comments)
            comments = []
    return comment_of


def options(conf: Path) -> Iterator[tuple[str, str]]:
    """Yield the options of every group of a conf folder, as GROUP=NAME, each with the first sentence of its file."""
    for path in sorted(conf.rglob("*.yaml")):
        group = path.parent.relative_to(conf).as_posix()
        if group != ".":
            lines = [line[1:].strip() for line in path.read_text(encoding="utf-8").splitlines() if line[:1] == "#"]
            text = " ".join(line for line in lines if not line.startswith("@package"))
            group, name = (group, path.stem) if group != "experiment/lab" else ("experiment", f"lab/{path.stem}")
            yield f"{group}={name}", re.split(r"(?<!\bal)\.(?:\s|$)|:\s+python ", text)[0].rstrip(":. ")


def show_help(conf: Path, config: Config) -> None:
    """Print all options and settings for a terminal."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if Console().is_terminal else 110, highlight=False, markup=False)
    console.print("Train a translation model. Each run is stored in runs/NAME, its model in runs/NAME/model.\n")
    table = Table("option", "meaning", title="Groups: choose with GROUP=OPTION", title_justify="left", box=None)
    for option in options(conf):
        table.add_row(*option)
    console.print(table, "")
    table = Table("value", "meaning", title="Values: set with KEY=VALUE", title_justify="left", box=None)
    for key, value, meaning in meanings(config):
        table.add_row(f"{key}={value}", meaning)
    console.print(table, "", EXAMPLES.replace("python train.py", train_command()), sep="\n")


def markdown(conf: Path, config: Config) -> str:
    """Return all options and settings as docs/settings.md."""
    lines = [HEADER, "## Groups\n", "| option | meaning |", "|---|---|"]
    lines += [f"| `{option}` | {_cell(meaning)} |" for option, meaning in options(conf)]
    lines += ["\n## Values\n", "| value and default | meaning |", "|---|---|"]
    lines += [f"| `{_cell(f'{key}={value}')}` | {_cell(meaning)} |" for key, value, meaning in meanings(config)]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
